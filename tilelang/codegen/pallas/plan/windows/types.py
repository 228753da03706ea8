"""Windows as data: which block of an array a step sees."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from tilelang.ir import Expr, Index, Scalar, Var, integers
from tilelang.language.dtypes import is_float, itemsize

SHORT, LANES = 8, 128  # rows and columns of a register tile of 32-bit values


@dataclass(frozen=True)
class ByTile:
    """The dimension is cut into blocks; the step sees block number `axis`.

    over: axes that this number moves with besides.
    """

    axis: str
    block: int
    over: tuple[str, ...] = ()


@dataclass(frozen=True)
class ByRow:
    """The step sees up to `block` positions from row `axis` on, and none behind `axis`' range."""

    axis: str
    block: int


@dataclass(frozen=True)
class ByBlock:
    """The dimension is cut into blocks; the step sees block number `expr`."""

    expr: Expr
    block: int


@dataclass(frozen=True)
class Between:
    """The step sees what a tile of `axis`, moved by `shift`, has of the array's rows.

    These are `count` times SHORT from register tile `first` on, which has `tile` rows: up to row
    `stop` times SHORT, but once SHORT at least and at most `block` rows, whatever memory has.
    """

    axis: str
    shift: Expr
    first: Expr
    stop: Expr
    tile: int
    block: int

    @property
    def count(self) -> Expr:
        before = integers.mul(self.first, self.tile // SHORT)
        count = integers.maximum(integers.sub(self.stop, before), 1)
        return integers.minimum(count, self.block // SHORT)


@dataclass(frozen=True)
class Edge:
    """The step sees the `block` positions next to a tile of `axis`, which are block `number`.

    after: those behind the tile, not those in front of it.
    """

    axis: str
    number: Expr
    block: int
    after: bool


@dataclass(frozen=True)
class ByIndex:
    """One position; the dimension is squeezed out of the block."""

    expr: Expr


@dataclass(frozen=True)
class Packed:
    """One position of a dimension that cannot be squeezed: `rows` of them form the block.

    whole: the block is the whole dimension.
    """

    expr: Expr
    rows: int
    whole: bool


@dataclass(frozen=True)
class Whole:
    """The whole dimension, rounded up to `block` positions."""

    block: int


@dataclass(frozen=True)
class Fetched:
    """Positions that an index array picks: rows are copied from the array one by one.

    `rows` is how many rows a register tile of the array holds, where a row cannot be copied alone.
    """

    rows: int


@dataclass(frozen=True)
class Number:
    """Which block of a dimension is shown: the one of `rows` that holds position `expr`."""

    expr: Expr
    rows: int = 1


@dataclass(frozen=True)
class Columns:
    """Part `number` of an array's last dimension, of `size` positions: a row of the view it is of.

    Of `x.reshape(M, H, D)[t, h, :]` they are the columns h * D to (h + 1) * D of x.
    """

    number: Expr
    size: int


Entry = Index | Columns  # of an array, where those of a tensor may be of a view
WindowDim = ByTile | ByBlock | ByRow | Edge | Between | ByIndex | Packed | Whole | Fetched
Key = tuple[str, tuple[WindowDim, ...]]  # windows on one tensor that are cut in one way are one


@dataclass(frozen=True)
class Turned:
    """A copy of a block in scratch memory `name`, in which dimension `dim` is the first one.

    axis    what the author calls the loop within the step that runs along it
    """

    name: str
    dim: int
    axis: str


@dataclass(frozen=True)
class Window:
    """The block of one array that a step sees.

    ref        the name of the block inside the step
    numbers    which block of every dimension it is; of ByRow the row that it begins with
    array      the name of the host array that it is cut from
    output     the step writes it
    init       what a first visit does: nothing, fill with `fill`, or copy from window `existing`
    passed     the argument that holds the array, where that is not `array` itself
    stream     the loop inside the step whose pipeline the window belongs to, if it is one's
    far        the array stays where it is, and no pipeline cuts it into blocks
    back       an output that the block is read back from: earlier pipelines wrote to it
    buffers    blocks in flight, when the config says so
    turned     the scratch memory through which the body reads, or writes, the block
    track      of loops in a row, the part of the step table that picks the block
    whole      the array's shape rounded up, so that every window on it sees whole blocks
    early      the next other block is fetched as soon as there is room, not just before its step
    flows      it is the whole array, whose rows come, or go, in the pieces of the launch's flow
    held       all of the array is in vector memory in every step, which sees its block of that
    again      of an output, the column whose tiles may show a block that was left before
    """

    ref: str
    array: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[WindowDim, ...]
    numbers: tuple[Number, ...]
    output: bool = False
    init: Literal["none", "fill", "existing"] = "none"
    fill: Scalar = 0
    existing: str | None = None
    passed: str = ""
    buffers: int | None = None
    stream: str | None = None
    far: bool = False
    back: str | None = None
    turned: Turned | None = None
    track: str | None = None
    whole: tuple[int, ...] = ()
    early: bool = False
    flows: bool = False
    held: bool = False
    again: str | None = None

    @property
    def axes(self) -> frozenset[str]:
        """Axes whose steps copy another block; none do of an array that is held."""
        return frozenset() if self.held else self.shown_by

    @property
    def shown_by(self) -> frozenset[str]:
        """Axes whose steps change the block that the window shows."""
        found: set[str] = set()
        for dim, size in zip(self.dims, self.shape, strict=True):
            match dim:
                case ByTile(axis, _, over):
                    found |= {axis, *over}
                case ByRow(axis):
                    found.add(axis)
                case ByIndex(expr) | ByBlock(expr) | Edge(number=expr):
                    found |= integers.axes(expr)
                case Between(first=first, stop=stop):
                    found |= integers.axes(first) | integers.axes(stop)
                case Packed(expr, rows) if rows < size:
                    found |= integers.axes(expr)
                case _:
                    pass
        return frozenset(found)

    @property
    def long(self) -> tuple[int, ...]:
        """The array's shape once blocks with more rows than it has can be copied from and to it.

        Up to half of SHORT rows lie in smaller tiles than others, of which no copy takes a part:
        those of narrow types, and of others where a row has several.
        """
        cut = isinstance(self.dims[-2], ByTile | ByBlock | Edge | Whole)
        cut = cut and extent_of(self.dims[-2]) != self.shape[-2] <= SHORT // 2
        if cut and (itemsize(self.dtype) < 4 or self.shape[-1] > LANES):
            return (*self.shape[:-2], SHORT, self.shape[-1])
        return self.shape

    @property
    def filler(self) -> float:
        """What the array is padded with; no result depends on it."""
        return math.nan if is_float(self.dtype) else 1

    @property
    def shows_all(self) -> bool:
        """Whether its block is the array itself, in every step."""
        sizes = (extent_of(dim) or 1 for dim in self.dims)
        return tuple(sizes) == self.shape and all(n.expr == integers.const(0) for n in self.numbers)

    @property
    def stepped(self) -> bool:
        """Whether the pipeline, or the grid, of the launch itself brings a block in every step."""
        return self.stream is None and not self.far

    @property
    def argument(self) -> str:
        """The kernel's name for the array behind the window."""
        return self.passed or self.array

    @property
    def block(self) -> tuple[int | None, ...]:
        """The block shape; None for squeezed dimensions."""
        return tuple(extent_of(d) for d in self.dims)

    @property
    def shown(self) -> tuple[int, ...]:
        """The block as the body sees it, without squeezed dimensions."""
        return tuple(b for b in self.block if b is not None)

    @property
    def resident(self) -> tuple[int, ...]:
        """The shape of what is in vector memory."""
        return self.padded if self.held else self.shown

    @property
    def turn(self) -> tuple[int, ...]:
        """How the dimensions of the block are ordered in its turned copy."""
        assert self.turned is not None
        first = sum(b is not None for b in self.block[: self.turned.dim])
        return (first, *(d for d in range(len(self.shown)) if d != first))

    @property
    def rounding(self) -> tuple[int, ...]:
        """What each dimension of the array must be a multiple of, to be cut into whole blocks."""
        return tuple(map(_rounding, self.dims))

    @property
    def exact(self) -> bool:
        """Whether the block has rows of a range alone, not those of a tile of the array."""
        return any(isinstance(d, ByRow | Between) for d in self.dims)

    @property
    def noted(self) -> tuple[tuple[str, Expr], ...]:
        """What rows of the step table hold of it, see Between: each over those before."""
        if not isinstance(self.dims[-2], Between):
            return ()
        name = self.ref.removesuffix("_ref")
        first = Var(f"{name}.first", integers.INT)
        count = replace(self.cut, first=first).count
        return ((first.name, self.cut.first), (f"{name}.count", count))

    @property
    def cut(self) -> Between:
        """The rows that a step has of what a moved tile is cut from."""
        found = self.dims[-2]
        assert isinstance(found, Between)
        return found

    @property
    def padded(self) -> tuple[int, ...]:
        """The array's shape rounded up to whole blocks."""
        pairs = zip(self.shape, self.rounding, strict=True)
        return tuple(-(-s // b) * b for s, b in pairs)


def extent_of(dim: WindowDim) -> int | None:
    """How many positions a block holds; None where the dimension is squeezed out."""
    match dim:
        case ByTile(_, block) | ByBlock(_, block) | ByRow(_, block) | Whole(block):
            return block
        case Edge() | Between():
            return dim.block
        case Packed(_, rows) | Fetched(rows):
            return rows
        case ByIndex():
            return None
        case _:
            assert_never(dim)


def _rounding(dim: WindowDim) -> int:
    match dim:
        case ByRow():
            return 1
        case Between():
            return SHORT
        case _:
            return extent_of(dim) or 1


@dataclass(frozen=True)
class HostArray:
    """An array that the host function prepares before a launch.

    `shape` is what the kernel sees; `permute` reorders the source's dimensions first; `wide` arrays
    are cast to `dtype`.
    """

    name: str
    source: str
    permute: tuple[int, ...] | None
    shape: tuple[int, ...]
    dtype: str
    wide: bool = False
