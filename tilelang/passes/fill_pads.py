"""Fill: neutral values in foreign lanes, placed where a person would write the mask.

A value that is masked with one fill wherever it is reduced is masked where it is made; lanes
outside of the range hold nothing that anyone may use, so that changes no result and masks once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..analysis.masks import fills
from ..ir import Apply, Assign, Const, Expr, Loop, Stmt, Store, Type, Var, map_carries, walk
from ..ir.chain import Chain, Level, map_chain
from ..ir.traversal import rewrite, rewrite_stmt


def fill_lanes(
    levels: tuple[Level, ...], leaf: tuple[Stmt, ...], partial: Collection[str]
) -> Chain:
    """Masks what reductions and products over partial tiles would otherwise see."""
    everything = [s for lv in levels for s in (*lv.before, *lv.after)] + list(leaf)
    definitions = {s.name: s.value for s in deep(tuple(everything)) if isinstance(s, Assign)}

    def fill(expr: Expr) -> Expr:
        return fills(expr, partial, definitions)

    def fill_stmt(stmt: Stmt) -> Stmt:
        match stmt:
            case Assign():
                return replace(stmt, value=fill(stmt.value))
            case Store():
                mask = None if stmt.mask is None else fill(stmt.mask)
                return replace(stmt, value=fill(stmt.value), mask=mask)
            case Loop():
                body = tuple(fill_stmt(s) for s in stmt.body)
                return replace(stmt, carries=map_carries(stmt.carries, fill), body=body)

    return _mask_definitions(*map_chain(levels, leaf, fill_stmt, fill))


def deep(stmts: tuple[Stmt, ...]) -> list[Stmt]:
    """Statements, those of loops included."""
    found: list[Stmt] = []
    for stmt in stmts:
        found.append(stmt)
        if isinstance(stmt, Loop):
            found += deep(stmt.body)
    return found


def _mask_definitions(levels: tuple[Level, ...], leaf: tuple[Stmt, ...]) -> Chain:
    everything = tuple(s for lv in levels for s in (*lv.before, *lv.after)) + leaf
    stmts = deep(everything)
    made = {s.name for s in stmts if isinstance(s, Assign)}
    carried = [c for s in stmts if isinstance(s, Loop) for c in s.carries]
    carried += [c for lv in levels for c in lv.carries]
    wanted: dict[str, set[tuple[Expr, Const]]] = {}

    def note(expr: Expr) -> Expr | None:
        found = _masked_name(expr)
        if found is not None:
            name, mask, fill = found
            wanted.setdefault(name, set()).add((mask, fill))
        return None

    for stmt in stmts:
        if not isinstance(stmt, Loop):
            rewrite_stmt(stmt, note)
    for carry in carried:
        rewrite(carry.init, note)
        rewrite(carry.next, note)
    single = {n: next(iter(keys)) for n, keys in wanted.items() if len(keys) == 1 and n in made}
    if not single:
        return levels, leaf

    def drop(expr: Expr) -> Expr | None:
        found = _masked_name(expr)
        return expr.args[1] if found is not None and found[0] in single else None  # type: ignore[union-attr]

    def place(stmt: Stmt) -> Stmt:
        stmt = rewrite_stmt(stmt, drop)
        match stmt:
            case Assign() if stmt.name in single:
                return replace(stmt, value=merged(stmt.value, *single[stmt.name]))
            case Loop():
                return replace(stmt, body=tuple(place(s) for s in stmt.body))
            case _:
                return stmt

    return map_chain(levels, leaf, place, lambda e: rewrite(e, drop))


def _masked_name(expr: Expr) -> tuple[str, Expr, Const] | None:
    """(name, mask, fill) of `where(mask of a range, name, fill)`."""
    if not (isinstance(expr, Apply) and expr.op == "where"):
        return None
    mask, value, fill = expr.args
    ranged = any(isinstance(e, Apply) and e.op == "in_range" for e in walk(mask))
    others = any(isinstance(e, Var) for e in walk(mask))
    if isinstance(value, Var) and isinstance(fill, Const) and ranged and not others:
        return value.name, mask, fill
    return None


def _same_number(expr: Expr, fill: Const) -> bool:
    return isinstance(expr, Const) and expr.value == fill.value


def merged(value: Expr, mask: Expr, fill: Const) -> Expr:
    """`where(mask, value, fill)`, as one select if the value selects with the same fill."""
    if isinstance(value, Apply) and value.op == "where" and _same_number(value.args[2], fill):
        own, inner, _ = value.args
        both = Apply("logical_and", (own, mask), Type(value.type.shape, "bool"))
        return replace(value, args=(both, inner, fill))
    return Apply("where", (mask, value, fill), value.type)
