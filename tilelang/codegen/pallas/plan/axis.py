"""Axis: where one loop of a kernel runs, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilelang.analysis.facts import AxisKind
from tilelang.errors import Loc
from tilelang.ir import Expr

Place = Literal["single", "dim", "table", "inner", "stream", "within"]


@dataclass(frozen=True)
class AxisPlan:
    """Where a loop axis runs and which positions its tiles cover.

    place   single: one tile, no loop; dim: a grid dimension; table: a column of the step table;
            inner: a loop inside the step over blocks that are there; stream: a loop inside the
            step that is a pipeline of its own over blocks of arrays; within: every step runs all
            iterations of the loop, on blocks that hold all of its positions
    block   positions in a tile; None for `hl.grid`
    begin, end  the range in positions of the arrays it indexes (shift included)
    shift   array position - tile.index, when accesses are `start + tile.index`
    first   number of the first tile (or index) when the range is static
    base    number of the first tile where the range moves with outer indices; `first` is 0 then
    tiles   how many tiles or indices, when static
    limit   tiles that the indexed dimension has: every tile number is below it
    partial whether a tile may hold positions outside [begin, end)
    owned   whether every position of a tile that a step may write lies in [begin, end), so that a
            store needs no mask
    length  of the dimension, where the first tile begins at `begin` and steps know tiles by their
            first row; None where tiles are blocks of the array
    """

    name: str
    user: str
    kind: AxisKind
    why: str
    place: Place
    block: int | None
    begin: Expr
    end: Expr
    shift: Expr | None
    first: int
    tiles: int | None
    limit: int
    partial: bool
    owned: bool
    nonempty: bool
    loc: Loc
    length: int | None = None
    base: Expr | None = None
