"""emit(plan) -> Source: readable Pallas, the same text for the TPU and for the interpreter."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.types import Plan
from tilelang.codegen.source import Source

from .expressions import Printer
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
    lines: list[str] = []
    if any(launch.worklist for launch in plan.launches):
        lines += ["", "", *EXPAND]
    if any(launch.worklist and launch.table and launch.table.tracks for launch in plan.launches):
        lines += ["", "", *HELD]
    for launch, own in zip(plan.launches, names, strict=True):
        if launch.worklist:
            lines += ["", "", *print_worklist(Printer(launch, own), launch)]
        lines += ["", "", *print_kernel(plan, launch, own)]
    lines += ["", "", *print_host(plan, names)]
    return Source(_tidy([*_head(plan), *_imports(plan, lines), *lines]), plan.ir.name)


def _head(plan: Plan) -> list[str]:
    blocks = ", ".join(f"{name}={size}" for name, size in plan.blocks)
    text = f'"""{plan.ir.name} for {plan.target.name}'
    return [f'{text}, blocks {blocks}."""' if blocks else f'{text}."""', ""]


def _imports(plan: Plan, body: list[str]) -> list[str]:
    lines = ["import jax", "import jax.numpy as jnp"]
    if plan.launches:
        lines.append("from jax.experimental import pallas as pl")
    if any("pltpu." in line and not line.lstrip().startswith("#") for line in body):
        lines.append("from jax.experimental.pallas import tpu as pltpu")
    return lines


def _tidy(lines: list[str]) -> str:
    """No blank line before a dedent or at the end, never more than one inside a function."""
    out: list[str] = []
    for position, line in enumerate(lines):
        following = next((n for n in lines[position + 1 :] if n), None)
        if line:
            if out and not line.startswith(" ") and line.startswith("def "):
                while not out[-1]:
                    out.pop()
                out += ["", ""]
            out.append(line)
            continue
        if following is None:
            continue
        indent = len(following) - len(following.lstrip())
        if indent and (not out or not out[-1]):
            continue
        out.append(line)
    return "\n".join(out) + "\n"
