"""near_ranges(launch, ...) -> the launch whose loops inside of steps begin where their ranges do.

    offsets[g] is 40, tiles of 64 rows      |........|========|========|====....|    blocks
    from 40 // 16 * 16 on                        |.=======|========|===.....|        near the range

Ranges of memory begin anywhere, registers hold 8 rows or a multiple: rows in front of the range,
fewer than these, are left out like those behind it.  The last tile may not reach past the array:
it has rows again that the tile before it had, which are left out too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tilelang.ir import GridIndex, TileIndex, TileScalar, integers

from ..axis import AxisPlan
from ..lanes import with_tiles
from ..physical import Lane, Read, Step, TakeRows, Write, flat, parts_of
from ..steps.ranges import with_ranges
from ..types import Launch


def near_ranges(
    launch: Launch, axes: Collection[AxisPlan], refs: Collection[str], rows: int
) -> Launch:
    """Of those loops, the ones that only go through those blocks, which are whole arrays.

    rows  of a register
    """
    named = set(_named(launch, refs))
    near = {a.name: replace(a, near=rows) for a in axes if _may(a, rows) and a.name not in named}
    moved = {a.name: near.get(a.name, a) for a in launch.axes}
    made = with_tiles(with_ranges(moved))
    return launch.with_axes(made[n] for n in near)


def _may(axis: AxisPlan, rows: int) -> bool:
    """Whether masks leave out what lies around its range, and it may begin inside of a block."""
    masked = axis.ragged and axis.partial and not axis.owned
    return masked and integers.value_of(axis.begin) is None and axis.size % rows == 0


def _named(launch: Launch, refs: Collection[str]) -> Iterator[str]:
    """Loops of which something else is asked than which rows of these blocks are in range."""
    for axis in launch.axes:
        yield from axis.depends
    for stmt in (s for section in launch.sections for s in flat(section.body)):
        selects = stmt.select if isinstance(stmt, Write) and stmt.ref not in refs else ()
        for part in parts_of(stmt):
            match part:
                case TileIndex(name) | TileScalar(name) | GridIndex(name) | Lane(str(name)):
                    yield name
                case Read() | TakeRows() if part.ref not in refs:
                    selects += part.select
                case _:
                    pass
        yield from (s.axis for s in selects if isinstance(s, Step))
