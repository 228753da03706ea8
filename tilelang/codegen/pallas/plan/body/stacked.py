"""Stacked: iterations of a loop within the step that read the same block, as rows of one product.

    for h in range(32):                           for h in range(0, 32, 4):
        k = k_ref[h // 4]                             k = k_ref[h // 4]
        scores_ref[h] = q_ref[h] @ k.T                rows = q_ref[h : h + 4].reshape((64, 128))
                                                      scores = (rows @ k.T).reshape((4, 16, 128))
                                                      scores_ref[h : h + 4] = scores

A matrix unit takes a block of weights for as many rows as follow: four iterations of 16 rows cost
one change of weights and one wait instead of four.  Values of an iteration get a first dimension,
for the iterations that are stacked; what is the same for all of them stays as it is.

It is legal because iterations are independent, and because what is done with a value of several
ones is done row by row: elementwise operations, sums along its own dimensions, products of its last
one with a value that all of them share.  Anything else is left as it was.  Every number is computed
of the same numbers, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan, extents
from tilelang.codegen.pallas.plan.lives import products
from tilelang.codegen.pallas.plan.physical import PExpr, PStmt, Row, Select, parts_of
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Apply, Const, GridIndex, Type, Var
from tilelang.language.dtypes import itemsize
from tilelang.language.op import ELEMENTWISE, REDUCTIONS

from .layouts import apply

# Rows of a product that are stacked at most.  Predicted for a v6e: 4 x 16 rows take 0.57 of what 16
# rows take four times (paged attention), 4 x 256 rows 0.88; more were not looked at.
MOST = 1024

Stmts = tuple[PStmt, ...]


class NotStacked(Exception):
    """A statement that is not about rows alone."""


def stacked(
    stmts: Stmts, axes: Mapping[str, AxisPlan], axis: str, target: Target
) -> tuple[int, Stmts] | None:
    """How many iterations of `axis` are run together, and the statements that do; None: none."""
    together = _sharing(stmts, axes[axis], axis)
    if together is None or not any(any(products(s)) for s in stmts):
        return None
    stack = _Stack(axes, axis, together, target)
    try:
        return together, tuple(map(stack.statement, stmts))
    except NotStacked:
        return None


def _sharing(stmts: Stmts, plan: AxisPlan, axis: str) -> int | None:
    """How many iterations in a row read the same blocks, if that is one number."""
    shared = {n for s in stmts for e in _rows(s) if (n := _divisor(e, axis)) is not None}
    found = min(shared, default=1)
    whole = all(n % found == 0 for n in (*shared, plan.first, plan.tiles or 1))
    return found if found > 1 and whole else None


def _rows(stmt: PStmt) -> Iterator[PExpr]:
    for part in parts_of(stmt):
        if isinstance(part, physical.Read):
            yield from (s.expr for s in part.select if isinstance(s, Row))


def _divisor(expr: PExpr, axis: str) -> int | None:
    """n of `axis // n`."""
    match expr:
        case Apply("floordiv", (GridIndex(name), Const(int(n)))) if name == axis and n > 0:
            return n
        case _:
            return None


@dataclass(frozen=True)
class _Stack:
    """The statements so far; `names` are the locals that have a value for each iteration."""

    axes: Mapping[str, AxisPlan]
    axis: str
    together: int
    target: Target
    names: dict[str, Type] = field(default_factory=dict)

    def statement(self, stmt: PStmt) -> PStmt:
        match stmt:
            case physical.Bind(name):
                value, several = self.value(stmt.value)
                if several:
                    self.names[name] = value.type
                return replace(stmt, value=value)
            case physical.Keep(at=(GridIndex(name),)) if name == self.axis:
                return replace(stmt, value=self.each(stmt.value), together=self.together)
            case physical.Write(rows=None):
                select = self.select(stmt.select)
                if select is None:
                    raise NotStacked
                return replace(stmt, select=select, value=self.each(stmt.value))
            case _:
                raise NotStacked

    # ------------------------------------------------------------ values

    def each(self, expr: PExpr) -> PExpr:
        """A value that differs between iterations."""
        value, several = self.value(expr)
        if not several:
            raise NotStacked
        return value

    def wider(self, kind: Type) -> Type:
        return replace(kind, shape=(self.together, *kind.shape))

    def value(self, expr: PExpr) -> tuple[PExpr, bool]:
        """The expression, and whether it has a dimension for the iterations now."""
        if not self.differs(expr):
            return expr, False
        match expr:
            case Var():
                return replace(expr, type=self.names[expr.name]), True
            case physical.Kept(at=(GridIndex(name),)) if name == self.axis:
                return replace(expr, type=self.wider(expr.type), together=self.together), True
            case physical.Read():
                select = self.select(expr.select)
                if select is None:
                    return expr, False  # of a block that all of them share
                return replace(expr, select=select, type=self.wider(expr.type)), True
            case physical.Head(dim=dim):
                inner = self.each(expr.value)
                return replace(expr, value=inner, dim=dim + 1, type=self.wider(expr.type)), True
            case physical.Repeat():
                return replace(expr, value=self.each(expr.value), type=self.wider(expr.type)), True
            case Apply():
                return self.applied(expr)
            case _:
                raise NotStacked

    def differs(self, expr: PExpr) -> bool:
        """Whether a value is made of anything that belongs to one iteration."""
        return any(
            (isinstance(e, GridIndex) and e.axis == self.axis)
            or (isinstance(e, Var) and e.name in self.names)
            for e in physical.walk_physical(expr)
        )

    def select(self, select: tuple[Select, ...]) -> tuple[Select, ...] | None:
        """The parts of a block for all iterations; None where they are the same for each."""
        first, *rest = select or (physical.All(),)
        if any(isinstance(s, physical.Step) for s in rest) or any(
            isinstance(s, Row) and self.differs(s.expr) for s in rest
        ):
            raise NotStacked
        match first:
            case Row(GridIndex(name)) if name == self.axis:
                return (replace(first, together=self.together), *rest)
            case Row(expr) if _divisor(expr, self.axis) is not None:
                return None
            case _:
                raise NotStacked

    # ------------------------------------------------------------ operations

    def applied(self, expr: Apply) -> tuple[PExpr, bool]:
        args = [self.value(a) for a in expr.args]
        if not any(several for _, several in args):
            return expr, False  # of shared blocks alone
        if expr.op == "dot":
            return self.product(expr, *args), True
        attrs = expr.attrs
        if expr.op in REDUCTIONS:
            attrs = self.moved(expr)
        elif expr.op not in ELEMENTWISE and expr.op != "broadcast":
            raise NotStacked
        shape = (self.together, *expr.type.shape)
        values = tuple(a for a, _ in args)
        return apply(expr.op, values, shape, expr.type.dtype, attrs, expr.loc, expr.masks), True

    def moved(self, expr: Apply) -> tuple[tuple[str, object], ...]:
        """The attributes of a reduction, whose dimensions are one further back."""
        axis = expr.attr("axis")
        if not isinstance(axis, int) or not expr.attr("keepdim"):
            raise NotStacked
        return tuple((n, axis + 1 if n == "axis" and axis >= 0 else v) for n, v in expr.attrs)

    def product(self, expr: Apply, rows: tuple[PExpr, bool], other: tuple[PExpr, bool]) -> PExpr:
        """Rows of all iterations times what they share."""
        left, right = expr.args
        (i, _), batch = expr.attr("contract"), expr.attr("batch", ((), ()))
        ranks = {left.type.rank, right.type.rank}
        if not rows[1] or other[1] or batch[0] or ranks != {2} or i != 1:
            raise NotStacked
        (count, depth), (_, width) = (extents(e.type, self.axes) for e in (left, expr))
        each = self.target.rows(itemsize(left.type.dtype))
        if count % each or self.together * count > MOST:
            raise NotStacked
        whole = (self.together * count, depth)
        assert math.prod(whole) == math.prod((self.together, *extents(left.type, self.axes)))
        flat = apply("reshape", (rows[0],), whole, left.type.dtype)
        dtype, loc = expr.type.dtype, expr.loc
        found = apply(
            "dot", (flat, other[0]), (whole[0], width), dtype, expr.attrs, loc, expr.masks
        )
        shape = (self.together, *expr.type.shape)
        return apply("reshape", (found,), shape, dtype)
