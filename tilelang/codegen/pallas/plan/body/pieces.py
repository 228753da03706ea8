"""Pieces: a step multiplies some rows of its tile at once, and the next ones ahead of the rest.

    scores = q @ k.T                        products = lambda i: q[rows of i] @ k.T
    p = exp(scores - max(scores))           ahead = products(0)
    out = p @ v                             for i in range(4):
                                                scores, ahead = ahead, products(i + 1)
                                                p = exp(scores - max(scores))
                                                out[rows of i] = p @ v

The matrix units have nothing to do while a step computes what its second product needs, and the
others nothing while they multiply.  The core runs what is written in order, so the next product has
to be written before that.

It is legal because rows of a parallel loop do not meet: every statement of the section computes a
row of the same rows, reads and writes those only of memory that any of them writes, and all rows
use the rest as it is.  Every number is computed of the same numbers, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan, Range, extents
from tilelang.codegen.pallas.plan.physical import All, Bind, PExpr, PStmt, Row, Select, Step
from tilelang.codegen.pallas.plan.reads import sources, targets
from tilelang.codegen.pallas.plan.types import Launch, Section
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Apply, Dim, GridIndex, TileIndex, Type, Var, integers
from tilelang.ir.names import first_free
from tilelang.language.op import ELEMENTWISE, REDUCTIONS

from .by_phases import halves
from .layouts import apply

# Predicted for a v6e (attention, D = 128): pieces of 128 x 4096 scores take 0.78 of what 512 rows
# take at once, 256 x 1024 0.98; 256 x 512 take 1.02, and 128 x 512 1.18.  That is what units that
# are 256 lanes wide multiply in some cycles; others do half of it: for a v5e pieces of 128 x 1024
# take 0.93 of what 256 x 1024 do, 0.92 of 128 x 2048 and 0.88 of 128 x 4096.
ROWS_LEAST, NUMBERS_LEAST = 128, 1 << 17

WHY = "its rows do not meet; products of the next piece come before the rest of one"

Stmts = tuple[PStmt, ...]


class NotCut(Exception):
    """A statement that is not about rows alone."""


def in_pieces(launch: Launch, rows: int | None, target: Target) -> Launch | None:
    """The launch with a section in pieces of so many rows; None if there is none that can be.

    None of rows: as many as pay, if any do.  A piece is made of whole registers.
    """
    if rows is not None and not target.interpreted and rows % target.rows(1):
        return None
    tried = (
        _cut(launch, section, axis, rows, target)
        for section in launch.sections
        for axis in _candidates(launch, section)
    )
    return next((found for found in tried if found is not None), None)


def _candidates(launch: Launch, section: Section) -> Iterator[AxisPlan]:
    """Parallel loops over tiles of which a step has one."""
    if section.title or any(isinstance(s, physical.Inner) for s in section.body):
        return
    for axis in launch.axes:
        if axis.kind == "parallel" and axis.block is not None and axis.length is None:
            yield axis


def _cut(
    launch: Launch, section: Section, axis: AxisPlan, rows: int | None, target: Target
) -> Launch | None:
    """The launch with a section in pieces of the rows of `axis`."""
    size = _paying(launch, section, axis, target) if rows is None else rows
    if not size or not _divides(size, axis.size):
        return None
    piece = _piece(launch, axis, size)
    rewriting = _Rows(axis.name, Step(piece.name, size))
    try:
        before, inside = rewriting.body(section.body)
    except NotCut:
        return None
    found = halves(inside)
    if found is None or not _apart(before, inside, rewriting.part):
        return None
    first, rest, handed = found
    names = tuple(s.name for s in handed)
    loop = physical.Inner(
        piece.name, "unroll", (), (*first, *rest), axis.loc, ahead=len(first), handed=names
    )
    new = replace(section, body=(*before, loop))
    sections = tuple(new if s is section else s for s in launch.sections)
    return replace(launch, axes=(*launch.axes, piece), sections=sections)


def _divides(rows: int, tile: int) -> bool:
    """Whether a tile is several whole pieces: rows of no piece would be computed by nobody."""
    return rows < tile and tile % rows == 0


def _paying(launch: Launch, section: Section, axis: AxisPlan, target: Target) -> int:
    """Rows of a piece where they are work enough for the units to overlap; else 0."""
    _, wide = _columns(launch, section, axis)
    if not wide:
        return 0
    least = NUMBERS_LEAST << target.wide
    size = max(ROWS_LEAST, least // (1 << (wide - 1).bit_length()))
    return size if size * wide >= least else 0


def _columns(launch: Launch, section: Section, axis: AxisPlan) -> tuple[Dim, int]:
    """The columns of the widest product that has the rows of `axis`, and how many there are."""
    axes = {a.name: a for a in launch.axes}
    types = (e.type for s in section.body for e in physical.parts_of(s) if _is_product(e))
    wide = ((t.shape[-1], extents(t, axes)[-1]) for t in types if t.shape[:1] == (axis.name,))
    return max(wide, key=lambda each: each[1], default=(0, 0))


def with_fewer_columns(launch: Launch, target: Target) -> dict[str, int]:
    """Blocks of half as many numbers, of which the least rows of a piece have no more than pay.

    Nothing where they have no more already, or columns are no tiles, or steps run no pieces.  Nor
    with units that are 256 lanes wide: 2048 keys take 1.03 of what 4096 do on v6e, 1.04 on 7x.
    """
    if target.wide:
        return {}
    most = NUMBERS_LEAST // ROWS_LEAST
    for section in launch.sections if in_pieces(launch, None, target) is not None else ():
        for axis in _candidates(launch, section):
            name, wide = _columns(launch, section, axis)
            if isinstance(name, str) and launch.axis(name).block is not None and wide > most:
                rows = min(axis.size * wide // most // 2, axis.positions)
                return {name: most, axis.name: rows}
    return {}


def _is_product(expr: PExpr) -> bool:
    return isinstance(expr, Apply) and expr.op == "dot"


def _piece(launch: Launch, axis: AxisPlan, size: int) -> AxisPlan:
    """The loop over the pieces of a tile."""
    taken = {a.name for a in launch.axes}
    name = first_free(f"{axis.name}_piece", lambda n: n in taken)
    count = axis.size // size
    origin = integers.add(axis.tile.origin, integers.mul(GridIndex(name), size))
    tile = replace(axis.tile, origin=origin)
    return replace(
        axis, name=name, why=WHY, place="inner", first=0, tiles=count, limit=count, base=None,
        block=size, range=Range(stop=integers.const(count)), tile=tile,
    )  # fmt: skip


def _apart(before: Stmts, inside: Stmts, part: Step) -> bool:
    """Whether pieces write nothing that all of them use."""
    used = {name for s in before for e in physical.parts_of(s) for name in sources(e)}
    for stmt in inside:
        for expr in physical.parts_of(stmt):
            whole = isinstance(expr, physical.Kept) and expr.part is None
            whole |= isinstance(expr, physical.Read) and part not in expr.select
            used |= sources(expr) if whole else set()
    return used.isdisjoint(targets(inside))


# ---------------------------------------------------------------- statements about some rows


@dataclass(frozen=True)
class _Rows:
    """Rewrites statements about the rows of `axis`, their first dimension, for a part of them.

    places  where in the selection of a window those rows are
    shared  computed factors of products that are the same for all rows
    """

    axis: str
    part: Step
    places: dict[str, int] = field(default_factory=dict)
    shared: list[Bind] = field(default_factory=list)

    def body(self, stmts: Stmts) -> tuple[Stmts, Stmts]:
        """The statements that all rows share, and those of some rows."""
        before: list[PStmt] = []
        inside: list[PStmt] = []
        for stmt in stmts:
            if isinstance(stmt, Bind) and not self.own(stmt.value):
                before.append(stmt)
            else:
                inside.append(self.statement(stmt))
        return (*before, *self.shared), tuple(inside)

    def statement(self, stmt: PStmt) -> PStmt:
        match stmt:
            case Bind():
                return replace(stmt, value=self.value(stmt.value))
            case physical.Keep(at=(), part=None) if self.own(stmt.value):
                return replace(stmt, value=self.value(stmt.value), part=self.rows)
            case physical.Write(rows=None, turned=False) if self.own(stmt.value):
                select = self.select(stmt.ref, stmt.select, stmt.value.type)
                return replace(stmt, value=self.value(stmt.value), select=select)
            case _:
                raise NotCut

    @property
    def rows(self) -> physical.Piece:
        """The rows in scratch memory."""
        return physical.Piece(self.part.axis, self.part.block)

    def own(self, expr: PExpr) -> bool:
        """Whether an expression has anything to do with these rows."""
        return any(
            (isinstance(e, TileIndex) and e.axis == self.axis)
            or (isinstance(e, physical.InRange) and e.mask.axis == self.axis)
            or self.axis in getattr(getattr(e, "type", None), "shape", ())
            for e in physical.walk_physical(expr)
        )

    def kind(self, kind: Type) -> Type:
        """The type of some of the rows, which are the first of two dimensions."""
        if kind.rank != 2 or kind.shape[0] != self.axis or kind.shape[1] == self.axis:
            raise NotCut
        return replace(kind, shape=(self.part.axis, kind.shape[1]))

    def value(self, expr: PExpr) -> PExpr:
        if not self.own(expr):
            return expr
        kind = self.kind(expr.type)
        match expr:
            case Var():
                return replace(expr, type=kind)
            case physical.Kept(at=(), part=None):
                return replace(expr, type=kind, part=self.rows)
            case physical.Read(turned=False):
                select = self.select(expr.ref, expr.select, expr.type)
                return replace(expr, type=kind, select=select)
            case TileIndex():
                return replace(expr, axis=self.part.axis, type=kind)
            case physical.InRange():
                return replace(expr, mask=replace(expr.mask, axis=self.part.axis), type=kind)
            case physical.Head(dim=1) | physical.Repeat():
                return replace(expr, value=self.value(expr.value), type=kind)
            case physical.LaneGather():
                return replace(expr, place=self.value(expr.place), type=kind)
            case Apply():
                return self.applied(expr, kind)
            case _:
                raise NotCut

    def select(self, ref: str, select: tuple[Select, ...], kind: Type) -> tuple[Select, ...]:
        """The part of a block that some of the rows are, always along the same dimension."""
        self.kind(kind)
        places = [i for i, s in enumerate(select) if not isinstance(s, Row)]
        if len(places) != 2 or select[places[0]] != All():
            raise NotCut
        if self.places.setdefault(ref, places[0]) != places[0]:
            raise NotCut
        return tuple(self.part if i == places[0] else s for i, s in enumerate(select))

    def applied(self, expr: Apply, kind: Type) -> Apply:
        """What is done row by row: a sum, or a product, whose result has the rows still."""
        rowwise = expr.op in ELEMENTWISE or expr.op in REDUCTIONS
        if not rowwise and expr.op not in ("broadcast", "full", "dot"):
            raise NotCut
        args = tuple(map(self.value, expr.args))
        if expr.op == "dot" and isinstance(args[1], Apply):
            args = (args[0], self.once(args[1]))
        return apply(expr.op, args, kind.shape, kind.dtype, expr.attrs, expr.loc, expr.masks)

    def once(self, value: PExpr) -> Var:
        """A value that is computed before the loop."""
        name = f"factor.{len(self.shared)}"
        self.shared.append(Bind(name, value, None, "factor"))
        return Var(name, value.type)
