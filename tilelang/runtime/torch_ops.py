"""call(callee, tensors) -> results: a kernel as a registered operation of torch.

Eager calls on plain tensors run at once.  Where torch differentiates, traces, compiles, exports or
only asks for shapes, a kernel is one opaque operation `torch.ops.raggedtile.NAME`: torch never sees
what is inside, and computes shapes without running it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import _AutoDispatchBelowAutograd
from torch._ops import _OpNamespace
from torch.autograd import forward_ad

from ..errors import CallError
from ..ir import KernelIR, TensorSpec, every_expr
from ..language.dtypes import is_float
from .gradients import Gradient
from .parsed import Remembered
from .tensors import spec_of_torch
from .torch_gradient import Differentiated, differentiated, no_forward_mode, when_needed
from .torch_shapes import Shapes, SizeRule, Sizes, hint, rule_for, sizes_of
from .written import Flat, function
from .written_down import digest

NAMESPACE = "raggedtile"
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_names = dict[str, int]()  # how many operations there are of a name
_NAME = re.compile(r"(?P<name>(?P<kernel>.+)_[0-9a-f]{12})(?P<number>_\d+)?")
_lock = threading.RLock()


@dataclass(frozen=True, eq=False)
class Callee:
    """A kernel, or a part of a derived gradient, with all of a call but its tensors.

    kernel    the name of what its author wrote; `name`, of the operation, begins with that
    identity  what tells it from others of that name, with what each parse rests on
    parse     (shapes and dtypes of the tensors, sizes) -> the kernel for those
    run       (plain tensors, sizes) -> its results, in the order of the IR's `returns`
    gradient  (tensors, sizes, parsed, wanted) -> its gradient
    batched   these of its tensors, by name -> the same for all elements of a batch at once
    sized     it is told the sizes of other tensors, which its own do not say
    """

    kernel: str
    name: str
    identity: str
    tensors: tuple[str, ...]
    parse: Callable[[Sequence[TensorSpec], Sizes], Remembered]
    run: Callable[[Sequence[Any], Sizes], Sequence[Any]]
    gradient: Callable[[Sequence[Any], Sequence[Any], Remembered, frozenset[str]], Gradient]
    batched: Callable[[frozenset[str]], Callee]
    sized: bool = False
    operations: dict[tuple[Schema, str], Operation] = field(default_factory=dict)
    batches: dict[frozenset[str], Callee] = field(default_factory=dict)


@dataclass(frozen=True)
class Schema:
    """What a schema says of a kernel.

    results  places among the returned tensors of those that are new ones
    stored   the arguments that the kernel stores to
    """

    results: tuple[int, ...]
    stored: frozenset[str]


@dataclass(frozen=True, eq=False)
class Operation:
    """A registered operation, and the rules by which shapes were computed for it."""

    overload: Any
    rules: list[SizeRule] = field(default_factory=list)


# ---------------------------------------------------------------- calls


# What makes a call more than plain tensors to compute with, as written into functions: what torch
# does, what tensors of a type on a device are (`without_data`), what each one is.
STATE = ("_tracing()", "_modes()", "_transforms()", "_forward._current_level >= 0")
KIND = ("{0}.is_meta", "type({0}).__torch_dispatch__ is not _plain")
EACH, WHERE = "{0}.requires_grad", "_records()"
NAMES = {
    "_tracing": torch._C._is_tracing,
    "_modes": torch._C._len_torch_dispatch_stack,
    "_transforms": torch._C._are_functorch_transforms_active,
    "_forward": forward_ad,
    "_records": torch.is_grad_enabled,
    "_plain": torch._C._disabled_torch_dispatch_impl,
}


def _any(tests: Sequence[str], name: str) -> str:
    return " or ".join(test.format(name) for test in tests)


# Whether a call is more than plain tensors to compute with; `without_data`: fake, functional, meta.
unusual = function("unusual", ["tensors"], Flat((), (
    f"if {' or '.join(STATE)}:",
    "    return True",
    f"recorded = {WHERE}",
    "for one in tensors:",
    f"    if {_any(KIND, 'one')} or (recorded and {EACH.format('one')}):",
    "        return True",
    "return False",
), NAMES))  # fmt: skip
without_data = function("without_data", ["one"], Flat((), (f"return {_any(KIND, 'one')}",), NAMES))


def unusual_for(names: Sequence[str], tensors: Sequence[Any]) -> tuple[str, ...]:
    """What is `unusual` for tensors like these, of the same types, dtypes and devices."""
    grown = [EACH.format(n) for n, t in zip(names, tensors) if t.dtype.is_floating_point]
    return (*STATE, *([f"{WHERE} and ({' or '.join(grown)})"] if grown else []))


def call(callee: Callee, tensors: Sequence[Any], sizes: Sequence[Any] = ()) -> list[Any]:
    """The results of a kernel in the order of its IR's `returns`, wherever torch is."""
    if not unusual(tensors):
        return list(callee.run(tensors, tuple(map(int, sizes))))
    with untraced():
        parsed = callee.parse(specs(callee, tensors), tuple(map(hint, sizes)))
    _refuse_tangents(parsed.ir.name, callee.tensors, tensors)
    form = form_of(parsed.ir)
    operation = _operation(callee, form, parsed)
    if wants_gradient(tensors) and not _as_one_node():
        return differentiated(_recorded(callee, operation, tensors, sizes, parsed), tensors)
    new = listed(operation.overload(*tensors, *_sizes(callee, sizes)))
    return _with_arguments(parsed.ir, form, callee, tensors, new)


def _as_one_node() -> bool:
    """Whether a program is to hold the operation itself, which has a gradient wherever it runs."""
    exported = torch.compiler.is_exporting() and not torch._C._are_functorch_transforms_active()
    return torch._C._is_tracing() or exported


@contextmanager
def untraced() -> Iterator[None]:
    """While torch.jit.trace is not looking: sizes are numbers, and nothing is recorded."""
    c: Any = torch._C
    state = c._get_tracing_state()
    c._set_tracing_state(None)
    try:
        yield
    finally:
        c._set_tracing_state(state)


def specs(callee: Callee, tensors: Sequence[Any]) -> list[TensorSpec]:
    """What a kernel is parsed for: of symbols the numbers that stand for them."""
    return [spec_of_torch(n, t, hint) for n, t in zip(callee.tensors, tensors, strict=True)]


def _sizes(callee: Callee, sizes: Sequence[Any]) -> tuple[Any, ...]:
    return (list(sizes),) if callee.sized else ()


def listed(results: Any) -> list[Any]:
    """What a kernel or an operation returned, one by one."""
    if results is None:
        return []
    return list(results) if isinstance(results, tuple | list) else [results]


def _with_arguments(
    ir: KernelIR, form: Schema, callee: Callee, tensors: Sequence[Any], new: Sequence[Any]
) -> list[Any]:
    """The returned tensors: new ones, and arguments that the kernel returns."""
    own, made = dict(zip(callee.tensors, tensors, strict=True)), iter(new)
    return [next(made) if n in form.results else own[r] for n, r in enumerate(ir.returns)]


def wants_gradient(tensors: Sequence[Any]) -> bool:
    """Whether autograd is to remember a call."""
    return torch.is_grad_enabled() and any(map(_tracked, tensors))


def _tracked(tensor: Any) -> bool:
    """Whether a gradient is wanted, also of what a batch stands for."""
    return any(one.requires_grad for one in _layers(tensor))


def inmost(tensor: Any) -> Any:
    """The tensor that all of torch.func's wrappers around it stand for."""
    return list(_layers(tensor))[-1]


def _layers(tensor: Any) -> Iterator[Any]:
    """The tensor, and what transforms of torch.func wrap in it, one in the other."""
    functorch: Any = torch._C.__dict__["_functorch"]
    yield tensor
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
        yield tensor


def _recorded(
    callee: Callee,
    operation: Operation,
    tensors: Sequence[Any],
    sizes: Sequence[Any],
    parsed: Remembered,
) -> Differentiated:
    """What autograd is to remember of a call."""
    ir, nested = parsed.ir, torch._C._are_functorch_transforms_active()
    form = form_of(ir)
    wanted = frozenset(
        name
        for name, t in zip(callee.tensors, tensors, strict=True)
        if is_float(ir.tensor(name).dtype) and (t.requires_grad or nested)
    )

    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        new = listed(operation.overload(*arrays, *_sizes(callee, sizes)))
        return _with_arguments(ir, form, callee, arrays, new)

    gradient = when_needed(run, lambda: callee.gradient(tensors, sizes, parsed, wanted))
    return Differentiated(parsed.author or ir.name, ir.loc, callee.tensors, wanted, gradient)


def _refuse_tangents(kernel: str, names: Sequence[str], tensors: Sequence[Any]) -> None:
    if forward_ad._current_level < 0:
        return
    for name, tensor in zip(names, tensors, strict=True):
        if forward_ad.unpack_dual(tensor).tangent is not None:
            raise no_forward_mode(kernel, f", and {name} carries a tangent")


# ---------------------------------------------------------------- operations


class _Operations(_OpNamespace):
    """Our operations, by the names that programs have for them which were saved elsewhere."""

    __module__ = _OpNamespace.__module__  # torch writes it into programs

    def __getattr__(self, op_name: str) -> Any:
        """One that is defined here; all numbers of a name are one kernel, defined again."""
        try:
            return super().__getattr__(op_name)
        except AttributeError:
            found = _NAME.fullmatch(op_name)
            if found is None or op_name in _names:  # torch asks while one is defined
                raise
        if found["number"] is not None:
            return getattr(self, found["name"])
        raise _not_defined(op_name, found["kernel"])


getattr(torch.ops, NAMESPACE).__class__ = _Operations


def _not_defined(name: str, kernel: str) -> CallError:
    """For a program that calls a kernel which is none of this process."""
    same = [n for n in _names if (found := _NAME.fullmatch(n)) and found["kernel"] == kernel]
    return CallError(
        f"no kernel here is the operation {NAMESPACE}::{name} of a saved program"
        + (f": {kernel} has another text here, other options, or reads other values" * bool(same)),
        hint=f"define {kernel} as it was when the program was saved, with what it reads, and call "
        "it once before the program is loaded",
    )


def form_of(ir: KernelIR) -> Schema:
    """What the schema of a kernel's operation says."""
    inputs = {t.name for t in ir.tensors if t.role == "input"}
    new = tuple(n for n, name in enumerate(ir.returns) if name not in inputs)
    return Schema(new, frozenset(t.name for t in ir.tensors if t.mutated and t.name in inputs))


def register(callee: Callee, parsed: Remembered) -> None:
    """Defines the operation of a kernel, whether torch asks for it or not."""
    _operation(callee, form_of(parsed.ir), parsed)


def _operation(callee: Callee, form: Schema, parsed: Remembered) -> Operation:
    key = form, parsed.meaning
    with _lock:
        if key not in callee.operations:
            whole = digest(callee.identity, *key)
            callee.operations[key] = _registered(callee, form, f"{callee.name}_{whole}")
        return callee.operations[key]


def _registered(callee: Callee, form: Schema, name: str) -> Operation:
    """Defines the operation: its schema, what it computes, its shapes, its gradient.

    Kernels of one name mean the same, and have a number each: one may change with an object.
    """
    count = _names[name] = _names.get(name, 0) + 1
    if count > 1:
        name = f"{name}_{count}"
        _names[name] = 1
    _library.define(f"{name}{_schema(callee, form)}", tags=(torch.Tag.needs_fixed_stride_order,))
    operation = Operation(getattr(getattr(torch.ops, NAMESPACE), name).default)

    def run(*given: Any) -> Any:
        tensors, sizes = _split(callee, given)
        results = callee.run(tensors, tuple(map(int, sizes)))
        new = [results[n] for n in form.results]
        _refuse_other_shapes(callee, operation, (*sizes_of(tensors), *sizes), new)
        return _shaped(new)

    def shapes(*given: Any) -> Any:
        tensors, sizes = _split(callee, given)
        return _shaped(_empty(callee, form, operation, tensors, sizes))

    def autograd(*given: Any) -> Any:
        tensors, sizes = _split(callee, given)
        if not wants_gradient(tensors):
            with _AutoDispatchBelowAutograd():
                return operation.overload(*given)
        _refuse_transform(callee)
        parsed = callee.parse(specs(callee, tensors), tuple(map(hint, sizes)))
        every = differentiated(_recorded(callee, operation, tensors, sizes, parsed), tensors)
        return _shaped([every[n] for n in form.results])

    def batch(info: Any, dims: Sequence[int | None], *given: Any) -> Any:
        tensors, sizes = _split(callee, given)
        return _in_one(callee, form, tensors, dims, sizes), _shaped([0] * len(form.results))

    _library.impl(name, run, "CompositeExplicitAutograd")
    _library.impl(name, autograd, "Autograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", shapes, lib=_library)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", batch, lib=_library)
    return operation


def _in_one(
    callee: Callee,
    form: Schema,
    tensors: Sequence[Any],
    dims: Sequence[int | None],
    sizes: Sequence[Any],
) -> Any:
    """The results for a batch: `dims` says where its elements lie in each tensor."""
    for stored in sorted(form.stored):
        raise CallError(
            f"{callee.kernel} stores to {stored}, which torch.func.vmap does not batch",
            hint=f"store to a new output and return it, or call "
            f"{callee.kernel}.batched({stored!r}, ...)",
        )
    places = list(zip(callee.tensors, tensors, dims, strict=False))
    names = frozenset(name for name, _, dim in places if dim is not None)
    with _lock:
        if names not in callee.batches:
            callee.batches[names] = callee.batched(names)
        larger = callee.batches[names]
    moved = [t if dim is None else t.movedim(dim, 0) for _, t, dim in places]
    parsed = larger.parse(specs(larger, moved), tuple(map(hint, sizes)))
    return _operation(larger, form, parsed).overload(*moved, *_sizes(larger, sizes))


def _schema(callee: Callee, form: Schema) -> str:
    stored = {name: f"(a{n}!)" for n, name in enumerate(callee.tensors) if name in form.stored}
    arguments = [f"Tensor{stored.get(name, '')} {name}" for name in callee.tensors]
    arguments += ["SymInt[] sizes_"] if callee.sized else []
    results = ["Tensor"] * len(form.results)
    returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"({', '.join(arguments)}) -> {returned}"


def _shaped(results: Sequence[Any]) -> Any:
    """Results the way a schema returns them."""
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _split(callee: Callee, given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    return (given[:-1], given[-1]) if callee.sized else (given, ())


def _refuse_transform(callee: Callee) -> None:
    if torch._C._are_functorch_transforms_active():
        raise CallError(
            f"the operation {callee.name} is called in a transform of torch.func",
            hint="call the kernel itself",
        )


def _empty(
    callee: Callee,
    form: Schema,
    operation: Operation,
    tensors: Sequence[Any],
    sizes: Sequence[Any],
) -> list[Any]:
    """Results of which only shape, dtype and device are known."""
    found = specs(callee, tensors)
    every = (*sizes_of(tensors), *sizes)

    def parsed_at(numbers: Sizes) -> Remembered:
        each = iter(numbers)
        there = [TensorSpec(tuple(next(each) for _ in s.shape), s.dtype, "torch") for s in found]
        return callee.parse(there, tuple(each))

    def shapes_of(numbers: Sizes) -> Shapes:
        ir = parsed_at(numbers).ir
        return tuple(ir.tensor(ir.returns[n]).shape for n in form.results)

    def length_of(numbers: Sizes) -> int:
        ir = parsed_at(numbers).ir
        return sum(1 for _ in every_expr(ir.body, ir.axes))

    rule = rule_for(every, shapes_of, length_of)
    if rule.symbols and rule not in operation.rules:
        operation.rules.append(rule)
    ir = parsed_at(rule.hints).ir
    dtypes = [getattr(torch, ir.tensor(ir.returns[n]).dtype) for n in form.results]
    device = tensors[0].device if tensors else None
    made = zip(rule.at(every), dtypes, strict=True)
    return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in made]


def _refuse_other_shapes(
    callee: Callee, operation: Operation, sizes: Sequence[Any], results: Sequence[Any]
) -> None:
    """CallError where a program was compiled for results of other shapes than those found."""
    shapes = tuple(tuple(r.shape) for r in results)
    for rule in operation.rules:
        numbers = tuple(map(int, sizes))
        if not rule.holds(numbers, shapes):
            raise CallError(
                f"{callee.name} was compiled for results of shape {list(rule.at(numbers))}, "
                f"and they have shape {list(shapes)}",
                hint="compile with dynamic=False, or mark the sizes as static",
            )
