"""Ranges: where every loop begins and stops, as scalar expressions that no offsets break.

    for tm in hl.tile(offsets[g], offsets[g + 1])    over 64 rows in tiles of 16

    begin = max(offsets[g], 0), end = min(offsets[g + 1], 64)
    first = begin // 16, stop = (end + 15) // 16, live: end > begin

Every printer of a loop prints these: no other place turns a range into tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelang.codegen.pallas.plan import clamps
from tilelang.codegen.pallas.plan.axis import AxisPlan, Line, Part, Range
from tilelang.codegen.pallas.plan.physical import Tiles, scalar
from tilelang.ir import Apply, Const, Expr, integers

Axes = Mapping[str, AxisPlan]
UNBOUNDED = 2**31 - 1  # the limit of an index that counts along no dimension


def with_ranges(axes: Axes) -> dict[str, AxisPlan]:
    return {n: replace(a, range=_closed(a, _range(a, axes))) for n, a in axes.items()}


def _closed(axis: AxisPlan, found: Range) -> Range:
    """A loop inside the step runs from first to stop, whether the range is live or not."""
    if found.live is None or axis.place not in ("inner", "stream", "within"):
        return found
    lines = [*found.lines]
    stop = Apply("where", (found.live, found.stop, found.first), integers.INT)
    stop = _line(axis, "stop", stop, lines)
    return replace(found, lines=tuple(lines), stop=stop, live=None)


def swept(axis: AxisPlan) -> Range:
    """Every tile of the dimension."""
    return Range((), integers.const(0), integers.const(axis.limit))


def stand_in(axis: AxisPlan) -> Expr:
    """Where the step is that an empty range gets all the same: a tile that exists."""
    first = axis.range.first
    return clamps.at_most(first, axis.limit - 1, {}) if axis.tiles_array else first


def _range(axis: AxisPlan, axes: Axes) -> Range:
    if axis.tiles is not None:
        return Range((), axis.start, integers.add(axis.start, integers.const(axis.tiles)))
    return _of_indices(axis, axes) if axis.block is None else _of_tiles(axis, axis.block, axes)


def _of_indices(axis: AxisPlan, axes: Axes) -> Range:
    """The range of an `hl.grid`: every index of it is a position of the dimension."""
    most, limit, begin = axis.max_extent or 1, axis.limit, axis.begin
    if limit < UNBOUNDED:
        begin = clamps.at_most(clamps.at_least(begin, 0, axes), limit - 1, axes)
    lines: list[Line] = []
    first, fixed = _line(axis, "first", begin, lines), integers.value_of(begin)
    if fixed is not None:
        limit = min(limit, fixed + most)
    end = stop = clamps.at_most(axis.end, limit, axes) if limit < UNBOUNDED else axis.end
    if fixed is None:
        stop = integers.minimum(end, integers.add(first, integers.const(most)))
    last = clamps.at_least(integers.sub(end, integers.const(1)), 0, axes)
    return Range(tuple(lines), first, stop, clamps.more(end, axis.begin, axes), last)


def _of_tiles(axis: AxisPlan, block: int, axes: Axes) -> Range:
    lines: list[Line] = []
    begin = _line(axis, "begin", clamps.at_least(axis.begin, 0, axes), lines)
    end = _line(axis, "end", clamps.at_most(axis.end, axis.positions, axes), lines)
    live = clamps.compare("gt", end, begin)
    if axis.length is not None:  # steps count from the row that the range begins with
        stop = tiles_up_to(integers.sub(end, begin), block)
        return Range(tuple(lines), integers.const(0), stop, live)
    first = tiles_below(begin, axis.near or block)
    if axis.near is not None:  # steps count from the tile that the range begins in
        first = _line(axis, "first", integers.mul(first, axis.near), lines)
        stop = tiles_up_to(integers.sub(end, first), block)
        return Range(tuple(lines), integers.const(0), stop, live)
    first = _line(axis, "first", first, lines)
    return Range(tuple(lines), first, tiles_up_to(end, block), live)


def _line(axis: AxisPlan, part: Part, expr: Expr, lines: list[Line]) -> Expr:
    """The name of an expression that gets a line; a number needs none."""
    if isinstance(expr, Const):
        return expr
    lines.append(Line(axis.name, part, expr))
    return lines[-1].name


def tiles_below(position: Expr, block: int) -> Expr:
    """Whole tiles below a position, which is not negative."""
    value = integers.value_of(position)
    if value is not None:
        return integers.const(value // block)
    if block == 1:
        return position
    return scalar(Tiles(position, block))


def tiles_up_to(position: Expr, block: int) -> Expr:
    """Tiles that cover the positions below this one."""
    return tiles_below(integers.add(position, integers.const(block - 1)), block)
