"""prepare(lowered, operands, ...) -> Launch: a lowered kernel as a function of argument values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping, Sequence
from typing import Any

from .checks import compile_checks
from .device import device_of, platform_of, refuse, target_of
from .launch import Launch, Operand, framework_of, launch
from .lowering import Lowered
from .program import on_cpu, program
from .tensors import Described

Programs = MutableMapping[Hashable, Callable[..., Any]]

__all__ = ["Launch", "Operand", "platform_of", "prepare", "screen", "target_of"]


def screen(kernel: str, operands: Sequence[Operand]) -> None:
    """CallError for arguments that no kernel could run on; looked at before anything compiles."""
    refuse(kernel, operands)
    framework_of(kernel, operands)


def prepare(
    lowered: Lowered,
    operands: Sequence[Operand],
    interpret: Any,
    checks: bool | None,
    programs: Programs,
) -> Launch:
    """The launch of one specialisation; `programs` keeps jitted functions for it and others.

    interpret  None: where the device needs it; True, False or pltpu.InterpretParams
    checks     None: if the values are on the host; True: also if they must be fetched; False: never
    """
    ir = lowered.ir
    framework = framework_of(ir.name, operands)
    platform = platform_of(o.described for o in operands)
    device = device_of(ir.name, lowered.target, platform, interpret, operands, lowered.plan.exact)
    key = (lowered.source, device)
    if key not in programs:
        names = tuple(o.name for o in operands)
        programs[key] = program(lowered.source.load(), ir.name, names, device)
    run = programs[key]
    if platform == "cpu" and framework != "jax":
        run = on_cpu(run)
    return launch(ir, operands, run, _check(lowered, operands, checks), framework)


def _check(lowered: Lowered, operands: Sequence[Operand], checks: bool | None) -> Any:
    check = None if checks is False else compile_checks(lowered.ir, lowered.facts.positions)
    if check is None:
        return None
    read = [o.described for o in operands if o.name in check.reads]
    return check if all(_readable(d, checks) for d in read) else None


def _readable(described: Described, checks: bool | None) -> bool:
    """Whether values can be looked at: on the host, or anywhere if that was asked for."""
    if described.home in ("traced", "shape"):
        return False
    return checks is True or described.device == "cpu"
