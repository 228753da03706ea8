"""All lanes: a column that is carried is held in every lane of its registers.

    m_ref (256, 1)     p = exp(s - m)                      every use sends lane 0 to all others
    m_ref (256, 128)   p = exp(s - jnp.tile(m, (1, 4)))    registers are used as they are

A column takes whole registers in either case, and elementwise operations give in every lane what
they gave in the first: what is computed is the same, bit for bit.  Whoever needs the column itself
takes its first lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.physical import Kept, PExpr, PStmt, is_column
from tilelang.codegen.pallas.plan.rewriting import map_physical
from tilelang.codegen.pallas.plan.types import Section
from tilelang.ir import Apply, Const, Dim, Type, Var
from tilelang.language.dtypes import itemsize
from tilelang.language.op import ELEMENTWISE

from .layouts import apply

Axes = Mapping[str, AxisPlan]


def in_all_lanes(
    kept: tuple[Kept, ...], sections: tuple[Section, ...], axes: Axes, lanes: int
) -> tuple[tuple[Kept, ...], tuple[Section, ...]]:
    """The values in scratch memory and the sections, columns among them in all lanes."""
    wide = frozenset(k.name for k in kept if _fills(k.type))

    def scope() -> _Lanes:
        return _Lanes(axes, lanes, wide)

    held = tuple(replace(k, type=scope().spread(k.type)) if k.name in wide else k for k in kept)
    return held, tuple(replace(s, body=scope().body(s.body)) for s in sections)


def _fills(kind: Type) -> bool:
    """Whether values of that type may be held in all lanes: columns of 32-bit numbers."""
    return is_column(kind) and kind.dtype != "bool" and itemsize(kind.dtype) == 4


@dataclass(frozen=True)
class _Lanes:
    """One scope: the values in scratch memory, and the locals so far, that fill all lanes."""

    axes: Axes
    lanes: int
    kept: frozenset[str]
    names: dict[str, Type] = field(default_factory=dict)

    def spread(self, kind: Type) -> Type:
        return replace(kind, shape=(*kind.shape[:-1], self.lanes))

    def body(self, stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
        return tuple(map(self.statement, stmts))

    def statement(self, stmt: PStmt) -> PStmt:
        match stmt:
            case physical.Bind(name):
                value, wide = self.value(stmt.value)
                if not (wide and _fills(stmt.value.type)):
                    return replace(stmt, value=self.column(stmt.value))
                self.names[name] = value.type
                return replace(stmt, value=value)
            case physical.Keep(name) if name in self.kept:
                return replace(stmt, value=self.filled(stmt.value), at=self.columns(stmt.at))
            case physical.Keep():
                return replace(stmt, value=self.column(stmt.value), at=self.columns(stmt.at))
            case physical.Write():
                return replace(stmt, value=self.column(stmt.value))
            case physical.Inner():
                return self.inner(stmt)
            case _:
                assert_never(stmt)

    def inner(self, loop: physical.Inner) -> physical.Inner:
        """A loop whose carries are locals: columns among them are held in all lanes, too."""
        wide = [c for c in loop.carries if _fills(c.init.type)]
        inits = {c.name: self.filled(c.init) for c in wide}
        scope = replace(self, names={**self.names})
        scope.names.update({c.name: self.spread(c.init.type) for c in wide})
        body = scope.body(loop.body)
        carries = tuple(
            replace(c, init=inits[c.name], next=scope.filled(c.next))
            if c.name in inits
            else replace(c, init=self.column(c.init), next=scope.column(c.next))
            for c in loop.carries
        )
        self.names.update({c.out: self.spread(c.init.type) for c in wide})
        return replace(loop, carries=carries, body=body)

    # ------------------------------------------------------------ values

    def value(self, expr: PExpr) -> tuple[PExpr, bool]:
        """The expression, and whether it is a column in all lanes now."""
        match expr:
            case Kept(name) if name in self.kept:
                return replace(expr, type=self.spread(expr.type)), True
            case Var(name) if name in self.names:
                return replace(expr, type=self.names[name]), True
            case physical.Named():
                inner, wide = self.value(expr.value)
                return replace(expr, value=inner), wide
            case Apply(op, (arg,)) if op == "broadcast" and is_column(arg.type):
                value, wide = self.value(arg)
                return (self.fitted(arg, value, expr.type) if wide else expr), False
            case Apply(op) if op in ELEMENTWISE:
                return self.elementwise(expr)
            case _:
                return map_physical(expr, self.column), False

    def elementwise(self, expr: Apply) -> tuple[PExpr, bool]:
        """A column of columns stays in all lanes; against wider values they take their width."""
        args = [self.value(arg) for arg in expr.args]
        if not any(wide for _, wide in args):
            return replace(expr, args=tuple(value for value, _ in args)), False
        column = is_column(expr.type)
        kind = self.spread(expr.type) if column else expr.type
        pairs = zip(expr.args, args, strict=True)
        operands = tuple(
            self.fitted(old, new, kind) if wide and not column else new
            for old, (new, wide) in pairs
        )
        masks = expr.masks
        return apply(expr.op, operands, kind.shape, kind.dtype, expr.attrs, expr.loc, masks), column

    def fitted(self, expr: PExpr, value: PExpr, other: Type) -> PExpr:
        """A column that is in all lanes as `value`, as wide as the value that it meets."""
        if not _fills(expr.type):
            return map_physical(expr, self.column)
        width = other.shape[-1]
        size = width if isinstance(width, int) else self.axes[width].size
        if size == self.lanes:
            return value
        kind = replace(value.type, shape=(*value.type.shape[:-1], width))
        if size % self.lanes == 0:
            return physical.Repeat(value, kind)
        return (
            physical.Head(value, len(kind.shape) - 1, kind) if size < self.lanes else _first(value)
        )

    def column(self, expr: PExpr) -> PExpr:
        """The value as it was: a column in all lanes is its first lane.

        Registers of bools have no parts: they are computed of first lanes.
        """
        value, wide = self.value(expr)
        if wide and not _fills(expr.type):
            return map_physical(expr, self.column)
        return _first(value) if wide else value

    def columns(self, exprs: tuple[PExpr, ...]) -> tuple[PExpr, ...]:
        return tuple(map(self.column, exprs))

    def filled(self, expr: PExpr) -> PExpr:
        """A column that is carried, in all lanes."""
        value, wide = self.value(expr)
        if wide:
            return value
        kind = self.spread(value.type)
        match value:
            case Apply("full" | "broadcast", args) if all(isinstance(a, Const) for a in args):
                return replace(value, type=kind)
            case _:
                return apply("broadcast", (value,), kind.shape, kind.dtype)


def _first(value: PExpr) -> PExpr:
    """The first lane of a column in all lanes."""
    shape: tuple[Dim, ...] = (*value.type.shape[:-1], 1)
    return physical.Head(value, len(shape) - 1, replace(value.type, shape=shape))
