"""Where a call runs: the platform of its arguments, the target to plan for, and how to trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax.experimental.pallas import tpu as pltpu

from ..codegen.pallas.target import TARGETS, Target
from ..errors import CallError, PlanError
from .jax_compat import default_platform
from .launch import Operand
from .program import Device
from .tensors import Described

ALIASES = {"TPU v5e": "TPU v5 lite", "TPU v5p": "TPU v5", "TPU v6e": "TPU v6 lite"}
RUNS_ON = ("cpu", "tpu")


def platform_of(described: Iterable[Described]) -> str:
    """ "tpu" if an argument is there, else "cpu".

    Traced arguments have no device yet.  The default backend decides for them, because that is
    where the surrounding jit will run; `lax.platform_dependent` would trace two plans, one of which
    is illegal: a block that suits the CPU's small test sizes need not be one for the TPU.  To lower
    for a TPU on a machine without one, give target= and interpret=False.
    """
    devices = {default_platform() if d.home == "traced" else d.device for d in described}
    return "tpu" if "tpu" in devices else "cpu"


def refuse(kernel: str, operands: Sequence[Operand]) -> None:
    """CallError for arguments without data, or on a device that kernels do not run on."""
    for operand in operands:
        if operand.described.home == "shape":
            raise CallError(
                f"{operand.name} is a shape without data, and calling {kernel} needs the data",
                hint=f"{kernel}.source, .lower and .explain take shapes",
            )
        device = operand.described.device or default_platform()
        if device not in RUNS_ON:
            raise CallError(
                f"{operand.name} is on device {device!r}: this version runs kernels on CPU and TPU",
                hint="move the arguments to the CPU",
            )


def target_of(platform: str) -> Target:
    """The target of this machine's device of that platform."""
    if platform == "cpu":
        return Target.of("cpu")
    kind = jax.devices(platform)[0].device_kind
    kind = ALIASES.get(kind, kind)
    for known in TARGETS.values():
        if known.device_kind == kind and known.name != "cpu":
            return known
    raise PlanError(
        f"this machine's {kind} is not a known target",
        hint=f"give target=, one of {', '.join(map(repr, TARGETS))}",
    )


def device_of(
    kernel: str,
    target: Target,
    platform: str,
    interpret: Any,
    operands: Sequence[Operand],
    strict: bool = False,
) -> Device:
    """How to trace and run generated code; `interpret=None` interprets wherever it must.

    strict  only Pallas's TPU interpreter can run the code, which is slower by orders of magnitude
    """
    chosen = platform != "tpu" if interpret is None else interpret
    traced = any(o.described.home == "traced" for o in operands)
    if chosen is False and platform == "cpu" and not traced:
        raise CallError(
            f"{kernel} was made with interpret=False, and its arguments are on the CPU",
            hint="leave interpret out: the CPU interprets, the TPU runs compiled code",
        )
    if strict and chosen is True:
        chosen = pltpu.InterpretParams()
    present = platform == "tpu" and chosen is False
    return Device(target.device_kind, target.cores, chosen, present)
