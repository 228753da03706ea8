"""The whole IR: what was written, with every name unique and every expression typed.

A kernel is host declarations (tensors) and a sequence of top-level loops; each top-level loop is
one launch.  Values are in single-assignment form: `Assign.name` is unique in the kernel, and a
value that a loop changes is a `Carry` of that loop, never a second assignment.  A dynamic `if` is
gone by now: the frontend turns it into selects, store masks and empty ranges.

    KernelIR -> tensors, axes, body: Stmt...
    Stmt     =  Assign | Store | Loop
    Expr     =  Const | Var | GridIndex | TileIndex | TileScalar | Load | Apply
    Index    =  At | Along | Span | Gather          one per dimension of the tensor

A value's shape is a tuple of dimensions; a dimension is an int (its length) or a str (the name of
the tile axis that it runs along).  Two different axes never match, whatever their block sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import Loc

Dim = int | str
Scalar = bool | int | float


@dataclass(frozen=True)
class Type:
    """Shape and dtype of a value.  `dtype` is a canonical name: "float32", "bfloat16", "int32"."""

    shape: tuple[Dim, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TensorSpec:
    """An argument as far as the compiler needs it: shape and canonical dtype, no data.

    `framework` is "jax", "torch" or "numpy" and decides nothing but what error messages say.
    """

    shape: tuple[int, ...]
    dtype: str
    framework: str = "numpy"


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Const:
    """A number known while parsing; rank 0.  `weak` follows JAX: it does not promote others."""

    value: Scalar
    type: Type
    weak: bool = False


@dataclass(frozen=True)
class Var:
    """A value named by an Assign, by a Carry inside its loop, or by a Carry after its loop."""

    name: str
    type: Type


@dataclass(frozen=True)
class GridIndex:
    """The scalar index of an `hl.grid` axis."""

    axis: str
    type: Type = Type((), "int32")


@dataclass(frozen=True)
class TileIndex:
    """`tile.index`: the int32 positions that a tile covers, of shape (axis,)."""

    axis: str
    type: Type


@dataclass(frozen=True)
class TileScalar:
    """A scalar of a tile: begin and end are clipped to the loop's range, `end` is exclusive."""

    axis: str
    what: Literal["begin", "end", "id", "count", "block_size"]
    type: Type = Type((), "int32")


@dataclass(frozen=True)
class Load:
    """Reads `tensor` at `index`; lanes outside a tile's range are never read as data.

    `mask` (bool, broadcastable to the value) selects the lanes that are read; the others, and those
    that a moved tile has outside of the tensor, are `other`.
    """

    tensor: str
    index: tuple[Index, ...]
    type: Type
    mask: Expr | None = None
    other: Scalar = 0
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Apply:
    """A primitive op of `language` applied to values; attributes are static."""

    op: str
    args: tuple[Expr, ...]
    type: Type
    attrs: tuple[tuple[str, object], ...] = ()
    loc: Loc | None = field(default=None, compare=False)
    # of a `where` that leaves lanes out: why, and of which array
    masks: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)


Expr = Const | Var | GridIndex | TileIndex | TileScalar | Load | Apply


# ---------------------------------------------------------------- indices


@dataclass(frozen=True)
class At:
    """A scalar index: the dimension disappears."""

    expr: Expr


@dataclass(frozen=True)
class Along:
    """A tile: the dimension becomes `axis`, at positions tile.index + offset (a scalar).

    Lanes that a moved tile has outside of the tensor are neither read nor written.  `loose`: a load
    may have some, which a mask takes out, so that the tensor need not say where tiles are cut; of a
    store, whose tensor does say it, that positions of the loop may have no place there.
    """

    axis: str
    offset: Expr | None = None
    loose: bool = False


@dataclass(frozen=True)
class Span:
    """A static slice [start, stop) of the dimension; `:` is Span(0, size)."""

    start: int
    stop: int


@dataclass(frozen=True)
class Gather:
    """Rows picked by an int value of rank 1: the dimension becomes that value's dimension.

    A GPU's passes make loads of which a block picks numbers: the dimension becomes all of its own.
    """

    expr: Expr


Index = At | Along | Span | Gather


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class Assign:
    """`name = value`.  `user` is what the author wrote; `name` is unique in the kernel."""

    name: str
    value: Expr
    loc: Loc
    user: str


@dataclass(frozen=True)
class Store:
    """`tensor[index] = value` where `mask` (a scalar or broadcastable bool) holds.

    A Gather may pick one row several times; its rows are stored one by one, and the last one stays.

    `combine` is the op of an atomic update.  Then `value` is `combine(old, new)`, where `old` loads
    the same place; iterations may do this in any order, and rows that a Gather picks several times
    are combined with each of theirs.
    """

    tensor: str
    index: tuple[Index, ...]
    value: Expr
    loc: Loc
    mask: Expr | None = None
    combine: Literal["add", "maximum", "minimum"] | None = None

    @property
    def operands(self) -> tuple[Expr, Expr]:
        """Of an update: what is there, and what that is combined with."""
        assert isinstance(self.value, Apply) and self.value.op == self.combine
        old, new = self.value.args
        return old, new


@dataclass(frozen=True)
class Carry:
    """A value that a loop changes.

    On entry the body sees Var(name); the first iteration sees `init`; `next` (evaluated at the end
    of the body) is what the following iteration sees, and what Var(out) is after the loop.  With
    no iterations Var(out) is `init`.  `user` is an identifier, `said` what the author
    calls it where that is none: `state[1]`.
    """

    name: str
    init: Expr
    next: Expr
    out: str
    user: str
    loc: Loc
    said: str = ""

    @property
    def called(self) -> str:
        """The value in a sentence."""
        return self.said or self.user


@dataclass(frozen=True)
class Loop:
    """Runs `body` for every index or tile of `axis`."""

    axis: str
    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...]
    loc: Loc


Stmt = Assign | Store | Loop
Body = tuple[Stmt, ...]


# ---------------------------------------------------------------- declarations


@dataclass(frozen=True)
class Axis:
    """One loop dimension: `hl.grid` (scalar index) or `hl.tile` (a tile of `block` positions).

    `begin` and `end` are scalar expressions over constants, outer axes and loaded integers.
    `max_extent` bounds end - begin; an int whenever the extent is data-dependent.
    `block` is a number that the author fixed, or the name of the config entry that chooses it.
    """

    name: str
    kind: Literal["grid", "tile"]
    begin: Expr
    end: Expr
    max_extent: int | None
    block: int | str | None
    loc: Loc
    user: str

    @property
    def static(self) -> tuple[int, int] | None:
        """(begin, end) when both are constants."""
        if isinstance(self.begin, Const) and isinstance(self.end, Const):
            return int(self.begin.value), int(self.end.value)
        return None

    @property
    def fixed(self) -> int | None:
        """The block that the author fixed, which no config changes."""
        return self.block if isinstance(self.block, int) else None


@dataclass(frozen=True)
class BlockSize:
    """A block size that the author registered: the config chooses from `least` to `most`.

    `loc` is where; None as `most` is no bound.
    """

    name: str
    least: int
    most: int | None
    loc: Loc

    def holds(self, block: int) -> bool:
        """Whether a block lies within the bounds."""
        return self.nearest(block) == block

    def nearest(self, block: int) -> int:
        """The possible block that is nearest."""
        most = block if self.most is None else min(block, self.most)
        return max(most, self.least)

    def __str__(self) -> str:
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"


@dataclass(frozen=True)
class View:
    """A host-side rearrangement of another tensor: "reshape" to, or "permute" by, `arg`.

    "take": the rows along dimension `arg[0]` that the integers of `index` pick, its dimensions in
    the order of the rest of `arg`; integers that are no position of a row pick the nearest one.
    "slice": positions `arg[0]` to `arg[1]` of a vector.
    "spans": of `arg[1]` ranges [s[i], s[i + 1]), where blocks of `arg[0]` of them begin (those that
    are not empty), and then where the blocks end.
    "cast": the same numbers in the dtype of the view.
    "ends": along dimension `arg[0]`, turned round if `arg[1]`, with `arg[2]` copies of the first
    number in front and copies of the last one behind.
    """

    source: str
    how: Literal["reshape", "permute", "take", "slice", "spans", "cast", "ends"]
    arg: tuple[int, ...]
    index: str = ""


@dataclass(frozen=True)
class Tensor:
    """An array in device memory.

    role "input": a parameter; `mutated` if the kernel stores to it.
    role "output": made by the kernel's host code; `fill` is its initial value, None for `empty`.
    role "view": `view` says of what.

    given  the shape in which a parameter comes, and goes back, where a pass sees it in another
    of     the author's array that this is the gradient of, in a kernel that was derived
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["input", "output", "view"]
    loc: Loc
    fill: Scalar | None = None
    view: View | None = None
    mutated: bool = False
    given: tuple[int, ...] | None = None
    of: str | None = None

    def seen(
        self, name: str, view: View, shape: tuple[int, ...] | None = None, dtype: str | None = None
    ) -> Tensor:
        """A view, of another shape or dtype than this array unless it has the same."""
        return Tensor(
            name, self.shape if shape is None else shape, dtype or self.dtype, "view", self.loc,
            view=view,
        )  # fmt: skip


@dataclass(frozen=True)
class Param:
    """A parameter of the user's function: a tensor, or a static value that is part of the key."""

    name: str
    tensor: str | None  # None: static
    static: object = None
