"""called(compiler, names, values) -> results: a kernel on torch tensors, whatever they are.

What `torch_ops` calls is made here: of a kernel and its static arguments, and of each part of its
derived gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import CallError, GradientError
from ..ir import TensorSpec
from ..reads import Object, Same, stamp
from . import torch_ops
from .bridge import numpy_to_torch
from .given import Given, check_value
from .gradients import Gradient, Run, derived, refused
from .later import call_of, flat_of
from .launch import Launch, TensorArgument, framework_of, refuse_shape
from .parsed import FORWARD, Remembered
from .results import structured
from .tensors import Described, describe, home_of, spec_of_torch
from .torch_ops import Callee, inmost, unusual
from .torch_shapes import Sizes, hint, known, sizes_of
from .written import Flat
from .written_down import digest

Statics = Mapping[str, Any]
LARGE = 1 << 63  # torch has no integers of that size


@dataclass(frozen=True)
class Guarded:
    """A launch of which some arguments, at `places`, are torch tensors.

    plain    computes with plain tensors
    through  for all that is more: gradients, traces, transforms
    """

    plain: Launch
    through: Launch
    places: tuple[int, ...]

    def __call__(self, values: Sequence[Any]) -> Any:
        """Runs the kernel by the one or the other."""
        tensors = [values[place] for place in self.places]
        return (self.through if unusual(tensors) else self.plain)(values)

    def flat(self, parameters: Sequence[str], values: Sequence[Any]) -> Flat:
        """A call with plain tensors; one that is more is told by `unless`."""
        tensors = [values[place] for place in self.places]
        if any(map(torch_ops.without_data, tensors)):
            return call_of(self, parameters)
        unless = torch_ops.unusual_for([parameters[place] for place in self.places], tensors)
        return flat_of(self.plain, parameters, values).after(unless, torch_ops.NAMES)


@dataclass(frozen=True)
class KernelCompiler:
    """What a kernel can do with the arguments of a call.

    name      of the kernel; `identity` tells it from others of that name
    parse     arguments -> the kernel for them
    run       values of the arguments, plain tensors -> what the kernel returns
    launch    (a part of the gradient, plain tensors, whether to look at offsets) -> its results;
              or a batch of the kernel or of a part
    batch     (the kernel or a part, names, size) -> that for a batch of so many elements
    gradient  (the kernel, its static arguments, wanted, how to run parts) -> its gradient
    """

    name: str
    identity: str
    parse: Callable[[Given], Remembered]
    run: Callable[[Sequence[Any]], Any]
    launch: Callable[[Remembered, Sequence[Any], bool], Any]
    batch: Callable[[Remembered, frozenset[str], int], Remembered]
    gradient: Callable[[Remembered, Statics, frozenset[str], Run], Gradient]
    callees: dict[Hashable, Callee] = field(default_factory=dict)


def plain(launch: Launch) -> Launch:
    """The launch as it computes, whatever torch is doing."""
    return launch.plain if isinstance(launch, Guarded) else launch


def set_apart(values: Sequence[Any]) -> bool:
    """Whether arguments have no data, or no sizes that are numbers: fake, functional, traced."""
    if torch._C._is_tracing():
        return True
    return any(isinstance(v, torch.Tensor) and torch_ops.without_data(inmost(v)) for v in values)


def called(compiler: KernelCompiler, names: Sequence[str], values: Sequence[Any]) -> Any:
    """What the kernel returns, as torch differentiates, traces or compiles it."""
    with torch_ops.untraced():
        callee, given, sizes = _bound(compiler, names, values)
        tensors = [_as_torch(value) for value in given]
        parsed = callee.parse(torch_ops.specs(callee, tensors), tuple(map(hint, sizes)))
    return structured(parsed.ir.structure, torch_ops.call(callee, tensors, sizes))


def register(
    compiler: KernelCompiler, names: Sequence[str], values: Sequence[Any], parsed: Remembered
) -> None:
    """Defines the operation of a call: programs that were saved elsewhere hold it by name."""
    torch_ops.register(_bound(compiler, names, values)[0], parsed)


def _bound(
    compiler: KernelCompiler, names: Sequence[str], values: Sequence[Any]
) -> tuple[Callee, list[Any], list[Any]]:
    """The kernel with its static arguments, the tensors, and numbers: these may be symbols."""
    named = {n: v if _is_size(v) else known(v) for n, v in zip(names, values, strict=True)}
    tensors = {n: v for n, v in named.items() if home_of(type(v)) is not None}
    numbers = {n: v for n, v in named.items() if _is_size(v)}
    statics = {n: v for n, v in named.items() if n not in tensors and n not in numbers}
    _screen(compiler.name, tuple(named), tensors, statics)
    key = tuple(_identity(statics[n]) if n in statics else n in numbers for n in named)
    if key not in compiler.callees:
        compiler.callees[key] = _kernel(compiler, tuple(named), statics, tuple(numbers), key)
    return compiler.callees[key], [*tensors.values()], [*numbers.values()]


def _is_size(value: Any) -> bool:
    """Whether torch may have a symbol for such a number; of those it is told like of sizes."""
    return isinstance(value, torch.SymInt) or (type(value) is int and -LARGE <= value < LARGE)


def _screen(kernel: str, names: Sequence[str], tensors: Statics, statics: Statics) -> None:
    """CallError for arguments that no kernel takes, or that do not go together."""
    for name, value in statics.items():
        check_value(name, value)
    operands = [TensorArgument(names.index(n), n, _described(n, v)) for n, v in tensors.items()]
    framework_of(kernel, operands)
    full = [v for v in tensors.values() if v.shape and not _is_meta(v)]
    for operand in operands:
        value = tensors[operand.name]
        if isinstance(value, TensorSpec):
            refuse_shape(kernel, operand)
        if full and _is_meta(value):
            what = f"{operand.name} is on device 'meta', without data, and others have data"
            raise CallError(what, hint="move all arguments to one device")


def _is_meta(value: Any) -> bool:
    """Whether it is a tensor without data, of which the results would have none either."""
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def _described(name: str, value: Any) -> Described:
    if isinstance(value, torch.Tensor):
        return Described(spec_of_torch(name, value, hint), "torch")
    found = describe(name, value)
    assert found is not None, "it is a tensor"
    return found


def _as_torch(value: Any) -> Any:
    return numpy_to_torch(value.dtype.name, value) if isinstance(value, np.ndarray) else value


def _identity(value: Any) -> Hashable:
    """A static argument as part of a key: objects count by identity, for what is read of them."""
    found = stamp(value)
    return Same(value) if isinstance(found, Object) else found


def _kernel(
    compiler: KernelCompiler,
    names: tuple[str, ...],
    statics: Statics,
    numbers: tuple[str, ...],
    key: Hashable,
) -> Callee:
    tensors = tuple(n for n in names if n not in statics and n not in numbers)

    def fixed(sizes: Sequence[Any]) -> Statics:
        """All arguments but tensors."""
        return {**statics, **dict(zip(numbers, sizes, strict=True))}

    def parse(specs: Sequence[TensorSpec], sizes: Sizes) -> Remembered:
        there = dict(zip(tensors, specs, strict=True))
        described = {n: Described(s, "shape") for n, s in there.items()}
        every = {**fixed(sizes), **there}
        with _disable_current_modes():  # what the kernel reads of outside is as it is, never fake
            return compiler.parse(Given({n: every[n] for n in names}, described))

    def run(arrays: Sequence[Any], sizes: Sizes) -> Sequence[Any]:
        every = {**fixed(sizes), **dict(zip(tensors, arrays, strict=True))}
        return torch_ops.listed(compiler.run([every[n] for n in names]))

    def gradient(
        parsed: Remembered, wanted: frozenset[str], run_part: Run, sizes: Sequence[Any]
    ) -> Gradient:
        return compiler.gradient(parsed, fixed(sizes), wanted, run_part)

    identity, sized = digest(compiler.identity, key), bool(numbers)
    return _callee(compiler, compiler.name, identity, tensors, parse, run, gradient, sized)


def _of_part(
    parsed: Remembered, wanted: frozenset[str], run_part: Run, sizes: Sequence[Any]
) -> Gradient:
    return derived(parsed, wanted, run_part)


def _callee(
    compiler: KernelCompiler,
    name: str,
    identity: str,
    tensors: tuple[str, ...],
    parse: Callable[[Sequence[TensorSpec], Sizes], Remembered],
    run: Callable[[Sequence[Any], Sizes], Sequence[Any]],
    gradient: Callable[[Remembered, frozenset[str], Run, Sequence[Any]], Gradient],
    sized: bool,
) -> Callee:
    """An operation whose gradient, where it is derived, is made of operations too."""
    parts: dict[Hashable, Callee] = {}

    def found(
        arrays: Sequence[Any], sizes: Sequence[Any], parsed: Remembered, wanted: frozenset[str]
    ) -> Gradient:
        every = (*sizes_of(arrays), *sizes)

        def run_part(n: int, given: Sequence[Any]) -> Sequence[Any]:
            specs = [parsed.ir.tensor(t) for t in tensors]
            key = (wanted, n, tuple((len(s.shape), s.dtype) for s in specs))
            if key not in parts:
                parts[key] = _part(compiler, whole, parsed, wanted, n)
            return torch_ops.call(parts[key], given, every)

        try:
            return gradient(parsed, wanted, run_part, sizes)
        except GradientError as error:
            needs = next(n for n in tensors if n in wanted)
            otherwise = f"use torch.no_grad(), or pass {needs}.detach()"
            found = refused(parsed.ir.name, error, f", and {needs} requires grad", otherwise)
            raise found from None

    def batched(names: frozenset[str]) -> Callee:
        return _batch(compiler, whole, names)

    whole = Callee(compiler.name, name, identity, tensors, parse, run, found, batched, sized)
    return whole


def _batch(compiler: KernelCompiler, one: Callee, names: frozenset[str]) -> Callee:
    """A callee for all elements of a batch, of which the tensors `names` have a dimension more."""

    def parse(specs: Sequence[TensorSpec], sizes: Sizes) -> Remembered:
        every = list(zip(one.tensors, specs, strict=True))
        size = next(s.shape[0] for n, s in every if n in names)
        each = [replace(s, shape=s.shape[1:]) if n in names else s for n, s in every]
        return compiler.batch(one.parse(each, sizes), names, size)

    def run(arrays: Sequence[Any], sizes: Sizes) -> Sequence[Any]:
        parsed = parse([spec_of_torch(n, a, int) for n, a in zip(one.tensors, arrays)], sizes)
        return torch_ops.listed(compiler.launch(parsed, arrays, not parsed.derived))

    name, identity = f"{compiler.name}_batch", digest(one.name, one.identity, names)
    return _callee(compiler, name, identity, one.tensors, parse, run, _of_part, one.sized)


def _part(
    compiler: KernelCompiler, whole: Callee, parsed: Remembered, wanted: frozenset[str], n: int
) -> Callee:
    """A part of the gradient of `whole`; it is told the sizes of the tensors of that."""
    tensors = [parsed.ir.tensor(t) for t in whole.tensors]

    def parse(own: Sequence[TensorSpec], sizes: Sizes) -> Remembered:
        each = iter(sizes)
        specs = [TensorSpec(tuple(next(each) for _ in t.shape), t.dtype, "torch") for t in tensors]
        return whole.parse(specs, tuple(each)).part(wanted, n)

    def run(arrays: Sequence[Any], sizes: Sizes) -> Sequence[Any]:
        return torch_ops.listed(compiler.launch(parse((), sizes), arrays, n == FORWARD))

    name = f"{compiler.name}_{'forward' if n == FORWARD else f'backward{n}'}"
    dtypes = tuple((len(t.shape), t.dtype) for t in tensors)
    identity = digest(whole.name, whole.identity, wanted, dtypes)
    names = parsed.part(wanted, n).arguments
    return _callee(compiler, name, identity, names, parse, run, _of_part, sized=True)
