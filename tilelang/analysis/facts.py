"""Facts: what is true of a kernel, whatever the device.  Data only; `str` of it is a page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Literal

from ..errors import Loc
from ..ir import Along, Expr
from ..ir.text import expression, position

AxisKind = Literal["parallel", "ordered"]


@dataclass(frozen=True)
class AxisFact:
    """What is known of one loop axis.

    kind       parallel: iterations may run in any order; ordered: they may not
    why        the sentence that says why; used verbatim in explain(), errors and comments
    carries    user names of the values that are passed from one iteration to the next
    depends    outer axes that begin or end depend on (through loads too)
    ragged     begin or end is read from memory or depends on an outer axis
    rises      outer axes over each of which its positions rise and never overlap, given that the
               offsets are sorted (ranges [offsets[g], offsets[g + 1])): those that were proved.
               Of `y[start + t.index] = v` these are the ranges moved by start
    nonempty   proved to run at least once whenever the enclosing loops run
    limit      of hl.grid: what the plan keeps the index below, whatever was read from memory
    rests      tensors on whose being sorted it rests that the axis is parallel
    meets      iterations may touch elements that others store: not only what is carried orders them
    independent  parallel, and proved so for iterations with different enclosing indices too: the
               axis may be moved outside of the loops around it
    """

    name: str
    kind: AxisKind
    why: str
    carries: tuple[str, ...]
    depends: tuple[str, ...]
    ragged: bool
    rises: tuple[str, ...]
    nonempty: bool
    meets: bool = False
    independent: bool = False
    limit: int | None = None
    rests: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = {
            "ragged": self.ragged,
            f"depends on {_listed(self.depends)}": self.depends,
            f"ranges disjoint over {_listed(self.rises)}": self.rises,
            "may be empty": not self.nonempty,
            f"index kept below {self.limit}": self.limit is not None,
            "may move outside of the loops around it": self.independent,
        }
        lines = [f"{self.name}: {self.kind}, because {self.why}"]
        said = [words for words, holds in known.items() if holds]
        if said:
            lines.append(f"    {'; '.join(said)}")
        if self.carries:
            lines.append(f"    carries {_listed(self.carries)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class PositionFact:
    """Whether a scalar index lies in a dimension of `size` positions.

    kind   proved: in every step, whatever tensors hold; refused: it certainly leaves the dimension;
           dynamic: neither, so that loads are clamped and stores left out where it does
    why    the numbers that this rests on
    hint   what to write instead, where it is refused
    """

    expr: Expr
    size: int
    kind: Literal["proved", "dynamic", "refused"]
    why: str
    hint: str
    loc: Loc | None

    def __str__(self) -> str:
        return f"{expression(self.expr)} of {self.size}: {self.kind}, {self.why}"


@dataclass(frozen=True)
class Counted:
    """The number of a tile, times a factor, in a position; the axis has `length` positions."""

    axis: str
    user: str
    factor: int
    length: int

    def tiles(self, block: int) -> int:
        return -(-self.length // block)


@dataclass(frozen=True)
class NumberFact:
    """A position in a dimension that counts tiles, of blocks that are the plan's.

    counts       numbers of tiles, which the position is the sum of
    first, last  and what else is added to them: at least, at most
    sure         whether all of those tiles certainly are there
    """

    counts: tuple[Counted, ...]
    first: int
    last: int
    size: int
    place: str
    why: str
    sure: bool
    loc: Loc | None

    def holds(self, blocks: Mapping[str, int]) -> bool:
        """Whether every tile has a place."""
        ends = [c.factor * (c.tiles(blocks[c.axis]) - 1) for c in self.counts]
        low, high = (sum(f(e, 0) for e in ends) for f in (min, max))
        return self.first + low >= 0 and self.last + high < self.size

    @property
    def side(self) -> str:
        """What holds of a position with a place, where more tiles have none."""
        return f"< {self.size}" if any(c.factor > 0 for c in self.counts) else ">= 0"

    def least(self) -> int | None:
        """The smallest block that does, where it is about one."""
        axes = {c.axis: c.length for c in self.counts}
        if len(axes) > 1:
            return None
        ((axis, length),) = axes.items()
        sizes = range(1, length + 1)
        return 1 + bisect_left(sizes, True, key=lambda block: self.holds({axis: block}))

    def __str__(self) -> str:
        return f"{', '.join(c.axis for c in self.counts)}: {self.why}"


@dataclass(frozen=True)
class StoreFact:
    """What is known of one store.

    varies  tile axes around it that neither the index nor a carry depends on, although the value
            depends on which positions one of their tiles covers
    again   it adds a value that these axes carry to what is there, once for every tile
    tiles   tile axes of which it stores, at an index that follows them, what one tile is folded to:
            another number for other blocks, if nothing cancels it
    cut     those by whose tiles it leaves something else, as numbers show; again: in one place
    folds   what an update does there with one value for every tile: "sum", "max", "min"
    squares tile axes along two of its dimensions, in one of which the value is always the same
    """

    tensor: str
    varies: tuple[str, ...]
    loc: Loc
    again: bool = False
    tiles: tuple[str, ...] = ()
    squares: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    folds: str = ""

    def __str__(self) -> str:
        if self.squares:
            return f"{self.tensor}: at every two positions of a tile of {_listed(self.squares)}"
        if self.cut:
            return f"{self.tensor}: in numbers, another for other tiles of {_listed(self.cut)}"
        if not self.varies and self.tiles:
            return f"{self.tensor}: folds single tiles of {_listed(self.tiles)}"
        if not self.varies:
            return f"{self.tensor}: the same whatever the blocks"
        return f"{self.tensor}: varies with the tiles of {_listed(self.varies)}"


@dataclass(frozen=True)
class FoldFact:
    """A fold over tiles whose result depends on how the loop is cut.

    what  what is folded of every tile: "value", the same for all of them, or a reduction
    """

    into: str
    axis: str
    op: str
    what: str
    loc: Loc

    def __str__(self) -> str:
        return f"{self.into}: the {self.op} of the {self.what} of every tile of {self.axis}"


@dataclass(frozen=True)
class LagFact:
    """A value that is what another was one tile of `axis` earlier: all tiles but the last made it.

    into, of  what the author calls the two
    """

    into: str
    of: str
    axis: str
    loc: Loc

    def __str__(self) -> str:
        return f"{self.into}: what {self.of} was one tile of {self.axis} earlier"


@dataclass(frozen=True)
class OrderFact:
    """A store that may touch an element of `tensor` that another position of `axis` touches.

    Within a tile they may come in another order than in two tiles.

    inner   a loop inside, two iterations of which may touch it; None: of two statements
    before  by a load before the store
    """

    tensor: str
    axis: str
    inner: str | None
    loc: Loc | None
    before: bool = False

    def __str__(self) -> str:
        over = "statements" if self.inner is None else f"iterations of {self.inner}"
        return f"{self.tensor}: which of two {over} is first goes by the tiles of {self.axis}"


@dataclass(frozen=True)
class FixedFact:
    """Tiles of a fixed block by which `what` goes: the first one begins where the range does."""

    axis: str
    what: str
    loc: Loc | None

    def __str__(self) -> str:
        return f"{self.axis}: {self.what}"


@dataclass(frozen=True)
class OutputFact:
    """What is known of the stores to one tensor.

    covered  every element is certainly written, so that its initial value is never seen
    """

    tensor: str
    covered: bool

    def __str__(self) -> str:
        return f"{self.tensor}: {'covered' if self.covered else 'not covered'}"


@dataclass(frozen=True)
class Leaving:
    """A tile that was not proved to lie in its dimension of `size`: on which sides it may not."""

    index: Along
    size: int
    before: bool
    behind: bool

    def __str__(self) -> str:
        sides = [s for s, leaves in (("before", self.before), ("behind", self.behind)) if leaves]
        return f"{position((self.index,))} may lie {' or '.join(sides)} the {self.size} positions"


@dataclass(frozen=True)
class Facts:
    """Everything that analysis proved about one KernelIR.

    `sorted` names the tensors that the proofs take to be non-decreasing: those that give a range
    [T[e], T[e + 1]).
    """

    axes: tuple[AxisFact, ...]
    outputs: tuple[OutputFact, ...]
    positions: tuple[PositionFact, ...]
    stores: tuple[StoreFact, ...]
    sorted: tuple[str, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    folds: tuple[FoldFact, ...] = ()
    lags: tuple[LagFact, ...] = ()
    orders: tuple[OrderFact, ...] = ()
    numbers: tuple[NumberFact, ...] = ()
    fixed: tuple[FixedFact, ...] = ()

    def axis(self, name: str) -> AxisFact:
        return next(a for a in self.axes if a.name == name)

    def stays_inside(self, expr: Expr, size: int) -> bool:
        """Whether a scalar index was proved to lie in a dimension of that size."""
        proved = (p for p in self.positions if p.kind == "proved")
        return any((p.expr, p.size) == (expr, size) for p in proved)

    def output(self, tensor: str) -> OutputFact:
        return next(o for o in self.outputs if o.tensor == tensor)

    def __str__(self) -> str:
        sections: dict[str, Iterable[object]] = {
            "axes": self.axes,
            "outputs": self.outputs,
            "positions": self.positions,
            "stores": self.stores,
            "folds that depend on the blocks": self.folds,
            "values of the tile before": self.lags,
            "accesses in an order that depends on the blocks": self.orders,
            "tiles that may leave their arrays": self.leaving,
            "arrays that hold so many tiles": self.numbers,
            "tiles that results go by": self.fixed,
            "taken to be sorted": self.sorted,
        }
        pages = [
            "\n".join([title, *(indent(str(fact), "  ") for fact in facts)])
            for title, facts in sections.items()
            if facts
        ]
        return "\n\n".join(pages) + "\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
