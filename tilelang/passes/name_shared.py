"""Share: a value that one statement uses several times gets a name, so that it is computed once.

    p = softmax(s)   ->   p_max = max(s); p_exp = exp(s - p_max); p = p_exp / sum(p_exp)

Builders share nodes; later passes rebuild expressions and would lose that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import Loc
from ..ir import (
    Apply,
    Assign,
    Carry,
    Expr,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
    children,
    map_children,
    statements,
)
from ..language.op import OPS


def _fresh(taken: set[str], wish: str) -> str:
    """The wished name, or the first free one with a number; it is taken from then on."""
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    taken.add(name)
    return name


def share(ir: KernelIR) -> KernelIR:
    """The kernel with every shared value named."""
    names = {t.name for t in ir.tensors} | {a.name for a in ir.axes}
    for stmt in statements(ir.body):
        names |= _defined(stmt)
    body = tuple(s for stmt in ir.body for s in _statement(stmt, names))
    return replace(ir, body=body)


def _defined(stmt: Stmt) -> set[str]:
    match stmt:
        case Assign(name):
            return {name}
        case Loop():
            return {n for c in stmt.carries for n in (c.name, c.out)}
        case _:
            return set()


def _statement(stmt: Stmt, names: set[str]) -> tuple[Stmt, ...]:
    made: list[Stmt] = []
    match stmt:
        case Assign():
            value = _named((stmt.value,), stmt.user or stmt.name, stmt.loc, names, made)(stmt.value)
            return (*made, replace(stmt, value=value))
        case Store():
            roots = (stmt.value,) if stmt.mask is None else (stmt.value, stmt.mask)
            visit = _named(roots, stmt.tensor, stmt.loc, names, made)
            mask = None if stmt.mask is None else visit(stmt.mask)
            stored = replace(stmt, value=visit(stmt.value), mask=mask)
            return (*made, stored)
        case Loop():
            body = [s for inner in stmt.body for s in _statement(inner, names)]
            roots = tuple(c.next for c in stmt.carries)
            visit = _named(roots, "next", stmt.loc, names, body)
            carries = tuple(_carry(c, visit) for c in stmt.carries)
            return (replace(stmt, body=tuple(body), carries=carries),)


def _carry(carry: Carry, visit: Callable[[Expr], Expr]) -> Carry:
    return replace(carry, next=visit(carry.next))


def _named(
    roots: tuple[Expr, ...], base: str, loc: Loc, names: set[str], made: list[Stmt]
) -> Callable[[Expr], Expr]:
    """A rewriting that names shared nodes; their assignments are appended to `made`."""
    uses: dict[int, int] = {}
    for root in roots:
        _count(root, uses)
    done: dict[int, Expr] = {}

    def visit(expr: Expr) -> Expr:
        if id(expr) in done:
            return done[id(expr)]
        built = map_children(expr, visit)
        if uses.get(id(expr), 0) > 1 and _worth_a_name(expr):
            name = _fresh(names, f"{base}_{_word(expr)}")
            made.append(Assign(name, built, loc, name))
            built = Var(name, built.type)
        done[id(expr)] = built
        return built

    return visit


def _count(expr: Expr, uses: dict[int, int]) -> None:
    """Counts the places that use each node; children of a node seen before count once."""
    uses[id(expr)] = uses.get(id(expr), 0) + 1
    if uses[id(expr)] == 1:
        for child in children(expr):
            _count(child, uses)


def _worth_a_name(expr: Expr) -> bool:
    if isinstance(expr, Load):
        return bool(expr.type.shape)
    return isinstance(expr, Apply) and (expr.op not in OPS or OPS[expr.op].cost != "free")


def _word(expr: Expr) -> str:
    return expr.op if isinstance(expr, Apply) else expr.tensor if isinstance(expr, Load) else "it"
