"""Fill pads: neutral values in foreign lanes, placed where a person would write the mask.

    x = load; s = sum(x)   ->   x = where(lane in range, load, 0); s = sum(x)

A value that is masked with one fill wherever it is reduced is masked where it is made; lanes
outside of the range hold nothing that anyone may use, so that changes no result and masks once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..analysis.masks import fills
from ..ir import Apply, Assign, Body, Const, Expr, Stmt, Type, Var, walk
from ..ir.chain import Chain, Level, chain_exprs, level_statements, map_chain
from ..ir.traversal import definitions, map_stmt, rewrite, rewrite_stmt


def fill_pads(levels: tuple[Level, ...], leaf: Body, partial: Collection[str]) -> Chain:
    """Masks what reductions and products over partial tiles would otherwise see."""
    values = definitions(level_statements(levels, leaf))

    def fill(expr: Expr) -> Expr:
        return fills(expr, partial, values)

    return _mask_definitions(*map_chain(levels, leaf, lambda s: (map_stmt(s, fill),), fill))


def _mask_definitions(levels: tuple[Level, ...], leaf: Body) -> Chain:
    made = definitions(level_statements(levels, leaf))
    wanted: dict[str, set[tuple[Expr, Const]]] = {}
    for expr in chain_exprs(levels, leaf):
        for value, mask, fill in filter(None, map(_masked_name, walk(expr))):
            wanted.setdefault(value.name, set()).add((mask, fill))
    single = {n: next(iter(keys)) for n, keys in wanted.items() if len(keys) == 1 and n in made}

    def drop(expr: Expr) -> Expr | None:
        found = _masked_name(expr)
        return found[0] if found is not None and found[0].name in single else None

    def place(stmt: Stmt) -> Body:
        stmt = rewrite_stmt(stmt, drop)
        if isinstance(stmt, Assign) and stmt.name in single:
            stmt = replace(stmt, value=_merged(stmt.value, *single[stmt.name]))
        return (stmt,)

    return map_chain(levels, leaf, place, lambda e: rewrite(e, drop)) if single else (levels, leaf)


def _masked_name(expr: Expr) -> tuple[Var, Expr, Const] | None:
    """(name, mask, fill) of `where(mask of a range, name, fill)`."""
    match expr:
        case Apply("where", (mask, Var() as value, Const() as fill)):
            ranged = any(isinstance(e, Apply) and e.op == "in_range" for e in walk(mask))
            others = any(isinstance(e, Var) for e in walk(mask))
            return (value, mask, fill) if ranged and not others else None
        case _:
            return None


def _merged(value: Expr, mask: Expr, fill: Const) -> Expr:
    """`where(mask, value, fill)`, as one select if the value selects with the same fill."""
    match value:
        case Apply("where", (own, inner, Const(number))) if number == fill.value:
            both = Apply("logical_and", (own, mask), Type(value.type.shape, "bool"))
            return replace(value, args=(both, inner, fill))
    return Apply("where", (mask, value, fill), value.type)
