"""Blocks that come back: of ranges that may overlap, rows of the table return to tiles left before.

    for t in hl.tile(starts[g], starts[g] + lengths[g])      tiles of 128 rows

    ranges  [0, 300)   [200, 260)   [500, 512)
    tiles    0  1  2    1  2         3
    below    0  1  2    3  3         3          every tile below it was shown by a row before

A block goes to its array when the next row shows another one, and that copy has landed when the
next row is done.  So it is there in the second row behind, the first one that can show the block
again, whose step reads it from the array: later ranges have the last word, as in the loops.
"""

from __future__ import annotations

from tilelang.codegen.pallas.plan.clamps import compare
from tilelang.codegen.pallas.plan.physical import Recorded, scalar
from tilelang.codegen.pallas.plan.types import SHORT, Back, ByTile, Window, extent_of
from tilelang.ir import Expr, GridIndex
from tilelang.ir.integers import add, const, maximum

from .loops import before, where
from .moves import Order, follows, owns
from .names import COUNT, STEP


def comes_back(window: Window, order: Order) -> str | None:
    """The column whose tiles may show a block again, after others; None if more than it might.

    Every loop around the table has blocks of its own, and blocks are whole but for the last tile.
    """
    moving = [a for a in order.columns if a in window.axes]
    if len(moving) != 1 or order.phases or not window.axes.isdisjoint(order.trailing):
        return None
    (axis,) = moving
    if not any(a in order.columns for a in order.around(axis)):  # one range alone
        return None
    plan = order.axes[axis]
    plain = plan.base is None and plan.length is None and plan.near is None and plan.tiles_array
    if not plain or not all(owns(window, a, order.axes) for a in order.outward):
        return None
    each = zip(window.dims, window.shape, window.numbers, strict=True)
    for place, (dim, size, number) in enumerate(each):
        block = extent_of(dim)
        if isinstance(dim, ByTile) and dim.axis == axis:
            last = place == len(window.dims) - 1  # its registers are longer than SHORT
            if dim.over or not follows(number, plan) or (last and size % dim.block):
                return None
        elif block is not None and size % block:
            return None
    return axis


def noted(axis: str) -> tuple[str, Expr]:
    """What rows note: the tile below which every one was shown by a row before."""
    name = f"{axis}.below"
    latest = maximum(before(name), add(before(axis), const(1)))
    return name, where(compare("gt", COUNT, 0), latest, const(0))


def returns(window: Window, order: Order) -> tuple[Back, ...]:
    """In which of the first visits of a block it is read from its array: whole blocks, the last."""
    axis = window.again
    assert axis is not None
    name, _ = noted(axis)
    shown = GridIndex(axis)
    again = compare("lt", shown, scalar(Recorded(name, STEP)))
    place = next(d for d, dim in enumerate(window.dims) if axis in _axes(dim))
    size, block = window.shape[place], order.axes[axis].size
    if size % block == 0:
        return (Back(window.ref, (again,), place, block),)
    unit = SHORT if place == len(window.dims) - 2 else 1
    last, rest = size // block, min(-(-(size % block) // unit) * unit, block)
    inside, behind = compare("lt", shown, last), compare("ge", shown, last)
    return Back(window.ref, (again, inside), place, block), Back(
        window.ref, (again, behind), place, rest
    )


def _axes(dim: object) -> tuple[str, ...]:
    return (dim.axis,) if isinstance(dim, ByTile) else ()
