"""Traverse: the subexpressions of physical expressions, and names in them replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelang.codegen.pallas.plan.physical import map_physical
from tilelang.codegen.pallas.plan.types import PExpr, Read, Row, ScalarRead, Select
from tilelang.ir import Var


def replace_physical(expr: PExpr, values: Mapping[str, PExpr]) -> PExpr:
    """The expression with names replaced."""
    match expr:
        case Var(name) if name in values:
            return values[name]
        case ScalarRead():
            return replace(expr, index=tuple(replace_physical(i, values) for i in expr.index))
        case Read():
            return replace(expr, select=tuple(_replace_select(s, values) for s in expr.select))
        case _:
            return map_physical(expr, lambda e: replace_physical(e, values))


def _replace_select(select: Select, values: Mapping[str, PExpr]) -> Select:
    if isinstance(select, Row):
        return Row(replace_physical(select.expr, values))
    return select
