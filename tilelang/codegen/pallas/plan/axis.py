"""Axis: where one loop of a kernel runs, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilelang.analysis.facts import AxisKind
from tilelang.errors import Loc
from tilelang.ir import Expr, GridIndex, Type, Var, integers

Place = Literal["single", "dim", "table", "inner", "stream", "within"]
Part = Literal[
    "begin", "end", "first", "stop", "start", "count", "rest", "runs", "seen", "step", "live", ""
]  # fmt: skip
Reason = Literal["reduction", "store"]
NONE = integers.const(0)


def line_name(axis: str, part: Part) -> Var:
    """A part of a range that has a line of its own.  No local of the author has such a name."""
    return Var(f"{axis}.{part}", integers.INT)


@dataclass(frozen=True)
class Line:
    """A part of what an axis visits, in a line of its own; without `part`, its index."""

    axis: str
    part: Part
    value: Expr

    @property
    def name(self) -> Var:
        """How the expressions behind it read it."""
        return line_name(self.axis, self.part)


@dataclass(frozen=True)
class Range:
    """The tiles (or indices) of a loop: first <= t < stop if `live` holds, else none.

    lines        parts that get a line each, in order
    first, stop  over those, inside the dimension whatever memory says
    live         None: first and stop are all
    last         the last index of an `hl.grid`, or the one before an empty range
    count        how many there are, of a loop that is a pipeline inside the step
    """

    lines: tuple[Line, ...] = ()
    first: Expr = NONE
    stop: Expr = NONE
    live: Expr | None = None
    last: Expr | None = None
    count: Expr | None = None


@dataclass(frozen=True)
class Side:
    """One comparison of a lane's position."""

    op: Literal[">=", "<"]
    bound: Expr


@dataclass(frozen=True)
class Mask:
    """The lanes of a tile that count are told from the others.

    reason  "reduction": other lanes would be counted in a sum, a product or the like;
            "store": other lanes belong to somebody else
    """

    axis: str
    reason: Reason = field(compare=False)  # the lanes are the same


@dataclass(frozen=True)
class LeftOut:
    """Some of what a load or store names is left out; the condition is the author's, or computed.

    reason  "user": the author says which; "array": a moved tile reaches past the array;
            "row": the block holds other rows; "blocks": the tile lies in two of its blocks;
            "picked": rows go where an index array says; "group": a group meets its own rows only;
            "turn": a step may have turns behind the last one
    """

    array: str
    reason: str


@dataclass(frozen=True)
class Tile:
    """What the tile is that a step is at.

    origin   the array position of its first lane
    runs     whether it holds a position of the range; for an index, whether it lies in it
    scalars  tile.begin and the others, in the author's positions
    sides    what the position of a lane meets that counts
    """

    origin: Expr = NONE
    runs: Expr = NONE
    scalars: tuple[tuple[str, Expr], ...] = ()
    sides: tuple[Side, ...] = ()

    def scalar(self, what: str) -> Expr:
        return dict(self.scalars)[what]


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
    limit   tiles that the indexed dimension has: every tile number is below it; UNBOUNDED for an
            index that counts along no dimension
    partial whether a tile may hold positions outside [begin, end)
    owned   whether every position of a tile that a step may write lies in [begin, end), so that a
            store needs no mask
    depends, rises, ragged, nonempty  as in AxisFact
    max_extent  positions or indices of a range, at most, as far as the author says
    begins  whether the first tile begins where the range does, whatever memory says, or is the only
            one
    length  of the dimension, where the first tile begins at `begin` and steps know tiles by their
            first row; None where tiles are blocks of the array
    near    of a loop inside the step whose first tile begins where its range does, rounded down to
            so many positions, and whose last one stays inside of the array
    reach   of such a loop, positions that the array has, where that is no number of tiles
    range   where the loop begins and stops, for every printer of it
    tile    what the tile of a step is, for every printer of it
    """

    name: str
    user: str
    kind: AxisKind
    why: str
    place: Place
    begin: Expr
    end: Expr
    loc: Loc
    first: int
    tiles: int | None
    limit: int
    max_extent: int | None = None
    depends: tuple[str, ...] = ()
    rises: tuple[str, ...] = ()
    ragged: bool = False
    nonempty: bool = True
    block: int | None = None
    shift: Expr | None = None
    base: Expr | None = None
    partial: bool = False
    owned: bool = True
    begins: bool = True
    length: int | None = None
    near: int | None = None
    reach: int | None = None
    range: Range = Range()
    tile: Tile = Tile()

    @property
    def made_of(self) -> tuple[Expr, ...]:
        """What its range, its first tile and the tiles of arrays beside its own are made of."""
        return tuple(e for e in (self.begin, self.end, self.base, self.shift) if e is not None)

    @property
    def counts(self) -> bool:
        """Whether its indices are known to be 0 or more."""
        low = integers.value_of(self.begin)
        return low is not None and low >= 0

    @property
    def size(self) -> int:
        """Positions in a tile, one for an index."""
        return self.block or 1

    @property
    def positions(self) -> int:
        """Those that the array has, in whole tiles where these are blocks of it."""
        return self.length or self.reach or self.limit * self.size

    @property
    def start(self) -> Expr:
        """The number of the first tile (or index) of a loop that is not ragged."""
        return integers.const(self.first) if self.base is None else self.base

    @property
    def number(self) -> Expr:
        """The number of the tile (or index) that a step is at."""
        return self.start if self.place == "single" else GridIndex(self.name)

    @property
    def reached(self) -> Expr:
        """Where tiles of a loop are that begin near its range, but for the end of the array."""
        return integers.add(line_name(self.name, "first"), integers.mul(self.number, self.size))

    @property
    def tiles_array(self) -> bool:
        """Whether it goes through tiles that are blocks of the array."""
        return self.block is not None and self.length is None


def extents(value: Type, axes: Mapping[str, AxisPlan]) -> tuple[int, ...]:
    """The shape in numbers."""
    return tuple(d if isinstance(d, int) else axes[d].block or 1 for d in value.shape)
