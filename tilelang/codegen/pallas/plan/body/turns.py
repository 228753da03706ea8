"""turns_at_once(loop, axes) -> int: turns of a loop over single indices that are written in a row.

    for t in hl.grid(4096): h = a[t, :] * h + x[t, :]    16: what later ones read does not wait
                                                         for what earlier ones carry

By v6e's schedules that line takes 26.0 us for 4096 rows of 128 numbers turn by turn, 12.2 by eight
turns and 11.7 by 16; a delta rule of states [128, 128] takes 750, 323 and 303.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilelang.codegen.pallas.plan.axis import AxisPlan, extents
from tilelang.codegen.pallas.plan.physical import Inner, TakeRows, Write, parts_of
from tilelang.ir import Apply

HELPER = "turned_in_rows"  # function of the generated source, where no text has the number of turns
MOST = 16
NUMBERS = 1 << 20  # that so many turns compute at most: a program of some thousand instructions
REGISTER = (8, 128)  # a column of 4096 numbers fills 512 of them: 16 turns compile for minutes


def turns_at_once(loop: Inner, axes: Mapping[str, AxisPlan]) -> int:
    """1, but of a loop whose turns are many, and have no loops of their own."""
    axis, parts = axes[loop.axis], tuple(parts_of(loop))
    turns = axis.tiles if axis.tiles is not None else min(axis.max_extent or 1, axis.limit)
    inside = any(isinstance(s, Inner) or (isinstance(s, Write) and s.rows) for s in loop.body)
    plain = loop.form == "fori_loop" and axis.block is None and turns > 0
    if not plain or inside or any(isinstance(e, TakeRows) for e in parts):
        return 1
    each = sum(_held(extents(e.type, axes)) for e in parts if isinstance(e, Apply))
    most = max(1, min(MOST, NUMBERS // max(each, 1), turns))
    return 1 << most.bit_length() - 1


def _held(shape: tuple[int, ...]) -> int:
    """The numbers of the registers that a value fills."""
    *lead, rows, lanes = (1, 1, *shape)
    sides = zip((rows, lanes), REGISTER, strict=True)
    return prod(lead) * prod(-(-size // side) * side for size, side in sides)
