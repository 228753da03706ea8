"""Lanes: the positions of a dimension as a value, and values with dimensions of one."""

from __future__ import annotations

from .types import Apply, Dim, Expr, Type


def arange(dim: Dim, start: int = 0) -> Apply:
    """start, start + 1, ... along a dimension."""
    return Apply("arange", (), Type((dim,), "int32"), (("start", start), ("step", 1)))


def expanded(expr: Expr, axis: int) -> Expr:
    """The value with a dimension of one at `axis`."""
    match expr:
        case Apply("squeeze", (value,)) if expr.attr("axis") == axis:
            return value
        case _:
            shape = expr.type.shape
            kind = Type((*shape[:axis], 1, *shape[axis:]), expr.type.dtype)
            return Apply("expand_dims", (expr,), kind, (("axis", axis),))


def squeezed(expr: Expr, axis: int) -> Expr:
    """The value without the dimension of one at `axis`."""
    match expr:
        case Apply("expand_dims", (value,)) if expr.attr("axis") == axis:
            return value
        case _:
            shape = expr.type.shape
            kind = Type((*shape[:axis], *shape[axis + 1 :]), expr.type.dtype)
            return Apply("squeeze", (expr,), kind, (("axis", axis),))


def leading(expr: Expr, count: int) -> Expr:
    """The value with so many dimensions of one before its own."""
    for _ in range(count):
        expr = expanded(expr, 0)
    return expr


def trailing(expr: Expr, count: int) -> Expr:
    """The value with so many dimensions of one behind its own."""
    for _ in range(count):
        expr = expanded(expr, expr.type.rank)
    return expr
