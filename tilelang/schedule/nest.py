"""Nest: one top-level loop -> a chain of levels, with single-trip loops written out.

    for g: A; for t: B; (for k: C); D       ->   levels (g: A, -), (t: B, D), (k: C)

Loops that run once disappear here, so later stages never guard a loop of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from ..ir import (
    Assign,
    Carry,
    Expr,
    GridIndex,
    Loop,
    Stmt,
    Store,
    Var,
    map_carries,
    map_children,
    map_index,
    statement_exprs,
    statements,
    walk,
)


@dataclass(frozen=True)
class Level:
    """One loop of the chain: the statements before and after the loop that it contains."""

    axis: str
    carries: tuple[Carry, ...]
    before: tuple[Stmt, ...]
    after: tuple[Stmt, ...]


Chain = tuple[tuple[Level, ...], tuple[Stmt, ...]]  # levels, and what the innermost one contains


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


def map_chain(
    levels: tuple[Level, ...],
    leaf: tuple[Stmt, ...],
    statement: Callable[[Stmt], Stmt],
    carried: Callable[[Expr], Expr],
) -> Chain:
    """A chain with `statement` applied to its statements, and `carried` to what loops carry."""
    changed = tuple(
        replace(
            level,
            carries=map_carries(level.carries, carried),
            before=tuple(map(statement, level.before)),
            after=tuple(map(statement, level.after)),
        )
        for level in levels
    )
    return changed, tuple(map(statement, leaf))


def substitute(body: tuple[Stmt, ...], values: dict[str, Expr]) -> tuple[Stmt, ...]:
    """Replaces names by values."""

    def change(expr: Expr) -> Expr | None:
        return values.get(expr.name) if isinstance(expr, Var) else None

    return tuple(rewrite_stmt(s, change) for s in body) if values else body


def write_out(
    body: tuple[Stmt, ...], once: Collection[str], never: Collection[str], index: dict[str, Expr]
) -> tuple[Stmt, ...]:
    """Replaces loops over axes in `once` by their bodies and drops loops over axes in `never`.

    `index` holds the constant index of `hl.grid` axes that run once.
    """

    def change(expr: Expr) -> Expr | None:
        return index.get(expr.axis) if isinstance(expr, GridIndex) else None

    def expand(stmts: tuple[Stmt, ...], ends: dict[str, Expr]) -> tuple[Stmt, ...]:
        """The statements written out; `ends` collects what names of loops that vanish stand for."""
        out: tuple[Stmt, ...] = ()
        for position, stmt in enumerate(stmts):
            if not isinstance(stmt, Loop):
                out += (stmt,)
                continue
            rest = stmts[position + 1 :]
            if stmt.axis in never:
                values = {c.out: c.init for c in stmt.carries}
                ends |= values
                return out + expand(substitute(rest, values), ends)
            if stmt.axis in once:
                entry = {c.name: c.init for c in stmt.carries}
                inside = substitute(stmt.body, entry)
                values = {c.out: _name(c.next, entry) for c in stmt.carries}
                ends |= values
                return out + expand(inside + substitute(rest, values), ends)
            own: dict[str, Expr] = {}
            body = expand(stmt.body, own)
            carries = tuple(replace(c, next=_settle(c.next, own)) for c in stmt.carries)
            out += (replace(stmt, carries=carries, body=body),)
        return out

    return expand(tuple(rewrite_stmt(s, change) for s in body), {})


def _settle(expr: Expr, ends: dict[str, Expr]) -> Expr:
    """The expression without names of loops that vanished; those may stand for each other."""
    while any(isinstance(e, Var) and e.name in ends for e in walk(expr)):
        expr = _name(expr, ends)
    return expr


def _name(expr: Expr, entry: dict[str, Expr]) -> Expr:
    return rewrite(expr, lambda e: entry.get(e.name) if isinstance(e, Var) else None)


def drop_unused(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Removes assignments, carries and loops that no store needs."""
    return _keep(body, _needed(body))


def _needed(body: tuple[Stmt, ...]) -> set[str]:
    """Names that a store depends on, through assignments and carries."""
    sources: dict[str, set[str]] = {}
    queue: list[str] = []
    for stmt in statements(body):
        match stmt:
            case Assign():
                sources[stmt.name] = _names((stmt.value,))
            case Store():
                queue += _names(statement_exprs(stmt))
            case Loop():
                for carry in stmt.carries:
                    sources[carry.name] = sources[carry.out] = _names((carry.init, carry.next))
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += sources.get(name, ())
    return found


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {e.name for x in exprs for e in walk(x) if isinstance(e, Var)}


def _keep(body: tuple[Stmt, ...], needed: set[str]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Assign() if stmt.name not in needed:
                continue
            case Loop():
                kept = tuple(c for c in stmt.carries if not needed.isdisjoint({c.name, c.out}))
                inner = _keep(stmt.body, needed)
                if inner or kept:
                    out.append(replace(stmt, carries=kept, body=inner))
            case _:
                out.append(stmt)
    return tuple(out)


def chain(loop: Loop, stop: Callable[[Loop], bool]) -> tuple[tuple[Level, ...], tuple[Stmt, ...]]:
    """The loops that contain exactly one loop each, from the outside in, and the innermost body.

    `stop(inner)` ends the chain early: that loop stays in the body.
    """
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if len(inner) != 1 or stop(inner[0]):
        return (Level(loop.axis, loop.carries, (), ()),), loop.body
    position = loop.body.index(inner[0])
    levels, body = chain(inner[0], stop)
    before, after = loop.body[:position], loop.body[position + 1 :]
    return (Level(loop.axis, loop.carries, before, after), *levels), body


def interchange(
    levels: tuple[Level, ...], leaf: tuple[Stmt, ...], outward: Collection[str]
) -> tuple[tuple[Level, ...], tuple[Stmt, ...]]:
    """Takes the axes in `outward` out of the chain: they become outer grid dimensions.

    What stood before and after an inner loop joins the statements around the next loop further in
    when the loop between them moves out, because both then start and end together.  The first
    level that is returned has no axis: it holds what stands above every remaining loop.
    """
    remaining = [Level("", (), (), ())]
    for level in levels:
        if level.axis not in outward:
            remaining.append(level)
            continue
        host = remaining.pop()
        before, after = host.before + level.before, level.after + host.after
        remaining.append(replace(host, before=before, after=after))
    if levels[-1].axis in outward:
        host = remaining.pop()
        leaf = host.before + leaf + host.after
        remaining.append(replace(host, before=(), after=()))
    return tuple(remaining), leaf
