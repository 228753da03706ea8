"""Lane index: the value of an index expression at one lane of its tile, as a scalar expression.

    table[idx[tm] // 2, :]   ->   lane i picks row `idx[tm * block + i] // 2`

Indices lie in scalar memory, so every row is named by a scalar expression of its lane.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from tilelang import ir
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.clamps import at_most, both, bounds, compare
from tilelang.codegen.pallas.plan.physical import Lane, scalar
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.codegen.pallas.plan.windows.unaligned import shift
from tilelang.errors import Loc
from tilelang.ir import integers, map_children
from tilelang.ir.integers import INT
from tilelang.language.op import ELEMENTWISE
from tilelang.schedule.refusal import Refused, Rule


def lane_of(arrays: Arrays, expr: ir.Expr, loc: Loc | None) -> ir.Expr:
    """The value of a rank-1 integer expression at one lane of its tile, as a scalar expression."""
    axes = arrays.axes

    def lane(part: ir.Expr) -> ir.Expr:
        return lane_of(arrays, part, loc)

    match expr:
        case ir.Const() | ir.GridIndex() | ir.TileScalar():
            return expr
        case ir.TileIndex(axis):
            return _position(axes[axis], None)
        case ir.Apply("add", (ir.TileIndex(axis), offset)) if offset == axes[axis].shift:
            return lane_position(axis)
        case ir.Load() if expr.tensor in arrays.scalars:
            pairs = zip(expr.index, arrays.ir.tensor(expr.tensor).shape, strict=True)
            index = tuple(ir.At(_place(arrays, entry, size, loc)) for entry, size in pairs)
            value: ir.Expr = ir.Load(expr.tensor, index, _scalar(expr.type), loc=expr.loc)
            if expr.mask is None:
                return value
            other = ir.Const(expr.other, _scalar(expr.type))
            return ir.Apply("where", (lane(expr.mask), value, other), _scalar(expr.type))
        case ir.Apply("in_range"):
            sides = lane_in_range(axes[str(expr.attr("axis"))])
            return both(sides, axes) or sides[1]
        case ir.Apply("arange"):
            step = ir.Const(int(expr.attr("step", 1)), INT)
            start = ir.Const(int(expr.attr("start", 0)), INT)
            scaled = ir.Apply("mul", (lane_position(None), step), INT)
            return integers.add(scaled, start)
        case ir.Apply("broadcast" | "expand_dims", (value,)):
            return lane(value)
        case ir.Apply("full") if not expr.args:
            return ir.Const(expr.attr("value"), _scalar(expr.type))
        case ir.Apply(op) if op in ELEMENTWISE:
            return replace(map_children(expr, lane), type=_scalar(expr.type))
        case _:
            raise Refused(
                Rule.FORM,
                "rows are picked, and masked, by numbers that are loaded, constant or computed of "
                "those, and what says so has more in it",
                getattr(expr, "loc", None) or loc,
                "store what says so to a tensor in a loop of its own before this one",
            )


def lane_position(axis: str | None) -> ir.Expr:
    """The position of a lane along an axis; without one, the number of the lane."""
    return scalar(Lane(axis))


def _position(axis: AxisPlan, offset: ir.Expr | None) -> ir.Expr:
    """Where a lane is in an array that lies by `offset` behind the tile's own positions."""
    behind, lane = shift(axis, offset), lane_position(axis.name)
    return lane if behind is None else integers.add(lane, behind)


def _scalar(value: ir.Type) -> ir.Type:
    return ir.Type((), "int32" if value.dtype == "int64" else value.dtype)


def lane_in_range(axis: AxisPlan) -> tuple[ir.Expr, ir.Expr]:
    """Whether a lane lies in the range of its loop."""
    position = lane_position(axis.name)
    return compare("ge", position, axis.begin), compare("lt", position, axis.end)


def _place(arrays: Arrays, entry: ir.Index, size: int, loc: Loc | None) -> ir.Expr:
    """The position in an index array, which is never outside of it."""
    match entry:
        case ir.Along(axis, offset):
            position = _position(arrays.axes[axis], offset)
            if position == lane_position(axis):
                return at_most(position, size - 1, arrays.axes)
            return integers.clamped(position, size)
        case ir.Span(start):
            return integers.add(lane_position(None), integers.const(start))
        case ir.At(expr) | ir.Gather(expr):
            inner = lane_of(arrays, expr, loc)
            low, high = bounds(inner, arrays.axes)
            inside = isinstance(inner, ir.Const | ir.GridIndex) or (low >= 0 and high < size)
            return inner if inside else integers.clamped(inner, size)
        case _:
            assert_never(entry)
