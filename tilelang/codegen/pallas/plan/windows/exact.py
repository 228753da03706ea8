"""Exact: tiles that begin where their range does, instead of at a block of the array.

A copy may begin at any row, and have any number of them, along a dimension that is not one of the
last two: those are laid out in tiles of registers.  Ranges then share no block, so that a range of
one block's length is one tile, where it would touch two blocks of the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.ir import KernelIR
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .types import ByRow, Key, Window


def begin_with_range(
    problem: Problem, config: Config, loop_type: str, axes: Mapping[str, AxisPlan]
) -> dict[str, AxisPlan]:
    """The axes, with tiles of every ragged one beginning where its range does.

    Raises Refused for a form that cannot have such tiles, and if no axis could.
    """
    ir = problem.ir
    tables = [a for a in axes.values() if a.place == "table"]
    tiles = [a.name for a in tables if a.block is not None and a.ragged]
    if not tiles:
        raise Refused(
            Rule.FORM,
            f"windows='exact', but no tiles of {ir.name} have a range that is read from memory",
            ir.loc,
            "leave windows out",
        )
    if loop_type != "outer_pipeline" or config.steps == "rectangle":
        other = "steps='rectangle'" if loop_type == "outer_pipeline" else f"loop_type={loop_type!r}"
        raise Refused(
            Rule.FORM,
            f"windows='exact' needs a pipeline over a table of steps, not {other}",
            ir.loc,
            "leave loop_type and steps out",
        )
    return {n: _exact(problem, a) if n in tiles else a for n, a in axes.items()}


def _exact(problem: Problem, axis: AxisPlan) -> AxisPlan:
    """The axis with such tiles; Refused if an array could not be cut there."""
    found = problem.uses(axis.name)
    sizes = {use.size for use in found}
    dims = "arrays at different offsets"
    if len(found) == len(problem.all_uses(axis.name)):
        if len(sizes) == 1:
            return replace(axis, owned=True, partial=True, begins=True, length=sizes.pop())
        dims = f"dimensions of {len(sizes)} lengths"
    raise Refused(
        Rule.FORM, f"windows='exact', but {axis.user} indexes {dims}", axis.loc, "leave windows out"
    )


def check_starts(ir: KernelIR, windows: Mapping[Key, Window]) -> None:
    """Refused for a block that would begin inside of a register tile."""
    for (tensor, _), window in windows.items():
        for dim in window.dims[-2:]:
            if isinstance(dim, ByRow):
                axis = ir.axis(dim.axis)
                raise Refused(
                    Rule.FORM,
                    f"windows='exact', but {axis.user} indexes one of the last two dimensions of "
                    f"{tensor}, where a block cannot begin at any position",
                    axis.loc,
                    "leave windows out, or put the ragged dimension first and two others behind it",
                )
