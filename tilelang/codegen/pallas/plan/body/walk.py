"""Traverse: the subexpressions of physical expressions, and names in them replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tilelang.codegen.pallas.plan.types import PExpr, Read, Row, ScalarRead, Select, TakeRows
from tilelang.ir import Apply, Var


def physical_children(expr: PExpr) -> tuple[PExpr, ...]:
    match expr:
        case Apply():
            return expr.args
        case ScalarRead():
            return expr.index
        case Read():
            return tuple(s.expr for s in expr.select if isinstance(s, Row))
        case TakeRows():
            return (expr.place, *(s.expr for s in expr.select if isinstance(s, Row)))
        case _:
            return ()


def walk_physical(expr: PExpr) -> Iterator[PExpr]:
    """Every subexpression, operands first."""
    for child in physical_children(expr):
        yield from walk_physical(child)
    yield expr


def replace_physical(expr: PExpr, values: Mapping[str, PExpr]) -> PExpr:
    """The expression with names replaced."""
    match expr:
        case Var(name) if name in values:
            return values[name]
        case Apply():
            args: Any = tuple(replace_physical(a, values) for a in expr.args)
            return replace(expr, args=args)
        case ScalarRead():
            return replace(expr, index=tuple(replace_physical(i, values) for i in expr.index))
        case Read():
            return replace(expr, select=tuple(_replace_select(s, values) for s in expr.select))
        case _:
            return expr


def _replace_select(select: Select, values: Mapping[str, PExpr]) -> Select:
    if isinstance(select, Row):
        return Row(replace_physical(select.expr, values))
    return select
