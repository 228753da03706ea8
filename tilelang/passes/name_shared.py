"""Name shared: a value that one statement uses several times gets a name and is computed once.

    p = softmax(s)   ->   p_max = max(s); p_exp = exp(s - p_max); p = p_exp / sum(p_exp)

Builders share nodes; later passes rebuild expressions and would lose that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from ..errors import Loc
from ..ir import Apply, Assign, Body, Expr, KernelIR, Load, Loop, Stmt, Store, Var
from ..ir.names import names_in, take
from ..ir.traversal import children, map_body, map_children, map_stmt
from ..language.op import OPS


def name_shared(ir: KernelIR) -> KernelIR:
    """The kernel with every shared value named."""
    names = names_in(ir)
    return replace(ir, body=map_body(ir.body, lambda stmt: _statement(stmt, names)))


def _statement(stmt: Stmt, names: set[str]) -> Body:
    """The statement, after those of its shared values; those of a loop's are made in its body."""
    made: list[Stmt] = []
    match stmt:
        case Assign():
            visit = _named((stmt.value,), stmt.user, stmt.loc, names, made)
        case Store():
            roots = (stmt.value,) if stmt.mask is None else (stmt.value, stmt.mask)
            visit = _named(roots, stmt.tensor, stmt.loc, names, made)
        case Loop():
            visit = _named(tuple(c.next for c in stmt.carries), "next", stmt.loc, names, made)
            carries = tuple(replace(c, next=visit(c.next)) for c in stmt.carries)
            return (replace(stmt, body=(*stmt.body, *made), carries=carries),)
        case _:
            assert_never(stmt)
    changed = map_stmt(stmt, visit)
    return (*made, changed)


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
            name = take(f"{base}_{_word(expr)}", names)
            made.append(Assign(name, built, loc, name))
            built = Var(name, built.type)
        done[id(expr)] = built
        return built

    return visit


def _count(expr: Expr, uses: dict[int, int]) -> None:
    """Counts the places that compute each node: what has no name is computed at each of them."""
    uses[id(expr)] = uses.get(id(expr), 0) + 1
    if uses[id(expr)] == 1 or not _worth_a_name(expr):
        for child in children(expr):
            _count(child, uses)


def _worth_a_name(expr: Expr) -> bool:
    if isinstance(expr, Load):
        return bool(expr.type.shape)
    return isinstance(expr, Apply) and (expr.op not in OPS or OPS[expr.op].cost != "free")


def _word(expr: Expr) -> str:
    return expr.op if isinstance(expr, Apply) else expr.tensor if isinstance(expr, Load) else "it"
