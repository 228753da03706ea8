"""prepare(...) -> Launch: one specialisation of a kernel on an NVIDIA GPU, without JAX.

It is written: one flat function of the arguments, which is all that a later call does.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ...analysis.facts import Facts
from ...codegen.triton.plan.types import Plan
from ...codegen.triton.target import Target
from ...errors import CallError
from ...ir import KernelIR
from ...schedule.refusal import Refusal
from .. import bridge
from ..checks import Check, verifying
from ..dynamo import keep_out
from ..launch import Launch, TensorArgument, Values, check_of, framework_of
from ..lowering import Lowered
from ..results import text_of
from ..tensors import Described
from ..written import Flat, function, joined, listed, local
from .device import interprets, place_of, target_of
from .programs import arrays_of, driver, launching, programs_of
from .readers import apart, reading, write_back

# Variables of all arrays -> lines that make those behind the operands, and launch.
Steps: TypeAlias = Callable[[Sequence[str]], Flat]


def require_triton(kernel: str) -> None:
    """CallError where Triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        raise CallError(
            f"calling {kernel} on a GPU needs triton, which is not installed",
            hint="pip install 'raggedtile[triton]'; .source and .explain work without",
        )


def prepare(
    ir: KernelIR,
    facts: Facts,
    operands: Sequence[TensorArgument],
    values: Sequence[Any],
    target: Target | None,
    planned: Callable[[Target], Lowered | Refusal],
    checks: bool | None,
) -> Launch | Refusal:
    """The launch of one specialisation; a target that is left out is that of the device.

    `checks` None: offsets are looked at if they are on the host; True: they are fetched for that.
    Raises CallError for arguments that are not all on one GPU.
    """
    framework_of(ir.name, operands)
    device = place_of(ir.name, operands, values, target)
    require_triton(ir.name)
    lowered = planned(target or target_of(device))
    if isinstance(lowered, Refusal):
        return lowered
    assert isinstance(lowered.plan, Plan), "the target is a GPU"
    check = check_of(ir, facts, operands, checks, dict(lowered.plan.blocks))
    verify = None if check is None else _verifying(check, operands)
    make = partial(_launch, ir, operands, lowered=lowered, verify=verify, device=device)
    return _there(device, make, values)


@dataclass(frozen=True, eq=False)
class OnGpu:
    """A launch: `lines` are what a call does, by the arguments' names; `call` is made of them."""

    lines: Callable[[Sequence[str]], Flat]
    call: Callable[..., Any]

    def __call__(self, values: Values) -> Any:
        return self.call(*values)

    def flat(self, parameters: Sequence[str], values: Values) -> Flat:
        """What a call does, to stand in another function."""
        return self.lines(parameters)


def _launch(
    ir: KernelIR,
    operands: Sequence[TensorArgument],
    values: Values,
    lowered: Lowered,
    verify: Callable[[Values], None] | None,
    device: Any,
) -> OnGpu:
    """Look at offsets, read operands, launch, store back, hand results out."""
    torches = [o for o in operands if o.described.home == "torch"]
    here = {o.place for o in torches if values[o.place].device == device}
    steps, plan = _steps(lowered, device), lowered.plan
    assert isinstance(plan, Plan)

    def lines(parameters: Sequence[str]) -> Flat:
        arrays = {name: f"_{name}_" for name in arrays_of(plan)}
        pairs = [(o, parameters[o.place], f"_{o.name}_") for o in operands]
        stored = [pair for pair in pairs if ir.tensor(pair[0].name).mutated]
        return joined(
            _where(device, parameters, lambda given: call(*given)),
            Flat((), (f"_verify({listed(parameters)})",) if verify else (), {"_verify": verify}),
            *(reading(o, o.place in here, device, given, array) for o, given, array in pairs),
            apart([array for *_, array in pairs], [array for *_, array in stored]),
            steps(list(arrays.values())),
            *(write_back(*pair) for pair in stored),
            _returning(ir, plan, {o.name: given for o, given, _ in pairs}, arrays, not torches),
        )

    known = {o.place: local(o.name) for o in operands}
    parameters = [known.get(place, f"_unread_{place}") for place in range(len(values))]
    call = function(f"launch_{ir.name}", parameters, lines(parameters))
    keep_out(call)
    return OnGpu(lines, call)


def _steps(lowered: Lowered, device: Any) -> Steps:
    """How the plan's buffers are made and its programs launched."""
    plan = lowered.plan
    assert isinstance(plan, Plan)
    if interprets():
        return partial(_interpreted, plan, lowered.source.load())
    return partial(launching, plan, programs_of(plan, lowered.source, device), device)


def _interpreted(plan: Plan, host: Callable[..., Any], arrays: Sequence[str]) -> Flat:
    """The host function of the module itself: Triton's interpreter is behind its kernels."""
    count = len(arrays) - len(plan.buffers)
    made = text_of(plan.ir.structure, _seen(plan))
    line = f"{'' if made == 'None' else f'{made} = '}_host({', '.join(arrays[:count])})"
    return Flat((), (line,), {"_host": host})


def _seen(plan: Plan) -> list[str]:
    """Names of results in the shapes of their views, as the host function of a module has them."""
    return [f"_result_{n}_" for n in range(len(plan.results))]


def _where(device: Any, parameters: Sequence[str], call: Callable[[Values], Any]) -> Flat:
    """Where there are several GPUs, a call on another one than torch's makes it torch's first."""
    if device.type != "cuda" or bridge.torch().cuda.device_count() < 2:
        return Flat()
    names = {"_current": driver().get_current_device, "_there": partial(_there, device, call)}
    lines = f"if _current() != {device.index}:", f"    return _there({listed(parameters)})"
    return Flat((), lines, names)


def _there(device: Any, call: Callable[[Values], Any], values: Values) -> Any:
    """A call while that GPU is torch's current one: code is loaded for that, and launched on it."""
    if device.type != "cuda":
        return call(values)
    before = driver().get_current_device()
    driver().set_current_device(device.index)
    try:
        return call(values)
    finally:
        driver().set_current_device(before)


def _returning(
    ir: KernelIR, plan: Plan, given: Mapping[str, str], arrays: Mapping[str, str], in_numpy: bool
) -> Flat:
    """The results in the author's structure; a returned parameter is the caller's object.

    in_numpy  as NumPy arrays, like all arguments: Triton's interpreter takes such calls
    """
    made = _seen(plan)
    if not interprets():
        views = ("".join(f".{how}({sizes})" for how, sizes in r.views) for r in plan.results)
        made = [arrays[r.name] + view for r, view in zip(plan.results, views, strict=True)]
    names: dict[str, Any] = {}
    if in_numpy:
        names = {f"_numpy_of_{n}": bridge.torch_to_numpy(n, ir.tensor(n).dtype) for n in ir.returns}
        made = [f"_numpy_of_{n}({array})" for n, array in zip(ir.returns, made, strict=True)]
    returned = [given.get(name, own) for name, own in zip(ir.returns, made, strict=True)]
    return Flat((), (f"return {text_of(ir.structure, returned)}",), names)


def _verifying(check: Check, operands: Sequence[TensorArgument]) -> Callable[[Values], None]:
    named = {o.name: o for o in operands}
    wanted = [named[name] for name in check.reads]
    return verifying(
        check, lambda values: [_on_host(o.name, values[o.place], o.described) for o in wanted]
    )


def _on_host(name: str, value: Any, described: Described) -> np.ndarray:
    array = bridge.host_array(name, value, described)
    return bridge.narrowed(name, array) if described.spec.dtype == "int64" else array
