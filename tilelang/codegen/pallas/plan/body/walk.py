"""Traverse: the subexpressions of physical expressions, and names in them replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilelang.codegen.pallas.plan.types import PExpr, Read, Row, ScalarRead, Select
from tilelang.ir import Apply, Var


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
