"""Scalar index arithmetic on IR expressions, folded as it is built so that no `- 0` is printed."""

from __future__ import annotations

from .traversal import loads, walk
from .types import Apply, Const, Expr, GridIndex, TileIndex, TileScalar, Type

INT = Type((), "int32")


def const(value: int) -> Const:
    return Const(value, INT)


def value_of(expr: Expr) -> int | None:
    """The number, if the expression is one."""
    return int(expr.value) if isinstance(expr, Const) else None


def axes(expr: Expr) -> set[str]:
    """Loop axes that a scalar expression depends on directly."""
    return {e.axis for e in walk(expr) if isinstance(e, GridIndex | TileIndex | TileScalar)}


def add(a: Expr, b: Expr) -> Expr:
    """a + b"""
    left, right = value_of(a), value_of(b)
    if left is not None and right is not None:
        return const(left + right)
    if left == 0:
        return b
    if right == 0:
        return a
    for kept, other in ((a, b), (b, a)):
        if isinstance(other, Apply) and other.op == "neg":
            return sub(kept, other.args[0])
    return Apply("add", (a, b), INT)


def sub(a: Expr, b: Expr) -> Expr:
    """a - b"""
    left, right = value_of(a), value_of(b)
    if left is not None and right is not None:
        return const(left - right)
    if right == 0:
        return a
    return const(0) if a == b else Apply("sub", (a, b), INT)


def mul(a: Expr, by: int) -> Expr:
    """a * by"""
    left = value_of(a)
    if left is not None or by == 0:
        return const((left or 0) * by)
    return a if by == 1 else Apply("mul", (a, const(by)), INT)


def fold(expr: Expr) -> Expr:
    """`start + (end - start)` is `end`: the range of `hl.tile(end - start)` moved by start."""
    match expr:
        case Apply("add", (a, Apply("sub", (b, c)))) if a == c:
            return b
        case Apply("add", (Apply("sub", (b, c)), a)) if a == c:
            return b
        case _:
            return expr


def within(expr: Expr, size: int) -> Expr:
    """A position as it is, unless it was read from memory: then it may be any number."""
    return clamped(expr, size) if next(loads(expr), None) is not None else expr


def clamped(expr: Expr, size: int) -> Expr:
    """A position that lies in a dimension of that size, whatever the expression is."""
    match expr:
        case Apply("minimum", (Apply("maximum", (_, Const(0))), Const(last))) if last == size - 1:
            return expr
    low = Apply("maximum", (expr, Const(0, INT)), INT)
    return Apply("minimum", (low, Const(size - 1, INT)), INT)
