"""Rows of iterations inside of the step that lie in one register tile, whose block is enough."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.ir import Expr, GridIndex, integers


def first_row(axes: Mapping[str, AxisPlan], position: Expr, rows: int) -> Expr | None:
    """The position of the first iteration of the loops inside of the step.

    None unless all iterations have theirs among the same `rows`: of `4 * b + h` with h from 0 to 3,
    4 * b is a multiple of 4, so that eight rows hold the positions of all h.
    """
    terms, number = integers.linear(position, integers.anything) or ({}, 0)
    counted = {e: times for e, times in terms.items() if counted_inside(axes, e)}
    around = {e: times for e, times in terms.items() if e not in counted}
    span = 0
    for part, times in counted.items():
        axis = axes[part.axis] if isinstance(part, GridIndex) else None
        if axis is None or axis.tiles is None or times < 0:
            return None
        number += times * axis.first
        span += times * (axis.tiles - 1)
    step = math.gcd(rows, *around.values())
    return integers.total(around, number) if number % step + span < step else None


def counted_inside(axes: Mapping[str, AxisPlan], expr: Expr) -> bool:
    """Whether a position goes by loops inside of the step."""
    return any(axes[a].place in ("inner", "within") for a in integers.axes(expr))
