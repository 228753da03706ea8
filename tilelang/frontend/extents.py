"""limits(draft, expr) -> the least and the largest value of an index, from the ranges of loops.

for tq in hl.tile(L): for tk in hl.tile(0, tq.end)     at most L long, whatever tk indexes
"""

from __future__ import annotations

from functools import cache

from ..ir import Axis, Expr, GridIndex, TileScalar, Var
from ..ir.intervals import ANYTHING, Interval, interval
from .scope import Draft


def longest(draft: Draft, axis: Axis) -> int | None:
    """The largest extent of the axis in any iteration of the loops around it, if one is known."""
    length = limits(draft, axis.end)[1] - limits(draft, axis.begin)[0]
    return None if length == ANYTHING[1] else max(int(length), 0)


def limits(draft: Draft, expr: Expr) -> Interval:
    """What a scalar cannot be below and above, where the loops around it run."""

    @cache
    def leaf(part: Expr) -> Interval:
        match part:
            case Var(name) if name in draft.definitions:
                return interval(draft.definitions[name], leaf)
            case GridIndex(axis) | TileScalar(axis, "begin" | "end"):
                begin, end = (interval(e, leaf) for e in _range(draft.axes[axis]))
                last = end[1] if part == TileScalar(axis, "end") else end[1] - 1
                return begin[0], max(last, begin[0])
            case _:
                return ANYTHING

    return interval(expr, leaf)


def _range(axis: Axis) -> tuple[Expr, Expr]:
    return axis.begin, axis.end
