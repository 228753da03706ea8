"""emit(plan) -> Source: readable Pallas, the same text for the TPU and for the interpreter."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.reads import needs_tpu
from tilelang.codegen.pallas.plan.types import Plan
from tilelang.codegen.source import Source

from .expressions import Printer
from .functions import called_by
from .host import print_host
from .kernel import print_kernel
from .names import names_of
from .worklist import EXPAND, HELD, print_worklist

__all__ = ["emit"]


def emit(plan: Plan) -> Source:
    """Prints the plan as a Python module with one kernel function per launch and a host function.

    The text is deterministic: the same plan gives the same bytes in every process.
    """
    names = [names_of(plan, launch) for launch in plan.launches]
    lists = [launch.table for launch in plan.launches if launch.worklist]
    parts: list[list[str]] = []
    if lists:
        parts.append([*EXPAND.splitlines()])
    if any(table is not None and table.tracks for table in lists):
        parts.append([*HELD.splitlines()])
    parts += [[*text.splitlines()] for text in called_by(plan)]
    for launch, own in zip(plan.launches, names, strict=True):
        if launch.worklist:
            parts.append(print_worklist(Printer(launch, own)))
        parts.append(print_kernel(launch, own))
    parts.append(print_host(plan, names))
    body = [line for part in parts for line in ("", "", *part)]
    return Source(_tidy([*_head(plan), *body]), plan.ir.name)


def _head(plan: Plan) -> list[str]:
    blocks = ", ".join(f"{name}={size}" for name, size in plan.blocks)
    text = f'"""{plan.ir.name} for {plan.target.name}{", blocks " if blocks else ""}{blocks}."""'
    lines = [text, "", "import jax", "import jax.numpy as jnp"]
    if plan.launches:
        lines.append("from jax.experimental import pallas as pl")
    if any(map(needs_tpu, plan.launches)):
        lines.append("from jax.experimental.pallas import tpu as pltpu")
    return lines


def _tidy(lines: list[str]) -> str:
    """No blank line before a dedent or at the end, never more than one inside a function."""
    out: list[str] = []
    for position, line in enumerate(lines):
        if line.startswith("def "):
            while not out[-1]:
                out.pop()
            out += ["", ""]
        following = next((n for n in lines[position + 1 :] if n), None)
        if not line and (following is None or (following.startswith(" ") and not out[-1])):
            continue
        out.append(line)
    return "\n".join(out) + "\n"
