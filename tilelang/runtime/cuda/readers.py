"""reading(operand, ...) -> Flat: how an argument becomes a contiguous tensor on the device.

Itself if it is one: which it is, is part of what a launch is found by.  What a kernel stores to is
back in the argument after it (`write_back`), and is no memory that another argument is read from
(`apart`): as on the CPU, where all is read before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import bridge
from ..launch import TensorArgument
from ..written import Flat

INT32 = np.iinfo(np.int32)


def reading(operand: TensorArgument, here: bool, device: Any, given: str, array: str) -> Flat:
    """The line that makes `array` of the argument `given`; if `here` it is on the device."""
    dtype = operand.described.spec.dtype
    if here and dtype != "int64":
        if getattr(bridge.torch(), dtype).is_floating_point:  # others are never said negated
            given = f"({given}.resolve_neg() if {given}.is_neg() else {given})"
        return Flat((), (f"{array} = {given}.contiguous()",))
    read = f"_read_{operand.place}"
    return Flat((), (f"{array} = {read}({given})",), {read: _reader(operand, device)})


def apart(arrays: Sequence[str], stored: Sequence[str]) -> Flat:
    """The lines that copy what shares memory with an array that the kernel stores to.

    Of two that it stores to the later is copied: it is written back behind the other.
    """
    lines: list[str] = []
    for array, other in _pairs(arrays, stored):
        lines += f"if _overlap({array}, {other}):", f"    {other} = {other}.clone()"
    return Flat((), tuple(lines), {"_overlap": _overlap} if lines else {})


def _pairs(arrays: Sequence[str], stored: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(array that is stored to, another one)."""
    for n, array in enumerate(stored):
        yield from ((array, other) for other in arrays if other not in stored[: n + 1])


def _overlap(one: Any, other: Any) -> bool:
    """Whether two contiguous tensors have memory in common."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.nbytes and second < first + one.nbytes


def write_back(operand: TensorArgument, given: str, array: str) -> Flat:
    """The lines for what was stored to a copy: the argument was elsewhere or not contiguous.

    Where it was not, torch is told: autograd refuses what it saved before and finds changed.
    """
    write = f"_write_{operand.place}"
    lines = [f"if {array} is not {given}:", f"    {write}({given}, {array})"]
    names: dict[str, Any] = {write: partial(_write_back, operand)}
    if operand.described.home == "torch":
        lines += "else:", f"    _changed({given})"
        names["_changed"] = bridge.torch().autograd.graph.increment_version
    return Flat((), tuple(lines), names)


def _reader(operand: TensorArgument, device: Any) -> Callable[[Any], Any]:
    """How to turn an argument of another kind, or elsewhere, into a tensor on the device."""
    torch = bridge.torch()
    wide = operand.described.spec.dtype == "int64"

    def on_device(value: Any) -> Any:
        return value.resolve_neg().to(device).contiguous()

    def narrowed(value: Any) -> Any:
        # the nearest int32: out of every array if the value was, and no wait for the device
        return on_device(value).clamp(INT32.min, INT32.max).to(torch.int32)

    def from_numpy(value: Any) -> Any:
        tensor = bridge.numpy_to_torch(operand.described.spec.dtype, value)
        return narrowed(tensor) if wide else on_device(tensor)

    if operand.described.home == "numpy":
        return from_numpy
    return narrowed if wide else on_device


def _write_back(operand: TensorArgument, value: Any, tensor: Any) -> None:
    name, dtype = operand.name, operand.described.spec.dtype
    if operand.described.home == "numpy":
        bridge.writer("numpy")(name, value, bridge.torch_to_numpy(name, dtype)(tensor.cpu()))
    else:
        bridge.store_to_torch(name, value, tensor)
