"""Traversal: the one way to walk and to rewrite expressions and statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .types import (
    Along,
    Apply,
    Assign,
    At,
    Carry,
    Expr,
    Gather,
    Index,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
)


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replaces every subexpression for which `change` gives one; children of those are kept."""
    changed = change(expr)
    if changed is not None:
        return changed
    return map_children(expr, lambda child: rewrite(child, change))


def rewrite_stmt(stmt: Stmt, change: Callable[[Expr], Expr | None]) -> Stmt:
    """The statement with `rewrite` applied to all of its expressions."""

    def visit(expr: Expr) -> Expr:
        return rewrite(expr, change)

    match stmt:
        case Assign():
            return replace(stmt, value=visit(stmt.value))
        case Store():
            return replace(
                stmt,
                index=tuple(map_index(i, visit) for i in stmt.index),
                value=visit(stmt.value),
                mask=None if stmt.mask is None else visit(stmt.mask),
            )
        case Loop():
            body = tuple(rewrite_stmt(s, change) for s in stmt.body)
            return replace(stmt, carries=map_carries(stmt.carries, visit), body=body)


def substitute(body: tuple[Stmt, ...], values: dict[str, Expr]) -> tuple[Stmt, ...]:
    """Replaces names by values."""

    def change(expr: Expr) -> Expr | None:
        return values.get(expr.name) if isinstance(expr, Var) else None

    return tuple(rewrite_stmt(s, change) for s in body) if values else body


def loads(expr: Expr) -> Iterator[Load]:
    """Every load in an expression."""
    for child in children(expr):
        yield from loads(child)
    if isinstance(expr, Load):
        yield expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, indices of loads included."""
    match expr:
        case Apply():
            return expr.args
        case Load():
            inner = tuple(e for i in expr.index for e in index_exprs(i))
            return inner if expr.mask is None else (*inner, expr.mask)
        case _:
            return ()


def index_exprs(index: Index) -> tuple[Expr, ...]:
    """The expressions inside one index entry."""
    match index:
        case At(expr) | Gather(expr):
            return (expr,)
        case Along(_, offset) if offset is not None:
            return (offset,)
        case _:
            return ()


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
        case _:
            return index


def map_children(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """The expression rebuilt with `fn` applied to each direct subexpression."""
    match expr:
        case Apply():
            return replace(expr, args=tuple(fn(a) for a in expr.args))
        case Load():
            mask = None if expr.mask is None else fn(expr.mask)
            return replace(expr, index=tuple(map_index(i, fn) for i in expr.index), mask=mask)
        case _:
            return expr


def map_carries(carries: tuple[Carry, ...], fn: Callable[[Expr], Expr]) -> tuple[Carry, ...]:
    """The carries of a loop with `fn` applied to what they begin with and become."""
    return tuple(replace(c, init=fn(c.init), next=fn(c.next)) for c in carries)


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


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)
