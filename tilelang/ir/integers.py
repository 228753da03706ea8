"""Scalar index arithmetic on IR expressions, folded as it is built so that no `- 0` is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .traversal import walk
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
        if (value := _negated(other)) is not None:
            return sub(kept, value)
    return Apply("add", (a, b), INT)


def _negated(expr: Expr) -> Expr | None:
    """x, if the expression is -x or 0 - x."""
    match expr:
        case Apply("neg", (x,)) | Apply("sub", (Const(0), x)):
            return x
        case _:
            return None


def sub(a: Expr, b: Expr) -> Expr:
    """a - b"""
    left, right = value_of(a), value_of(b)
    if left is not None and right is not None:
        return const(left - right)
    if right == 0:
        return a
    if (value := _negated(b)) is not None:
        return add(a, value)
    match a:
        case Apply("add", (x, y)) if b in (x, y):
            return y if b == x else x
        case _:
            return const(0) if a == b else Apply("sub", (a, b), INT)


def mul(a: Expr, by: int) -> Expr:
    """a * by"""
    left = value_of(a)
    if left is not None or by == 0:
        return const((left or 0) * by)
    return a if by == 1 else Apply("mul", (a, const(by)), INT)


def floordiv(a: Expr, by: int) -> Expr:
    """a // by"""
    return _computed("floordiv", a, const(by), lambda left, right: left // right)


def mod(a: Expr, by: int) -> Expr:
    """a % by"""
    return _computed("mod", a, const(by), lambda left, right: left % right)


def minimum(a: Expr, b: Expr | int) -> Expr:
    """min(a, b)"""
    return _computed("minimum", a, const(b) if isinstance(b, int) else b, min)


def least_of(expr: Expr) -> tuple[Expr, ...]:
    """Those that an expression is the least of; itself where it is no minimum."""
    match expr:
        case Apply("minimum", args):
            return tuple(term for arg in args for term in least_of(arg))
        case _:
            return (expr,)


def most_of(expr: Expr) -> tuple[Expr, ...]:
    """Those that an expression is the greatest of; itself where it is no maximum."""
    match expr:
        case Apply("maximum", args):
            return tuple(term for arg in args for term in most_of(arg))
        case _:
            return (expr,)


def maximum(a: Expr, b: Expr | int) -> Expr:
    """max(a, b)"""
    return _computed("maximum", a, const(b) if isinstance(b, int) else b, max)


def _computed(op: str, a: Expr, b: Expr, meaning: Callable[[int, int], int]) -> Expr:
    left, right = value_of(a), value_of(b)
    if left is not None and right is not None:
        return const(meaning(left, right))
    return Apply(op, (a, b), INT)


def length(begin: Expr, end: Expr) -> Expr:
    """How long a range is: memory may hold ends so far before begins that int32 wraps."""
    return sub(maximum(end, begin), begin)


def is_multiple(expr: Expr, of: int, leaf: Callable[[Expr], bool] = lambda e: False) -> bool:
    """Whether a number is a multiple of another one, whatever its parts are; `leaf` knows some."""
    match expr:
        case Const(value):
            return int(value) % of == 0
        case Apply("add" | "sub" | "minimum" | "maximum", (a, b)) | Apply("where", (_, a, b)):
            return is_multiple(a, of, leaf) and is_multiple(b, of, leaf)
        case Apply("mul", (a, b)):
            return is_multiple(a, of, leaf) or is_multiple(b, of, leaf)
        case _:
            return of == 1 or leaf(expr)


def compare(op: str, expr: Expr, number: int) -> Apply:
    """expr < number, or another comparison; of positions, one by one"""
    return Apply(op, (expr, const(number)), Type(expr.type.shape, "bool"))


def fold(expr: Expr) -> Expr:
    """`start + (end - start)` is `end`: the range of `hl.tile(end - start)` moved by start."""
    match expr:
        case Apply("add", (a, Apply("sub", (b, c)))) if a == c:
            return b
        case Apply("add", (Apply("sub", (b, c)), a)) if a == c:
            return b
        case _:
            return expr


def clamped(expr: Expr, size: int, first: int = 0) -> Expr:
    """A position from `first` on in a dimension of that size, whatever the expression is."""
    match expr:
        case Apply("minimum", (Apply("maximum", (_, Const(a))), Const(b))) if (
            a == first and b == size - 1
        ):
            return expr
        case _:
            low = Apply("maximum", (expr, const(first)), Type(expr.type.shape, "int32"))
            return Apply("minimum", (low, const(size - 1)), low.type)


Index = GridIndex | TileScalar
Linear = tuple[dict[Index, int], int]  # what an expression takes each index times, and the rest


def _itself(expr: Expr) -> Linear | None:
    return ({expr: 1}, 0) if isinstance(expr, Index) else None


def linear(expr: Expr, leaf: Callable[[Expr], Linear | None] = _itself) -> Linear | None:
    """The expression as a sum of indices, each times a number; None if it is none.

    `leaf` says what stands for an index, or any other expression that is no sum.
    """
    match expr:
        case Const(value):
            return {}, int(value)
        case Apply("add" | "sub", (left, right)):
            return plus(linear(left, leaf), linear(right, leaf), 1 if expr.op == "add" else -1)
        case Apply("mul", (value, Const(by)) | (Const(by), value)):
            return plus(({}, 0), linear(value, leaf), int(by))
        case Apply("neg", (value,)):
            return plus(({}, 0), linear(value, leaf), -1)
        case _:
            return leaf(expr)


def plus(a: Linear | None, b: Linear | None, by: int = 1) -> Linear | None:
    """a + b * by"""
    if a is None or b is None:
        return None
    total = {e: a[0].get(e, 0) + by * b[0].get(e, 0) for e in {**a[0], **b[0]}}
    return {e: times for e, times in total.items() if times}, a[1] + by * b[1]


def anything(part: Any) -> Linear:
    """What is no sum is a part of one."""
    return {part: 1}, 0


def distance(begin: Expr, end: Expr) -> int | None:
    """end - begin where all else cancels: of c[i] * 64 + 64 and c[i] * 64 it is 64."""
    terms, rest = plus(linear(end, anything), linear(begin, anything), -1) or ({None: 1}, 0)
    return None if terms else rest


def shorter(expr: Expr) -> Expr:
    """A sum without what cancels, its numbers together: b + 16 - b is 16, a - 20 + 1 is a - 19.

    Sums of int32 wrap in any order alike.
    """
    terms, rest = linear(expr, anything) or ({}, 0)
    return expr if len(terms) + (rest != 0) >= _terms(expr) else total(terms, rest)


def total(terms: Mapping[Any, int], rest: int) -> Expr:
    """The sum of parts, each times a number, and a number."""
    found: Expr = const(0)
    for part, times in terms.items():
        found = add(found, mul(part, max(times, 0)))
    found = add(found, const(max(rest, 0)))
    for part, times in terms.items():
        found = sub(found, mul(part, max(-times, 0)))
    return sub(found, const(max(-rest, 0)))


def _terms(expr: Expr) -> int:
    return (
        sum(map(_terms, expr.args)) if isinstance(expr, Apply) and expr.op in ("add", "sub") else 1
    )
