"""Nest: one top-level loop -> a chain of levels, with single-trip loops written out.

    for g: A; for t: B; (for k: C); D       ->   levels (g: A, -), (t: B, D), (k: C)

Loops that run once disappear here, so later stages never guard a loop of one step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ..ir import (
    Assign,
    Expr,
    GridIndex,
    Loop,
    Stmt,
    Store,
    Var,
    statement_exprs,
    statements,
    walk,
)
from ..ir.traversal import rewrite, rewrite_stmt, substitute


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
