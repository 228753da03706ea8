"""Physical: the expressions and statements of a step, over blocks that are there.  Data only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, Load, Type, Var, children
from tilelang.ir.integers import INT
from tilelang.language.dtypes import itemsize, wide_of

from .axis import Mask
from .moved import MovedRows as MovedRows
from .moved import RowsFrom as RowsFrom
from .tables import Diagonals as Diagonals
from .tables import LaneGather as LaneGather

COPIES = "copies"  # the semaphore that counts copies
FIRST = Var("copies.first", INT)  # the number of some copies that are on their way together
SLOT = Var("copies.slot", INT)  # the number of one of those


@dataclass(frozen=True)
class All:
    """The whole extent of a block dimension."""


@dataclass(frozen=True)
class Part:
    """A static slice of a block dimension."""

    start: int
    stop: int


@dataclass(frozen=True)
class Step:
    """The part of a block dimension that tile number `axis` of an inner loop covers.

    number: which part of that length it is, of a moved tile or, `axis` "", another position
    """

    axis: str
    block: int
    number: PExpr | None = None


@dataclass(frozen=True)
class Piece:
    """The rows of a value that a turn of loop `axis` has."""

    axis: str
    block: int


@dataclass(frozen=True)
class Row:
    """One position of an untiled leading dimension, which disappears, or `together` from there."""

    expr: PExpr
    together: int = 0


Select = All | Part | Step | Row


@dataclass(frozen=True)
class Read:
    """Reads a window's block; `select` has one entry per unsqueezed dimension.

    turned  the copy is read in which a dimension of the block is the first one
    """

    ref: str
    select: tuple[Select, ...]
    type: Type
    turned: bool = False


@dataclass(frozen=True)
class ScalarRead:
    """Reads one number of an array that lies in scalar memory."""

    array: str
    index: tuple[PExpr, ...]
    type: Type


@dataclass(frozen=True)
class Kept:
    """Reads a value that scratch memory carries from step to step.

    at    the iteration of the loops within the step whose own value it is; `together` as in Row
    part  which of its rows are meant, if not all
    """

    name: str
    type: Type
    at: tuple[PExpr, ...] = ()
    together: int = 0
    part: Piece | None = None


@dataclass(frozen=True)
class InRange:
    """Which lanes of a tile lie in the range of its loop."""

    mask: Mask
    type: Type


@dataclass(frozen=True)
class Iota:
    """The number of every position along dimension `dim`."""

    dim: int
    type: Type


@dataclass(frozen=True)
class TakeRows:
    """Rows that integers in scalar memory pick, put together one by one in scratch memory.

    ref     the window that the rows lie in; "" where `place` is the number itself
    place   position of a row: an expression over Lane
    at      which dimension of the window is picked from
    select  what of its block is meant, where it has one
    name    unique in the kernel
    far     rows are copied from where the array lies
    tile    rows of a register tile, where a row of the array cannot be read alone; else 1
    held    the dtype in which rows are put together: single rows of narrow ones cannot be stored
    part    what is copied of the last dimension of rows that lie far away, and `kept` of that
    together  how many copies of register tiles are on their way at once
    lane    which lane a slot of those copies is for: over FIRST and SLOT
    """

    ref: str
    place: Expr
    at: int
    select: tuple[Select, ...]
    name: str
    far: bool
    tile: int
    size: int
    type: Type
    held: str
    part: Part | None = None
    kept: Part | None = None
    together: int = 1
    lane: Expr | None = None

    @property
    def rows(self) -> str:
        """The scratch memory in which the rows are put together."""
        return f"fetched_{self.name}"

    @property
    def tiles(self) -> str:
        """The scratch memory for the register tiles that the rows are in."""
        return f"tiles_{self.name}"


@dataclass(frozen=True)
class Lane:
    """The position along `axis` of the lane whose row is moved; without an axis, its number."""

    axis: str | None
    type: Type = INT


@dataclass(frozen=True)
class Tiles:
    """Whole tiles below a position, which is not negative."""

    position: PExpr
    block: int
    type: Type = INT


@dataclass(frozen=True)
class Rest:
    """What is left of a position, which is not negative, above whole tiles."""

    position: PExpr
    block: int
    type: Type = INT


@dataclass(frozen=True)
class Recorded:
    """What a row of the step table holds of a column."""

    column: str
    row: PExpr
    type: Type = INT


@dataclass(frozen=True)
class OverRows:
    """Numbers of all rows of a work list at once.

    what  running: the largest so far; before: that of the row before, 0 in the first one; largest:
          of all; alike, filled: the same in all; alone: of the only one; nowhere: -1 in as many
    """

    what: Literal["running", "before", "largest", "alike", "filled", "alone", "nowhere"]
    value: PExpr
    type: Type = INT


@dataclass(frozen=True)
class Roll:
    """A value turned along dimension `dim`: what was at i is at i + by, modulo the length."""

    value: PExpr
    by: PExpr
    dim: int
    type: Type


@dataclass(frozen=True)
class Head:
    """The first positions of a value along dimension `dim`, as many as `type` says."""

    value: PExpr
    dim: int
    type: Type


@dataclass(frozen=True)
class Repeat:
    """A value over and over along its last dimension, as often as `type` says."""

    value: PExpr
    type: Type


@dataclass(frozen=True)
class GroupSum:
    """The sums of the rows of many groups: member[g, r] says whether row r is of group g."""

    member: PExpr
    rows: PExpr
    type: Type


@dataclass(frozen=True)
class Named:
    """A value that gets a line and a name of its own."""

    value: PExpr
    name: str

    @property
    def type(self) -> Type:
        return self.value.type


PExpr = (
    Expr | Read | ScalarRead | Kept | InRange | Iota | TakeRows | Lane | Tiles | Rest | Recorded
    | OverRows | Roll | RowsFrom | Head | Repeat | GroupSum | MovedRows | Named
    | Diagonals | LaneGather
)  # fmt: skip


def is_column(kind: Type) -> bool:
    """Whether an array has one lane, and rows."""
    return kind.rank > 1 and kind.shape[-1] == 1 and kind.shape[-2] != 1


def scalar(expr: PExpr) -> Expr:
    """A number of a step as an operand of index arithmetic, which is shared with the IR."""
    value: Any = expr
    return value


@dataclass(frozen=True)
class Bind:
    """`name = value`, a local of the step."""

    name: str
    value: PExpr
    loc: Loc | None
    user: str


@dataclass(frozen=True)
class Keep:
    """Writes a value to the scratch that carries it; the rest as in Kept."""

    name: str
    value: PExpr
    loc: Loc | None
    at: tuple[PExpr, ...] = ()
    together: int = 0
    part: Piece | None = None


@dataclass(frozen=True)
class PutRows:
    """Rows of a value go to the rows of an array that integers in scalar memory pick, in order.

    place, live  the row of a lane, and whether it is stored: over Lane
    combine      the op with what the row holds, where it is not just replaced
    name         the scratch memory from which single rows of the value are read
    tile, type   as in TakeRows
    far          rows are copied to where the array lies; else they are stored to a block of it
    together     how many copies are on their way at once, at most
    part         what is copied of the last dimension, where that is not all of it
    stop         of copies that are on their way together, the lane behind the last: over FIRST
    array        what the author calls the array
    """

    place: Expr
    live: Expr
    combine: str | None
    name: str
    tile: int
    type: Type
    far: bool = False
    together: int = 1
    part: Part | None = None
    stop: Expr | None = None
    array: str = ""

    @property
    def held(self) -> str:
        """The dtype in which rows wait: single rows of narrow types cannot be read."""
        return self.type.dtype if self.tile == 1 else wide_of(self.type.dtype)

    @property
    def combined_in(self) -> str | None:
        """The dtype in which a row is combined with what is there; None: its own."""
        narrow = self.combine is not None and itemsize(self.type.dtype) < 4
        return wide_of(self.type.dtype) if narrow else None

    @property
    def changes(self) -> bool:
        """Whether a store needs what is there: the row itself, or the rows beside it."""
        return self.combine is not None or self.tile > 1

    @property
    def places(self) -> str:
        """The scratch memory in which rows that lie far away are changed."""
        return self.name.replace("stored", "changed", 1)


@dataclass(frozen=True)
class Write:
    """Writes a block, or the selected part of it, or some rows of it; `turned` as in Read."""

    ref: str
    select: tuple[Select, ...]
    value: PExpr
    loc: Loc | None
    rows: PutRows | None = None
    turned: bool = False


@dataclass(frozen=True)
class InnerCarry:
    """A value that an inner loop changes; as in ir.Carry."""

    name: str
    init: PExpr
    next: PExpr
    out: str
    user: str


@dataclass(frozen=True)
class Inner:
    """A loop inside the step over the tiles of `axis`.

    A pipeline has no carries: scratch memory holds what it passes on.  A turn of an unrolled loop
    stands for `together` iterations, and `unroll` turns of a fori_loop are written in a row, whose
    number is in the text if they are `counted`.  One that turns "once", if at all, is no loop.

    ahead   of so many first statements, those of the next turn run before the rest of this one
    handed  locals of those that the rest reads
    """

    axis: str
    form: Literal["fori_loop", "unroll", "pipeline", "once"]
    carries: tuple[InnerCarry, ...]
    body: tuple[PStmt, ...]
    loc: Loc
    together: int = 1
    unroll: int = 1
    counted: bool = True
    ahead: int = 0
    handed: tuple[str, ...] = ()


PStmt = Bind | Keep | Write | Inner


# ---------------------------------------------------------------- what they read


def physical_children(expr: PExpr) -> tuple[PExpr, ...]:
    match expr:
        case Apply():
            return expr.args
        case ScalarRead():
            return expr.index
        case Load():
            return children(expr)
        case Kept():
            return expr.at
        case Read():
            return select_exprs(expr.select)
        case TakeRows():
            lane = () if expr.lane is None else (expr.lane,)
            return (expr.place, *select_exprs(expr.select), *lane)
        case Tiles(position) | Rest(position) | Recorded(_, position):
            return (position,)
        case Roll(a, b) | RowsFrom(a, b) | GroupSum(a, b) | Diagonals(a, b) | LaneGather(a, b):
            return (a, b)
        case MovedRows():
            return expr.exprs
        case Head(value) | Repeat(value) | Named(value) | OverRows(_, value):
            return (value,)
        case _:
            return ()


def select_exprs(select: tuple[Select, ...]) -> tuple[PExpr, ...]:
    """The positions that a selection is made of."""
    rows = (s.expr if isinstance(s, Row) else s.number for s in select if isinstance(s, Row | Step))
    return tuple(e for e in rows if e is not None)


def walk_physical(expr: PExpr) -> Iterator[PExpr]:
    """Every subexpression, operands first."""
    for child in physical_children(expr):
        yield from walk_physical(child)
    yield expr


def exprs_of(stmt: PStmt) -> Iterator[PExpr]:
    """Every expression that a statement evaluates, loops inside included."""
    match stmt:
        case Bind():
            yield stmt.value
        case Keep():
            yield from (stmt.value, *stmt.at)
        case Write():
            yield from (stmt.value, *select_exprs(stmt.select))
            if (rows := stmt.rows) is not None:
                yield from (e for e in (rows.place, rows.live, rows.stop) if e is not None)
        case Inner():
            yield from (e for c in stmt.carries for e in (c.init, c.next))
            yield from (expr for inner in stmt.body for expr in exprs_of(inner))
        case _:
            assert_never(stmt)


def parts_of(stmt: PStmt) -> Iterator[PExpr]:
    """Every subexpression of those."""
    for expr in exprs_of(stmt):
        yield from walk_physical(expr)


def flat(stmts: Iterable[PStmt]) -> Iterator[PStmt]:
    """The statements, each followed by those of its own body."""
    for stmt in stmts:
        yield stmt
        if isinstance(stmt, Inner):
            yield from flat(stmt.body)


def names_read(stmt: PStmt) -> set[str]:
    """Names that a statement reads and does not define itself."""
    found = {e.name for e in parts_of(stmt) if isinstance(e, Var)}
    return found - names_made(stmt) if isinstance(stmt, Inner) else found


def names_made(stmt: PStmt) -> set[str]:
    """Names that a statement defines."""
    match stmt:
        case Bind(name):
            return {name}
        case Inner():
            own = {n for c in stmt.carries for n in (c.name, c.out)}
            return own | {n for s in stmt.body for n in names_made(s)}
        case _:
            return set()


def kept_read(stmt: PStmt) -> Iterator[Kept]:
    """Reads of values in scratch memory."""
    return (e for e in parts_of(stmt) if isinstance(e, Kept))


def kept_by(stmt: PStmt) -> set[str]:
    """Values in scratch memory that a statement writes."""
    return {s.name for s in flat((stmt,)) if isinstance(s, Keep)}
