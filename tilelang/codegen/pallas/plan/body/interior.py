"""Interior steps: those of whose lanes no mask leaves out any have a body without the masks.

    s = where(rows >= columns, q @ k.T, -inf)     @pl.when(tk * 512 + 511 <= tq * 512)
    m = max(m, s)                              ->     m = max(m, q @ k.T)
                                                  @pl.when(tk * 512 + 511 > tq * 512)
                                                      s = where(rows >= columns, q @ k.T, -inf)
                                                      m = max(m, s)

A mask is a comparison of positions, which lie between the first and the last one of a tile: it
holds in every lane where it holds for those two.  Where it does, `where(mask, a, b)` is `a`: every
number is computed of the same numbers, in the same order.  Comparisons of what memory holds stay in
both bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilelang import ir
from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.physical import Bind, InRange, PExpr, PStmt, scalar
from tilelang.codegen.pallas.plan.rewriting import rewrite, rewritten
from tilelang.codegen.pallas.plan.steps.conditions import Clear
from tilelang.codegen.pallas.plan.types import Launch, Section
from tilelang.ir import integers, map_children
from tilelang.language.op import SAME

from .sections import without_dead

BOOL = ir.Type((), "bool")
BELOW, ABOVE = {"lt": "lt", "le": "le"}, {"gt": "lt", "ge": "le"}
STEP = ("single", "dim", "table")  # where a step has one tile of a loop
Ends = tuple[ir.Expr, ir.Expr]  # the least and the largest of some positions


def with_interior(launch: Launch, section: Section) -> Launch | None:
    """The launch with a body without masks for a section; None where it has none that ends."""
    stmts = tuple(physical.flat(section.body))
    if section.title or any(isinstance(s, physical.Inner) and s.form == "pipeline" for s in stmts):
        return None
    names = {s.name: s.value for s in stmts if isinstance(s, Bind)}
    tiles = _Tiles(launch, names)
    parts = (part for stmt in section.body for part in physical.parts_of(stmt))
    limits = tightest(limit for part in parts for limit in tiles.needed(part))
    if not limits:
        return None
    body = without_dead(_named_once(tuple(rewrite(s, tiles.unmasked) for s in section.body)))
    inside = replace(section, conditions=(*section.conditions, Clear(limits)), body=body)
    edge = replace(section, conditions=(*section.conditions, Clear(limits, False)))
    place = launch.sections.index(section)
    sections = (*launch.sections[:place], inside, edge, *launch.sections[place + 1 :])
    return replace(launch, sections=sections)


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a step; `names`: what its locals stand for."""

    launch: Launch
    names: Mapping[str, PExpr]

    # ------------------------------------------------------------ where conditions hold

    def holds(self, condition: PExpr) -> tuple[ir.Apply, ...]:
        """Comparisons of scalars with which a condition holds in every lane; none: not known."""
        match self._plain(condition):
            case ir.Apply("logical_and", (a, b)):
                one, other = self.holds(a), self.holds(b)
                return (*one, *other) if one and other else ()
            case ir.Apply(op, (a, b)) if op in BELOW:
                return self._below(BELOW[op], a, b)
            case ir.Apply(op, (a, b)) if op in ABOVE:
                return self._below(ABOVE[op], b, a)
            case InRange(mask):
                return self._in_range(self.launch.axis(mask.axis))
            case _:
                return ()

    def _below(self, op: str, low: PExpr, high: PExpr) -> tuple[ir.Apply, ...]:
        below, above = self._ends(low), self._ends(high)
        if below is None or above is None:
            return ()
        return (ir.Apply(op, (below[1], above[0]), BOOL),)

    def _in_range(self, axis: AxisPlan) -> tuple[ir.Apply, ...]:
        ends = self._positions(axis)
        if ends is None or not all(self._fixed(side.bound) for side in axis.tile.sides):
            return ()
        return tuple(
            ir.Apply("lt", (ends[1], side.bound), BOOL)
            if side.op == "<"
            else ir.Apply("le", (side.bound, ends[0]), BOOL)
            for side in axis.tile.sides
        )

    def _plain(self, expr: PExpr) -> PExpr:
        """What lanes hold, whatever their shape and name."""
        while True:
            match expr:
                case ir.Var(name) if name in self.names:
                    expr = self.names[name]
                case ir.Apply(op, (value,)) if op in SAME:
                    expr = value
                case _:
                    return expr

    def _ends(self, positions: PExpr) -> Ends | None:
        """The least and the largest of some integers, where a step knows them."""
        match self._plain(positions):
            case ir.TileIndex(name):
                axis = self.launch.axis(name)
                ends, shift = self._positions(axis), axis.shift
                if ends is None or shift is None:
                    return ends
                moved = integers.sub(ends[0], shift), integers.sub(ends[1], shift)
                return moved if self._fixed(shift) else None
            case ir.Apply("add", (a, b)):
                one, other = self._ends(a), self._ends(b)
                if one is None or other is None:
                    return None
                return integers.add(one[0], other[0]), integers.add(one[1], other[1])
            case ir.Apply("sub", (a, b)):
                one, other = self._ends(a), self._ends(b)
                if one is None or other is None:
                    return None
                return integers.sub(one[0], other[1]), integers.sub(one[1], other[0])
            case number if not _shape(number) and self._fixed(number):
                return scalar(number), scalar(number)
            case _:
                return None

    def _positions(self, axis: AxisPlan) -> Ends | None:
        """Positions of the array in the tile, or in all tiles that a step has."""
        first = last = axis.tile.origin
        if axis.place == "inner" and axis.tiles is not None and axis.base is None:
            first = _at(first, axis.name, axis.first)
            last = _at(last, axis.name, axis.first + axis.tiles - 1)
        if not self._fixed(first):
            return None
        return first, integers.add(last, integers.const(axis.size - 1))

    def _fixed(self, expr: PExpr) -> bool:
        """Whether an integer is the same for all of a step, and known before its statements."""
        return all(map(self._known, physical.walk_physical(expr)))

    def _known(self, part: PExpr) -> bool:
        match part:
            case ir.Const() | ir.Apply():
                return part.type.dtype in ("int32", "bool") and not part.type.shape
            case ir.GridIndex(axis) | ir.TileScalar(axis):
                return self.launch.axis(axis).place in STEP
            case ir.Load() | physical.ScalarRead() | physical.Tiles() | physical.Rest():
                return not part.type.shape
            case _:
                return False

    # ------------------------------------------------------------ statements without them

    def needed(self, part: PExpr) -> Iterator[ir.Apply]:
        """The comparisons that a mask needs of those that are left out."""
        for mask, _ in _masked(part):
            yield from self.holds(mask)

    def unmasked(self, expr: PExpr) -> PExpr:
        """The same value where all of the comparisons hold."""
        for mask, value in _masked(expr):
            if self.holds(mask):
                return rewritten(value, self.unmasked)
        return expr


def tightest(limits: Iterable[ir.Apply]) -> tuple[ir.Apply, ...]:
    """Of comparisons of the same two numbers, which differ by constants, the one that says most."""
    found: dict[tuple[ir.Expr, ir.Expr], tuple[int, ir.Apply]] = {}
    for limit in limits:
        (low, a), (high, b) = map(_and_constant, limit.args)
        over = a - b + (limit.op == "lt")
        if (low, high) not in found or over > found[low, high][0]:
            sides = integers.add(low, integers.const(a)), integers.add(high, integers.const(b))
            found[low, high] = over, replace(limit, args=sides)
    return tuple(limit for _, limit in found.values())


def _and_constant(expr: ir.Expr) -> tuple[ir.Expr, int]:
    """An integer as a sum of something and a constant."""
    match expr:
        case ir.Const(value):
            return integers.const(0), int(value)
        case ir.Apply("add" | "sub" as op, (a, ir.Const(value))):
            rest, constant = _and_constant(a)
            return rest, constant + (int(value) if op == "add" else -int(value))
        case _:
            return expr, 0


def _named_once(body: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """The statements without names for what has one."""
    stmts = tuple(s for s in physical.flat(body) if isinstance(s, Bind))
    names = {s.name: s.value for s in stmts if isinstance(s.value, ir.Var)}

    def known(expr: PExpr) -> PExpr:
        while isinstance(expr, ir.Var) and expr.name in names:
            expr = names[expr.name]
        return expr

    return tuple(rewrite(stmt, known) for stmt in body) if names else body


def _masked(expr: PExpr) -> Iterator[tuple[PExpr, PExpr]]:
    """Masks of a value, each with what the value is where the mask holds."""
    match expr:
        case ir.Apply("where", (mask, value, _)):
            pairs = ((mask, value),)
        case ir.Apply("logical_and", (a, b)):
            pairs = ((a, b), (b, a))
        case _:
            return
    yield from ((mask, value) for mask, value in pairs if value.type == expr.type)


def _shape(expr: PExpr) -> tuple[int | str, ...]:
    return expr.type.shape


def _at(expr: ir.Expr, axis: str, number: int) -> ir.Expr:
    """A position with a number for the index of a loop."""
    if expr == ir.GridIndex(axis):
        return integers.const(number)
    match map_children(expr, lambda e: _at(e, axis, number)):
        case ir.Apply("add", (a, b)):
            return integers.add(a, b)
        case ir.Apply("mul", (a, ir.Const(by))):
            return integers.mul(a, int(by))
        case other:
            return other
