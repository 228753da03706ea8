"""Traversal: the one way to walk and to rewrite expressions and statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from .types import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Carry,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    Load,
    Loop,
    Span,
    Stmt,
    Store,
    TileIndex,
    TileScalar,
    Var,
)

Change = Callable[[Expr], Expr | None]


def rewrite(expr: Expr, change: Change) -> Expr:
    """Replaces every subexpression for which `change` gives one; children of those are kept."""
    changed = change(expr)
    if changed is not None:
        return changed
    return map_children(expr, lambda child: rewrite(child, change))


def map_body(
    body: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...]]
) -> tuple[Stmt, ...]:
    """What `change` makes of each statement; a loop is asked when its body is done."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            stmt = replace(stmt, body=map_body(stmt.body, change))
        out += change(stmt)
    return tuple(out)


def map_stmt(
    stmt: Stmt,
    value: Callable[[Expr], Expr],
    index: Callable[[Index], Index] = lambda entry: entry,
) -> Stmt:
    """The statement with `value` applied to what it computes itself: value, mask, carries.

    `index` is applied to the entries of a store's index.
    """
    match stmt:
        case Assign():
            return replace(stmt, value=value(stmt.value))
        case Store():
            mask = None if stmt.mask is None else value(stmt.mask)
            return replace(
                stmt, index=tuple(map(index, stmt.index)), value=value(stmt.value), mask=mask
            )
        case Loop():
            return replace(stmt, carries=map_carries(stmt.carries, value))
        case _:
            assert_never(stmt)


def rewrite_stmt(stmt: Stmt, change: Change) -> Stmt:
    """The statement with `rewrite` applied to its own expressions, positions of stores included."""

    def visit(expr: Expr) -> Expr:
        return rewrite(expr, change)

    return map_stmt(stmt, visit, lambda entry: map_index(entry, visit))


def rewrite_body(body: tuple[Stmt, ...], change: Change) -> tuple[Stmt, ...]:
    """The statements with `rewrite` applied to all of their expressions."""
    return map_body(body, lambda stmt: (rewrite_stmt(stmt, change),))


def substitute(body: tuple[Stmt, ...], values: Mapping[str, Expr]) -> tuple[Stmt, ...]:
    """Replaces names by values."""

    def change(expr: Expr) -> Expr | None:
        return values.get(expr.name) if isinstance(expr, Var) else None

    return rewrite_body(body, change) if values else body


def inlined(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with names replaced by their values, and those in these too."""
    match expr:
        case Var(name) if name in values:
            return inlined(values[name], values)
        case Apply("cast", (arg,)) if arg.type.dtype == expr.type.dtype:
            return inlined(arg, values)
        case _:
            return map_children(expr, lambda e: inlined(e, values))


def definitions(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    """Assigned name -> value, in loops too."""
    return {s.name: s.value for s in statements(body) if isinstance(s, Assign)}


def loads(expr: Expr) -> Iterator[Load]:
    """Every load in an expression."""
    return (e for e in walk(expr) if isinstance(e, Load))


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, indices of loads included."""
    match expr:
        case Apply():
            return expr.args
        case Load():
            inner = tuple(e for i in expr.index for e in index_exprs(i))
            return inner if expr.mask is None else (*inner, expr.mask)
        case Const() | Var() | GridIndex() | TileIndex() | TileScalar():
            return ()
        case _:
            assert_never(expr)


def index_exprs(index: Index) -> tuple[Expr, ...]:
    """The expressions inside one index entry."""
    match index:
        case At(expr) | Gather(expr):
            return (expr,)
        case Along(_, offset) if offset is not None:
            return (offset,)
        case Along() | Span():
            return ()
        case _:
            assert_never(index)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every subexpression, operands first."""
    for child in children(expr):
        yield from walk(child)
    yield expr


def map_index(index: Index, fn: Callable[[Expr], Expr]) -> Index:
    """The index entry with `fn` applied to its expressions."""
    match index:
        case At(expr):
            return At(fn(expr))
        case Gather(expr):
            return Gather(fn(expr))
        case Along(_, offset) if offset is not None:
            return replace(index, offset=fn(offset))
        case Along() | Span():
            return index
        case _:
            assert_never(index)


def map_children(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """The expression rebuilt with `fn` applied to each direct subexpression."""
    match expr:
        case Apply():
            return replace(expr, args=tuple(fn(a) for a in expr.args))
        case Load():
            mask = None if expr.mask is None else fn(expr.mask)
            return replace(expr, index=tuple(map_index(i, fn) for i in expr.index), mask=mask)
        case Const() | Var() | GridIndex() | TileIndex() | TileScalar():
            return expr
        case _:
            assert_never(expr)


def map_carries(carries: tuple[Carry, ...], fn: Callable[[Expr], Expr]) -> tuple[Carry, ...]:
    """The carries of a loop with `fn` applied to what they begin with and become."""
    return tuple(replace(c, init=fn(c.init), next=fn(c.next)) for c in carries)


def map_range(axis: Axis, fn: Callable[[Expr], Expr]) -> Axis:
    """The axis with `fn` applied to its bounds."""
    return replace(axis, begin=fn(axis.begin), end=fn(axis.end))


def statement_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement evaluates itself (not those in a loop's body)."""
    match stmt:
        case Assign():
            return (stmt.value,)
        case Store():
            inner = tuple(e for i in stmt.index for e in index_exprs(i))
            return (*inner, stmt.value) if stmt.mask is None else (*inner, stmt.value, stmt.mask)
        case Loop():
            return tuple(e for c in stmt.carries for e in (c.init, c.next))
        case _:
            assert_never(stmt)


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)
