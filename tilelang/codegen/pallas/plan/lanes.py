"""Lanes: where a tile begins, which of its lanes count, what its begin, end and number are.

    for tm in hl.tile(offsets[g], offsets[g + 1])     tiles of 16

    origin   tm * 16              sides    position >= offsets[g] & position < offsets[g + 1]
    runs     max(offsets[g], tm * 16) < min(offsets[g + 1], tm * 16 + 16)

Every printer prints these: no other place turns an axis into positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, assert_never

from tilelang.ir import Apply, Expr, GridIndex, integers

from . import known
from .axis import AxisPlan, Side, Tile
from .steps.ranges import tiles_below, tiles_up_to

Axes = Mapping[str, AxisPlan]
Kind = Literal["begin", "end", "id", "count", "block_size"]


def with_tiles(axes: Axes) -> dict[str, AxisPlan]:
    """The axes with what their tiles are."""
    return {name: replace(axis, tile=_tile(axis, axes)) for name, axis in axes.items()}


def _sides(axis: AxisPlan) -> tuple[Side, ...]:
    """begin <= position < end; a side that no tile crosses is not compared."""
    block = axis.block or 1
    sides: list[Side] = []
    if axis.length is None and not _multiple(axis.begin, block):
        sides.append(Side(">=", axis.begin))
    if not _multiple(axis.end, block) or not sides:
        sides.append(Side("<", axis.end))
    return tuple(sides)


def _multiple(expr: Expr, block: int) -> bool:
    value = integers.value_of(expr)
    return value is not None and value % block == 0


def _tile(axis: AxisPlan, axes: Axes) -> Tile:
    kinds: tuple[Kind, ...] = ("begin", "end", "id", "count", "block_size")
    scalars = tuple((kind, _scalar(axis, kind)) for kind in kinds)
    return Tile(_origin(axis), _runs(axis, axes), scalars, _sides(axis))


def _number(axis: AxisPlan) -> Expr:
    """The number of the tile that the step is at."""
    return _first(axis) if axis.place == "single" else GridIndex(axis.name)


def _first(axis: AxisPlan) -> Expr:
    """The number of the first tile or index of a static loop."""
    return integers.const(axis.first) if axis.base is None else axis.base


def _origin(axis: AxisPlan) -> Expr:
    """The array position of the tile's first lane."""
    moves = axis.place != "single" or axis.base is not None
    by = 1 if axis.length is not None and moves else axis.block or 1
    return integers.mul(_number(axis), by)


def _stop(axis: AxisPlan) -> Expr:
    """The array position behind the tile's last lane."""
    return integers.add(_origin(axis), integers.const(axis.block or 1))


def _runs(axis: AxisPlan, axes: Axes) -> Expr:
    """The tile holds a position of the range; for an index, it lies in the range."""
    if axis.block is None or axis.length is not None:
        place = GridIndex(axis.name)  # an index, or the row that a tile begins with
        low = Apply("ge", (place, axis.begin), known.BOOL)
        high = Apply("lt", (place, axis.end), known.BOOL)
        return known.both((low, high), axes) or high
    return Apply("lt", (_later(axis, _origin(axis)), _earlier(axis, _stop(axis))), known.BOOL)


def _later(axis: AxisPlan, position: Expr) -> Expr:
    return Apply("maximum", (axis.begin, position), integers.INT)


def _earlier(axis: AxisPlan, position: Expr) -> Expr:
    return Apply("minimum", (axis.end, position), integers.INT)


def _scalar(axis: AxisPlan, kind: Kind) -> Expr:
    """begin, end, id, count and block_size of the tile, in the author's positions."""
    block = axis.block or 1
    whole = axis.tiles is not None and not axis.partial
    match kind:
        case "block_size":
            return integers.const(block)
        case "begin":
            sure = whole or axis.length is not None or _multiple(axis.begin, block)
            return _written(axis, _origin(axis) if sure else _later(axis, _origin(axis)))
        case "end":
            sure = whole or (axis.length is None and _multiple(axis.end, block))
            return _written(axis, _stop(axis) if sure else _earlier(axis, _stop(axis)))
        case "id" if axis.length is not None:
            return tiles_below(integers.sub(_origin(axis), axis.begin), block)
        case "count" if axis.length is not None:
            last = integers.add(axis.end, integers.const(block - 1))
            return tiles_below(integers.sub(last, axis.begin), block)
        case "count" if whole:
            return integers.const(axis.tiles or 0)
        case "id" | "count":
            first = _first(axis) if whole else tiles_below(axis.begin, block)
            here = _number(axis) if kind == "id" else tiles_up_to(axis.end, block)
            return integers.sub(here, first)
        case _:
            assert_never(kind)


def _written(axis: AxisPlan, position: Expr) -> Expr:
    """A position of the array as the author counts."""
    return position if axis.shift is None else integers.sub(position, axis.shift)
