"""Which GPU a call is for, and which arguments cannot go there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...codegen.triton.target import TARGETS, Target
from ...errors import CallError, PlanError
from .. import bridge
from ..launch import TensorArgument, refuse_shape

INTERPRET = "TRITON_INTERPRET"  # Triton reads it when it is imported


def interprets() -> bool:
    """Whether Triton of this process interprets kernels, on tensors of the CPU."""
    return os.environ.get(INTERPRET, "") not in ("", "0")


def place_of(
    kernel: str, operands: Sequence[TensorArgument], values: Sequence[Any], target: Any
) -> Any:
    """The torch device of a call; CallError for arguments that are not all there."""
    tensors = [(o.name, values[o.place]) for o in operands if o.described.home == "torch"]
    for operand in operands:
        refuse_shape(kernel, operand)
    there = [(name, value) for name, value in tensors if value.device.type == "cuda"]
    if not there and interprets():
        return bridge.torch().device("cpu")
    if not there:
        raise CallError(
            f"{kernel} is planned for {target}, and none of its arguments is on a GPU",
            hint=f"move them with .cuda(), or set {INTERPRET}=1 before Python starts, to run it in "
            "Triton's interpreter",
        )
    first, at = there[0]
    for name, value in tensors:
        if value.device != at.device and value.dim():
            raise CallError(
                f"{name} is on {value.device}, and {first} on {at.device}",
                hint=f"move it: {name}.to({first}.device)",
            )
    return at.device


def target_of(device: Any) -> Target:
    """The target of torch's GPU."""
    major, minor = bridge.torch().cuda.get_device_capability(device)
    return of_capability(str(device), f"{major}.{minor}")


def of_capability(device: str, capability: str) -> Target:
    """The target of a GPU: of its compute capability."""
    name = f"cuda:sm{capability.replace('.', '')}"
    if name not in TARGETS:
        raise PlanError(
            f"{device} has compute capability {capability}, which is not a known target",
            hint=f"give target=, one of {', '.join(map(repr, TARGETS))}, to plan as for that one",
        )
    return TARGETS[name]
