"""Program: a random kernel as data.

Values have named dimensions, one for each tile or whole dimension that they run along; operands are
broadcast by name.  So the description says nothing of shapes, masks or blocks: those are what the
compiler is tested for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tests.fuzzing.view import Step as Step  # what the corpus reads
from tests.fuzzing.view import View

USUAL = 16  # positions of a tile whose block is left open


@dataclass(frozen=True)
class Axis:
    """A loop, or a whole dimension.

    kind     "grid", "tile", or "full" for a dimension that is taken whole by `:`
    size     positions are 0 to size - 1
    offsets  of a ragged loop: the tensor that has its ranges, else ""
    of       the axis g that picks the range: offsets[g] to offsets[g + 1]
    local    positions count from the begin of the range
    bounded  whether the source says max_extent
    until    the range ends where that tile ends, if it does not end before: a causal loop
    window   of a causal loop: it begins so many positions before that tile, 0 if at its own begin
    length   the tensor that has the end of the range, at `of`, or one number for all
    most     positions that a range has at most: what is behind them is left out; 0 for all
    block    the author's block_size, 0 if he leaves it open
    page     of a ragged loop: positions that one number of the tensor stands for
    counts   of a ragged loop: the tensor that says how long ranges are, which begin at offsets[g]
    order    of a grid loop: the tensor that says at which position each of its turns is
    inside   the tile whose positions the range is; offsets are where those count from
    measured whether the end that memory has is computed of a vector
    mirrored of a grid loop: its turns come to the last position first
    """

    name: str
    kind: str
    size: int
    offsets: str = ""
    of: str = ""
    local: bool = False
    bounded: bool = True
    until: str = ""
    window: int = 0
    length: str = ""
    most: int = 0
    block: int = 0
    page: int = 1
    counts: str = ""
    order: str = ""
    inside: str = ""
    measured: bool = False
    mirrored: bool = False

    @property
    def loop(self) -> str:
        """What its loop counts, in the words of an author."""
        return f"{self.name}_turn" if self.order or self.mirrored else self.name


@dataclass(frozen=True)
class Tensor:
    """An argument or an output.

    role   "input"; "output"; "changed": an input that is stored to; "index": whole numbers below
           `limit`; "offsets": sorted, to `limit`
    fill   what an output is created with; None if that is unspecified
    short  of so many positions in every dimension: calls that reach them are to be refused
    whole  of an input: it holds small whole numbers, which every dtype has
    heads  of an input: it is given with its last two dimensions as one, as columns of heads
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    fill: float | None = None
    limit: int = 0
    short: int = 0
    whole: bool = False
    heads: bool = False

    @property
    def given(self) -> tuple[int, ...]:
        """The shape in which the kernel is given it."""
        *rows, columns = (*self.shape[:-2], math.prod(self.shape[-2:]))
        return (*rows, columns) if self.heads and len(self.shape) > 1 else self.shape


@dataclass(frozen=True)
class Term:
    """A scalar: an open grid axis, or what a tensor holds there; the tensor's one number if "".

    later  how many places behind the axis's
    share  so many indices of the axis are one number: axis // share
    """

    axis: str = ""
    tensor: str = ""
    factor: int = 1
    later: int = 0
    share: int = 1


@dataclass(frozen=True)
class Pick:
    """How one dimension is indexed by an axis, or by `terms` alone if the axis is "".

    shift    axis + shift
    factor   factor * axis
    terms    scalars that are added
    number   the number of a tile of an axis, which is one position
    share    so many indices of a grid axis share a position: axis // share
    through  the name of an index tensor: through[axis]
    derived  whether that position is computed of blocks, which no scalar unit does
    start    of a local axis: counts from the begin of its range in the whole array
    back     of another ragged axis: counts from the begin of its range on
    """

    axis: str
    shift: int = 0
    through: str = ""
    start: bool = False
    back: bool = False
    factor: int = 1
    terms: tuple[Term, ...] = ()
    number: bool = False
    share: int = 1
    derived: bool = False


@dataclass(frozen=True)
class Mask:
    """Where a position is from `first` on and below `below`: of lanes, or one number."""

    pick: Pick
    below: int
    first: int = 0


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Ref:
    """A value that was named before."""

    name: str


@dataclass(frozen=True)
class Load:
    """view: the name of the view in whose form the elements are read, "" for the array itself."""

    tensor: str
    index: tuple[Pick, ...]
    view: str = ""


@dataclass(frozen=True)
class Masked:
    """`load` where all masks hold, else `other`.

    The array may end where nothing more is read.
    """

    load: Load
    masks: tuple[Mask, ...]
    other: float


def held(tensor: Tensor, number: float) -> float:
    """A number as the dtype of an array has it."""
    if "float" in tensor.dtype:
        return number
    return bool(number) if tensor.dtype == "bool" else int(number)


@dataclass(frozen=True)
class Whole:
    """`load` of whole numbers, `op` a number: floor division, what is left, bits, shifts.

    "where" is twice the load if that is below the number, else the number.
    """

    op: str
    load: Load
    by: int


@dataclass(frozen=True)
class Native:
    """Arithmetic of two loads in the dtypes that they have, of numbers for which that is exact."""

    op: str
    left: Load
    right: Load


@dataclass(frozen=True)
class Scalar:
    """A term times 1/8, in arithmetic of floats."""

    term: Term


@dataclass(frozen=True)
class Chosen:
    """`left` where `load`, of bools, holds, else `right`."""

    load: Load
    left: Value
    right: Value


@dataclass(frozen=True)
class Joined:
    """The sum or maximum along a whole dimension of both values, one behind the other.

    `cut`: of the maxima of "pairs", which lie side by side, or of "halves", element by element,
    by a shape or by "parts"; or only of what is in the "middle".
    """

    op: str
    axis: str
    left: Value
    right: Value
    cut: Literal["", "pairs", "halves", "parts", "middle"] = ""


@dataclass(frozen=True)
class Position:
    """The positions of an axis, times 1/16."""

    axis: str


@dataclass(frozen=True)
class Looked:
    """A number of a table for each position of `rows`, less that of `columns` if it is not "".

    index   where in the table's first dimensions
    how     "distance": rows - columns + shift; "apart": how far they are apart; "share": // shift
    """

    tensor: str
    index: tuple[Pick, ...]
    rows: str
    columns: str = ""
    shift: int = 0
    how: Literal["distance", "apart", "share"] = "distance"


@dataclass(frozen=True)
class TileNumber:
    """The number of the tile of an axis with a block_size, times 1/8."""

    axis: str


@dataclass(frozen=True)
class Unary:
    op: str
    value: Value


@dataclass(frozen=True)
class Binary:
    op: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Even:
    """`left` at even positions of an axis, or at multiples of another number, else `right`."""

    axis: str
    left: Value
    right: Value
    of: int = 2


@dataclass(frozen=True)
class Where:
    """`yes` where the two values compare so, else `no`: "<", "<=", ">", ">=" or "=="."""

    op: str
    left: Value
    right: Value
    yes: Value
    no: Value


@dataclass(frozen=True)
class Seen:
    """`value` where a position of a causal axis is seen by one of `axis.until`, else `other`."""

    axis: str
    value: Value
    other: float


@dataclass(frozen=True)
class Reduce:
    """The sum or maximum along an axis; of a whole dimension a statistic, too.

    native  of a load in the dtype that it has
    """

    op: str
    axis: str
    value: Value
    native: bool = False


@dataclass(frozen=True)
class Dot:
    """The product of two values, summed along an axis that both have."""

    axis: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Mixed:
    """The sums of a value along a tile, with weights for each two of its positions.

    how    "upto": of what is not behind a position; "below": of what is before it; "after": from
           it on; "distance": less with the square of how far they are apart; "softmax" of the
           products of the rows of `value` with themselves
    form   "dot": a product; "sum": of what is multiplied; as values of two dimensions can be
    twice  the weights are multiplied with themselves
    """

    axis: str
    how: str
    value: Value
    form: Literal["dot", "sum"] = "dot"
    twice: bool = False


FROM_THE_FIRST = ("upto", "below")  # a sum of the tiles before makes them those of the whole range
Leaf = Number | Ref | Load | Masked | Whole | Native | Scalar | Position | TileNumber | Looked
Value = Leaf | Chosen | Joined | Unary | Binary | Even | Where | Seen | Mixed | Reduce | Dot


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class Let:
    """Names a value with these dimensions."""

    name: str
    dims: tuple[str, ...]
    value: Value


@dataclass(frozen=True)
class Update:
    """name = name op value: "sum", "max", "scale" for a product; "decay": name / 2 + value.

    "blend" goes half of the way to the value. "set" is the value alone, "turn" what it is more
    than before.
    """

    name: str
    op: str
    value: Value


@dataclass(frozen=True)
class Swap:
    """name, other = other, name + value: two carries that change places."""

    name: str
    other: str
    value: Value


@dataclass(frozen=True)
class Store:
    """combine: the "sum" or "max" with what is there is stored; atomic: as one operation.

    Only where all masks hold; the array may end where nothing more is stored.  `view` as of Load.
    """

    tensor: str
    index: tuple[Pick, ...]
    value: Value
    combine: str = ""
    atomic: bool = False
    masks: tuple[Mask, ...] = ()
    view: str = ""


@dataclass(frozen=True)
class If:
    """`body` where the scalar is below `below`, else `other`.

    what   "term"; "begin": the first position of the tile `term.axis`, which is always below;
           "rows": of the ragged axis `term.axis`, how many it has
    """

    term: Term
    below: int
    body: tuple[Statement, ...]
    other: tuple[Statement, ...] = ()
    what: str = "term"


@dataclass(frozen=True)
class Loop:
    """`joint`: printed in one line with the loop that is its whole body."""

    axis: str
    body: tuple[Statement, ...]
    joint: bool = False


Statement = Let | Update | Swap | Store | Loop | If


@dataclass(frozen=True)
class Program:
    """Axes in no order, tensors in that of the arguments and results, nests of loops, and views."""

    axes: tuple[Axis, ...]
    tensors: tuple[Tensor, ...]
    body: tuple[Statement, ...]
    views: tuple[View, ...] = ()

    def axis(self, name: str) -> Axis:
        return {a.name: a for a in self.axes}[name]

    def tensor(self, name: str) -> Tensor:
        return {t.name: t for t in self.tensors}[name]

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role != "output")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role == "output")

    @property
    def results(self) -> tuple[Tensor, ...]:
        """What is returned: outputs, and arguments that were stored to, or views of them."""
        return tuple(r for t in self.tensors for r in self._returned(t))

    def _returned(self, tensor: Tensor) -> Iterator[Tensor]:
        if tensor.role not in ("output", "changed"):
            return
        seen = [v for v in self.views if v.tensor == tensor.name and v.returned]
        if all(v.returned == "beside" for v in seen):
            yield tensor
        for view in seen:
            yield replace(tensor, name=view.name, shape=view.shape(tensor.shape))

    def turns(self, axis: Axis) -> int:
        """How many iterations a loop over a static range has."""
        return self.tensor(axis.order).shape[0] if axis.order else axis.size

    def view(self, name: str) -> View:
        return {v.name: v for v in self.views}[name]


# ---------------------------------------------------------------- walking

_NODES = (*get_args(Statement), *get_args(Value), Pick, Term, Mask)


def parts(node: Any) -> Iterator[Any]:
    """A statement, value or tuple of them, and everything inside it."""
    rest = [node]
    while rest:
        node = rest.pop()
        if isinstance(node, tuple):
            rest += reversed(node)
        elif isinstance(node, _NODES):
            yield node
            rest += reversed(vars(node).values())


def loops(program: Program) -> frozenset[str]:
    """The axes that are looped over."""
    return frozenset(p.axis for p in parts(program.body) if isinstance(p, Loop))


def names(program: Program) -> frozenset[str]:
    """The tensors that are used, those of ranges and indices too."""
    used = set()
    for part in parts(program.body):
        match part:
            case Load(tensor) | Store(tensor) | Looked(tensor) | Term(_, tensor):
                used.add(tensor)
            case Pick(axis, _, through, start, back):
                used |= {through} | ({program.axis(axis).offsets} if start or back else set())
            case Loop(axis) | If(term=Term(axis), what="rows"):
                own = program.axis(axis)
                used |= {own.offsets, own.length, own.counts, own.order}
    return frozenset(used - {""})


def pruned(program: Program) -> Program:
    """Without the axes, tensors and views that nothing uses."""
    axes = {p.axis for p in parts(program.body) if isinstance(p, Loop | Pick | Term)}
    axes |= {d for p in parts(program.body) if isinstance(p, Let) for d in p.dims}
    used = names(program)
    seen = {p.view for p in parts(program.body) if isinstance(p, Load | Store)}
    return replace(
        program,
        axes=tuple(a for a in program.axes if a.name in axes),
        tensors=tuple(t for t in program.tensors if t.name in used),
        views=tuple(
            v for v in program.views if v.tensor in used and (v.returned or v.name in seen)
        ),
    )


def fitted(program: Program) -> Program:
    """Arrays as long as they are indexed, less what they are short of.

    Of an input of which masks leave out everything there may be nothing.  What is taken whole is
    never more than there is: such a dimension is as long as what it meets.
    """
    found: dict[str, list[int]] = {}
    cut: set[tuple[str, int]] = set()
    masks = {id(p.load): p.masks for p in parts(program.body) if isinstance(p, Masked)}
    for part in parts(program.body):
        if isinstance(part, Load | Store):
            own = part.masks if isinstance(part, Store) else masks.get(id(part), ())
            least = int(isinstance(part, Store) or program.tensor(part.tensor).role != "input")
            lengths = [max(extent(program, pick, own), least) for pick in part.index]
            known = found.setdefault(part.tensor, lengths)
            some = (d for d, pick in enumerate(part.index) if not _is_whole(program, pick))
            cut |= {(part.tensor, dim) for dim in some}
            found[part.tensor] = [max(pair) for pair in zip(known, lengths, strict=True)]
    tensors = tuple(
        replace(
            t,
            shape=tuple(
                _shortened(n, t.short) if (t.name, dim) in cut else n
                for dim, n in enumerate(found[t.name])
            ),
        )
        if t.name in found
        else t
        for t in program.tensors
    )
    return replace(program, tensors=tensors)


def _is_whole(program: Program, pick: Pick) -> bool:
    return pick.axis != "" and program.axis(pick.axis).kind == "full"


def _shortened(length: int, by: int) -> int:
    """Not to 1: such a dimension is broadcast where it is taken whole, and nothing is wrong."""
    return max(length - by, min(length, 2))


def extent(program: Program, pick: Pick, masks: tuple[Mask, ...] = ()) -> int:
    """The length of a dimension that holds every position that a pick can have and masks let."""
    stated = [m.below for m in masks if m.pick == pick]
    if stated:
        return min(extent(program, pick), *stated)
    last = pick.shift + sum(max(_last(program, term) * term.factor, 0) for term in pick.terms)
    if pick.through:
        return program.tensor(pick.through).limit + last
    if pick.axis:
        plain = [m.below for m in masks if m.pick == Pick(pick.axis) and not pick.start]
        axis = program.axis(pick.axis)
        counted = axis.most and (pick.back or (axis.local and not pick.start))  # from the begin on
        size = max(1, min(axis.size, axis.most if counted else axis.size, *plain, 1 << 30))
        size = -(-size // (tile_of(axis) if pick.number else pick.share))
        last += (size - 1) * pick.factor
    return last + 1


def tile_of(axis: Axis) -> int:
    """How long its tiles are: as the author says, or as most configs have them."""
    return axis.block or USUAL


def from_0(axis: Axis) -> bool:
    """Whether every tile is one of a whole dimension's, of which one position is in one."""
    given = axis.offsets or axis.length or axis.until or axis.inside
    return not (given or axis.local or axis.most)


def _last(program: Program, term: Term) -> int:
    if not term.tensor:
        return (program.axis(term.axis).size - 1) // term.share
    tensor = program.tensor(term.tensor)
    return tensor.limit - (tensor.role == "index")
