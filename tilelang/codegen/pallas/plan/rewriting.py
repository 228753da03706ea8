"""Rewriting: expressions and statements of a step with some parts replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

from tilelang.ir import Apply, At, Expr, Load, integers
from tilelang.ir.integers import INT
from tilelang.ir.traversal import map_children

from . import physical
from .physical import PExpr, PStmt, PutRows, Row, Select, Step

Change = Callable[[PExpr], PExpr]


def rewritten(expr: PExpr, change: Change) -> PExpr:
    """The expression with every part that `change` replaces replaced, outermost first."""
    changed = change(expr)
    return map_physical(expr, lambda e: rewritten(e, change)) if changed is expr else changed


def map_physical(expr: PExpr, change: Change) -> PExpr:
    """The expression with `change` applied to its operands."""
    scalar: Any = change  # of index arithmetic, which is shared with the IR
    match expr:
        case Apply() | Load():
            return map_children(expr, scalar)
        case physical.ScalarRead():
            return replace(expr, index=tuple(map(change, expr.index)))
        case physical.Kept():
            return replace(expr, at=tuple(map(change, expr.at)))
        case physical.Read():
            return replace(expr, select=_selected(expr.select, change))
        case physical.TakeRows():
            select = _selected(expr.select, change)
            lane = None if expr.lane is None else scalar(expr.lane)
            return replace(expr, place=scalar(expr.place), select=select, lane=lane)
        case physical.Tiles() | physical.Rest():
            return replace(expr, position=change(expr.position))
        case physical.Recorded():
            return replace(expr, row=change(expr.row))
        case physical.Roll():
            return replace(expr, value=change(expr.value), by=change(expr.by))
        case physical.RowsFrom():
            source: Any = change(expr.source)
            return replace(expr, source=source, start=change(expr.start))
        case physical.Diagonals():
            return replace(expr, line=change(expr.line), first=change(expr.first))
        case physical.LaneGather():
            return replace(expr, table=change(expr.table), place=change(expr.place))
        case physical.GroupSum():
            return replace(expr, member=change(expr.member), rows=change(expr.rows))
        case physical.MovedRows():
            source, *ends, here, there, count = map(scalar, expr.exprs)
            names = ("begin", "first", "stop", "live", "by")
            given = dict(zip(names, ends, strict=True))
            return replace(expr, source=source, here=(here, there), count=count, **given)
        case physical.Head() | physical.Repeat() | physical.Named() | physical.OverRows():
            return replace(expr, value=change(expr.value))
        case _:
            return expr


def said(expr: PExpr) -> Expr:
    """A number of a step as the IR says it, for people."""
    match map_physical(expr, said):
        case physical.ScalarRead(array, index, kind):
            return Load(array, tuple(At(physical.scalar(place)) for place in index), kind)
        case physical.Tiles(position, block):
            return integers.floordiv(physical.scalar(position), block)
        case physical.Rest(position, block):
            return Apply("mod", (physical.scalar(position), integers.const(block)), INT)
        case other:
            return physical.scalar(other)


def _selected(select: tuple[Select, ...], change: Change) -> tuple[Select, ...]:
    return tuple(_part(part, change) for part in select)


def _part(part: Select, change: Change) -> Select:
    match part:
        case Row(expr=expr):
            return replace(part, expr=change(expr))
        case Step(number=number) if number is not None:
            return replace(part, number=change(number))
        case _:
            return part


def rewrite(stmt: PStmt, change: Change) -> PStmt:
    """The statement with every expression rewritten, loops inside included."""

    def new(expr: PExpr) -> PExpr:
        return rewritten(expr, change)

    match stmt:
        case physical.Bind():
            return replace(stmt, value=new(stmt.value))
        case physical.Keep():
            return replace(stmt, value=new(stmt.value), at=tuple(map(new, stmt.at)))
        case physical.Write():
            rows = None if stmt.rows is None else _rows(stmt.rows, new)
            return replace(
                stmt, select=_selected(stmt.select, new), value=new(stmt.value), rows=rows
            )
        case physical.Inner():
            carries = tuple(replace(c, init=new(c.init), next=new(c.next)) for c in stmt.carries)
            return replace(stmt, carries=carries, body=tuple(rewrite(s, change) for s in stmt.body))
        case _:
            assert_never(stmt)


def _rows(rows: PutRows, change: Change) -> PutRows:
    scalar: Any = change
    stop = None if rows.stop is None else scalar(rows.stop)
    return replace(rows, place=scalar(rows.place), live=scalar(rows.live), stop=stop)
