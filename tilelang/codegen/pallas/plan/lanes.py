"""Lanes: where a tile begins, which of its lanes count, what its begin, end and number are.

    for tm in hl.tile(offsets[g], offsets[g + 1])     tiles of 16

    origin   tm * 16              sides    position >= offsets[g] & position < offsets[g + 1]
    runs     max(offsets[g], tm * 16) < min(offsets[g + 1], tm * 16 + 16)

Every printer prints these: no other place turns an axis into positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, assert_never, get_args

from tilelang.ir import Apply, Expr, GridIndex, integers

from . import clamps
from .axis import AxisPlan, Side, Tile
from .steps.ranges import tiles_below, tiles_up_to

Axes = Mapping[str, AxisPlan]
Kind = Literal["begin", "end", "id", "count", "block_size"]


def with_tiles(axes: Axes) -> dict[str, AxisPlan]:
    """The axes with what their tiles are."""
    return {name: replace(axis, tile=_tile(axis, axes)) for name, axis in axes.items()}


def _tile(axis: AxisPlan, axes: Axes) -> Tile:
    scalars = tuple((kind, _scalar(axis, kind)) for kind in get_args(Kind))
    return Tile(_origin(axis), _runs(axis, axes), scalars, _sides(axis))


def _sides(axis: AxisPlan) -> tuple[Side, ...]:
    """begin <= position < end; a side that no tile crosses, and none is behind, is not compared.

    The last tile before the end of the array may have rows again that the one before it had.  Of a
    range that memory holds steps may be at any tile of the array: all of them are to be filled.
    """
    sides: list[Side] = []
    if axis.near is not None:
        return Side(">=", _later(axis, axis.reached)), Side("<", axis.end)
    low, high = (0, axis.limit * axis.size) if axis.tiles is None else (None, None)
    if axis.length is None and not _clear(axis.begin, axis.size, low):
        sides.append(Side(">=", axis.begin))
    if not _clear(axis.end, axis.size, high) or not sides:
        sides.append(Side("<", axis.end))
    return tuple(sides)


def _clear(edge: Expr, block: int, outermost: int | None) -> bool:
    """Whether an end of a range is between two tiles; that of the array, if it is given."""
    value = integers.value_of(edge)
    return value == outermost if outermost is not None else _multiple(edge, block)


def _multiple(expr: Expr, block: int) -> bool:
    value = integers.value_of(expr)
    return value is not None and value % block == 0


def _origin(axis: AxisPlan) -> Expr:
    """The array position of the tile's first lane."""
    if axis.near is not None:
        return integers.minimum(axis.reached, integers.const(axis.positions - axis.size))
    moves = axis.place != "single" or axis.base is not None
    return integers.mul(axis.number, 1 if axis.length is not None and moves else axis.size)


def _stop(axis: AxisPlan) -> Expr:
    """The array position behind the tile's last lane."""
    return integers.add(_origin(axis), integers.const(axis.size))


def _runs(axis: AxisPlan, axes: Axes) -> Expr:
    """The tile holds a position of the range; for an index, it lies in the range."""
    if axis.tiles_array:
        return clamps.compare("lt", _later(axis, _origin(axis)), _earlier(axis, _stop(axis)))
    place = GridIndex(axis.name)  # an index, or the row that a tile begins with
    low, high = clamps.compare("ge", place, axis.begin), clamps.compare("lt", place, axis.end)
    return clamps.both((low, high), axes) or high


def _later(axis: AxisPlan, position: Expr) -> Expr:
    return Apply("maximum", (axis.begin, position), integers.INT)


def _earlier(axis: AxisPlan, position: Expr) -> Expr:
    return Apply("minimum", (axis.end, position), integers.INT)


def _scalar(axis: AxisPlan, kind: Kind) -> Expr:
    """begin, end, id, count and block_size of the tile, in the author's positions."""
    whole = axis.tiles is not None and not axis.partial
    match kind:
        case "block_size":
            return integers.const(axis.size)
        case "begin":
            sure = whole or axis.length is not None or _multiple(axis.begin, axis.size)
            return _written(axis, _origin(axis) if sure else _later(axis, _origin(axis)))
        case "end":
            sure = whole or (axis.length is None and _multiple(axis.end, axis.size))
            return _written(axis, _stop(axis) if sure else _earlier(axis, _stop(axis)))
        case "id" if axis.length is not None:
            return tiles_below(integers.sub(_origin(axis), axis.begin), axis.size)
        case "count" if axis.length is not None:
            return tiles_up_to(integers.sub(axis.end, axis.begin), axis.size)
        case "count" if whole:
            return integers.const(axis.tiles or 0)
        case "id" | "count":
            first = axis.start if whole else tiles_below(axis.begin, axis.size)
            here = axis.number if kind == "id" else tiles_up_to(axis.end, axis.size)
            return integers.sub(here, first)
        case _:
            assert_never(kind)


def _written(axis: AxisPlan, position: Expr) -> Expr:
    """A position of the array as the author counts."""
    return position if axis.shift is None else integers.sub(position, axis.shift)
