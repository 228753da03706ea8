"""prepare(...) -> Launch: one specialisation of a kernel on an NVIDIA GPU, without JAX."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...analysis.facts import Facts
from ...codegen.triton.plan.types import Plan
from ...codegen.triton.target import Target
from ...errors import CallError
from ...ir import KernelIR
from .. import bridge
from ..checks import Check, verifying
from ..dynamo import keep_out
from ..launch import Launch, Operand, Values, check_of, framework_of
from ..lowering import Lowered
from ..results import structured
from ..tensors import Described
from .device import place_of, target_of
from .programs import Run, runner

INT32 = np.iinfo(np.int32)


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
    operands: Sequence[Operand],
    values: Sequence[Any],
    target: Target | None,
    planned: Callable[[Target], Lowered],
    checks: bool | None,
) -> Launch:
    """The launch of one specialisation; a target that is left out is that of the device.

    `checks` None: offsets are looked at if they are on the host; True: they are fetched for that.
    Raises CallError for arguments that are not all on one GPU.
    """
    framework_of(ir.name, operands)
    device = place_of(ir.name, operands, values, target)
    require_triton(ir.name)
    lowered = planned(target or target_of(device))
    assert isinstance(lowered.plan, Plan), "the target is a GPU"
    check = check_of(ir, facts, operands, checks)
    readers = [(o.place, _reader(o, values[o.place], device)) for o in operands]
    return _call(ir, operands, readers, runner(lowered.plan, lowered.source, device), check)


def _call(
    ir: KernelIR,
    operands: Sequence[Operand],
    readers: Sequence[tuple[int, Callable[[Any], Any]]],
    run: Run,
    check: Check | None,
) -> Launch:
    """The function that a call runs; `run` takes contiguous tensors on the device."""
    verify = None if check is None else _verifying(check, operands)
    stored = [(at, o) for at, o in enumerate(operands) if ir.tensor(o.name).mutated]
    finish = _finishing(ir, operands)

    def call(values: Values) -> Any:
        if verify is not None:
            verify(values)
        tensors = [read(values[place]) for place, read in readers]
        results = run(tensors)
        for at, operand in stored:
            if tensors[at] is not values[operand.place]:
                _write_back(operand, values[operand.place], tensors[at])
        return finish(results, values)

    keep_out(call)
    return call


def _finishing(ir: KernelIR, operands: Sequence[Operand]) -> Callable[[Sequence[Any], Values], Any]:
    """What the runner gives, in the author's structure."""
    places = {o.name: o.place for o in operands}
    own = [places.get(name) for name in ir.returns]  # a returned parameter is the caller's object
    if ir.structure == "single" and own == [None]:
        return lambda results, values: results[0]

    def finish(results: Sequence[Any], values: Values) -> Any:
        returned = [
            result if place is None else values[place]
            for place, result in zip(own, results, strict=True)
        ]
        return structured(ir.structure, returned)

    return finish


def _reader(operand: Operand, example: Any, device: Any) -> Callable[[Any], Any]:
    """How to turn an argument into a contiguous tensor on the device, itself if it is one.

    A tensor is where `example` is: devices are part of what a launch is found by (`KEYS`).
    """
    torch = bridge.torch()
    wide = operand.described.spec.dtype == "int64"
    if operand.described.home == "torch" and not wide and example.device == device:
        return torch.Tensor.contiguous

    def on_device(value: Any) -> Any:
        return value.to(device).contiguous()

    def narrowed(value: Any) -> Any:
        # the nearest int32: out of every array if the value was, and no wait for the device
        return on_device(value).clamp(INT32.min, INT32.max).to(torch.int32)

    def from_numpy(value: Any) -> Any:
        try:
            tensor = torch.from_numpy(np.ascontiguousarray(value))
        except TypeError as error:
            raise CallError(
                f"{operand.name} is a NumPy array that torch does not take: {error}",
                hint="pass a torch tensor",
            ) from None
        return narrowed(tensor) if wide else on_device(tensor)

    if operand.described.home == "numpy":
        return from_numpy
    return narrowed if wide else on_device


def _write_back(operand: Operand, value: Any, tensor: Any) -> None:
    """A copy was stored to, because the argument was elsewhere or not contiguous."""
    if operand.described.home == "numpy":
        bridge.writer("numpy")(operand.name, value, tensor.cpu().numpy())
    else:
        value.copy_(tensor)


def _verifying(check: Check, operands: Sequence[Operand]) -> Callable[[Values], None]:
    named = {o.name: o for o in operands}
    wanted = [named[name] for name in check.reads]
    return verifying(
        check, lambda values: [_on_host(o.name, values[o.place], o.described) for o in wanted]
    )


def _on_host(name: str, value: Any, described: Described) -> np.ndarray:
    array = bridge.host_array(name, value, described)
    return bridge.narrowed(name, array) if described.spec.dtype == "int64" else array
