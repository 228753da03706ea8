"""Clamps and comparisons, without those that cannot matter: scalar expressions have bounds.

max(tk * 256, 0) is tk * 256;  min(a, 64) > 0 is a > 0;  lane >= 0 always holds
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tilelang.ir import Apply, Expr, GridIndex, TileScalar, Type, integers
from tilelang.ir.intervals import ANYTHING, Interval, interval

from .types import AxisPlan, Lane

Axes = Mapping[str, AxisPlan]
BOOL = Type((), "bool")


def compare(op: str, left: Expr, right: Expr | int) -> Apply:
    """A comparison of scalars."""
    return Apply(op, (left, integers.const(right) if isinstance(right, int) else right), BOOL)


def bounds(expr: Expr, axes: Axes) -> Interval:
    """The smallest and the largest value that an expression may have."""

    def leaf(part: Expr) -> Interval:
        match part:
            case GridIndex(name):
                return _index(axes[name])
            case TileScalar(name, "begin" | "end" as edge):
                return _edge(axes[name], edge, axes)
            case Lane(name):
                return (0, math.inf) if name is None else _position(axes[name])
            case _:
                return ANYTHING

    return interval(expr, leaf)


def at_least(expr: Expr, low: int, axes: Axes) -> Expr:
    """max(expr, low)"""
    return expr if bounds(expr, axes)[0] >= low else integers.maximum(expr, low)


def at_most(expr: Expr, high: int, axes: Axes) -> Expr:
    """min(expr, high)"""
    return expr if bounds(expr, axes)[1] <= high else integers.minimum(expr, high)


def more(left: Expr, right: Expr, axes: Axes) -> Expr:
    """left > right, without terms of a minimum that are more in any case."""
    top = bounds(right, axes)[1]
    while isinstance(left, Apply) and left.op == "minimum":
        open_terms = [term for term in left.args if bounds(term, axes)[0] <= top]
        if len(open_terms) != 1:
            break
        left = open_terms[0]
    return compare("gt", left, right)


def holds(condition: Expr, axes: Axes) -> bool:
    """Whether a comparison is true in any case."""
    if not (isinstance(condition, Apply) and condition.op in ("ge", "lt", "gt")):
        return False
    (left, right), op = condition.args, condition.op
    (low, high), (least, most) = bounds(left, axes), bounds(right, axes)
    return {"ge": low >= most, "lt": high < least, "gt": low > most}[op]


def both(conditions: Iterable[Expr], axes: Axes) -> Expr | None:
    """All of the conditions, without those that always hold; None if all of them do."""
    left = None
    for condition in conditions:
        if not holds(condition, axes):
            left = condition if left is None else Apply("logical_and", (left, condition), BOOL)
    return left


def _index(axis: AxisPlan) -> Interval:
    """Numbers of a grid index or tile; a step that stands for an empty range has one of them too.

    A tile that begins with its range is known by its first row instead.
    """
    if axis.length is not None:
        return 0, math.inf
    if axis.tiles is not None and axis.base is None:
        return axis.first, axis.first + max(axis.tiles, 1) - 1
    return 0, max(axis.limit, 1) - 1


def _position(axis: AxisPlan) -> Interval:
    """Positions of a tile's lanes, in arrays."""
    low, high = _index(axis)
    return low * axis.size, (high + 1) * axis.size - 1


def _edge(axis: AxisPlan, what: str, axes: Axes) -> Interval:
    """begin or end of a tile, which the range cuts."""
    if axis.shift is not None:
        return ANYTHING
    low, high = _position(axis)
    if axis.tiles is not None and not axis.partial:
        return (low, high + 1 - axis.size) if what == "begin" else (low + axis.size, high + 1)
    if what == "begin":
        return max(low, bounds(axis.begin, axes)[0]), math.inf
    return min(low + 1, bounds(axis.end, axes)[0]), high + 1
