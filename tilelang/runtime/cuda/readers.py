"""reading(operand, ...) -> Flat: how an argument becomes a contiguous tensor on the device.

Itself if it is one: which it is, is part of what a launch is found by.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...errors import CallError
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


def write_back(operand: TensorArgument, given: str, array: str) -> Flat:
    """The lines for what was stored to a copy: the argument was elsewhere or not contiguous."""
    write = f"_write_{operand.place}"
    lines = f"if {array} is not {given}:", f"    {write}({given}, {array})"
    return Flat((), lines, {write: partial(_write_back, operand)})


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


def _write_back(operand: TensorArgument, value: Any, tensor: Any) -> None:
    if operand.described.home == "numpy":
        bridge.writer("numpy")(operand.name, value, tensor.cpu().numpy())
    else:
        value.copy_(tensor)
