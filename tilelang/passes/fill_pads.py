"""Fill pads: neutral values in foreign lanes, placed where a person would write the mask.

    x = load; s = sum(x)   ->   x = where(lane in range, load, 0); s = sum(x)

A value that is masked with one fill wherever it is reduced is masked where it is made; lanes
outside of the range hold nothing that anyone may use, so that changes no result and masks once.
What relied on the lanes that it changes is masked after that, too: 0 * x of lanes where x was 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..analysis.masks import FillNeed, Reads, fills, needs, unknown
from ..ir import Apply, Assign, Body, Const, Expr, Stmt, Type, Var, walk
from ..ir.chain import Chain, Level, chain_exprs, level_statements, map_chain
from ..ir.traversal import definitions, map_stmt, rewrite, rewrite_stmt


def fill_pads(
    levels: tuple[Level, ...], leaf: Body, partial: Collection[str], reads: Reads = unknown
) -> Chain:
    """Masks what reductions and products over partial tiles would otherwise see."""
    filled = _filled(levels, leaf, partial, reads)
    moved = _mask_definitions(*filled, partial)
    return _filled(*moved, partial, reads) if _differ(filled, moved) else moved


def _differ(before: Chain, after: Chain) -> bool:
    return before != after


def _filled(levels: tuple[Level, ...], leaf: Body, partial: Collection[str], reads: Reads) -> Chain:
    values = definitions(level_statements(levels, leaf))

    def fill(expr: Expr) -> Expr:
        return fills(expr, partial, values, reads)

    return map_chain(levels, leaf, lambda s: (map_stmt(s, fill),), fill)


def _mask_definitions(levels: tuple[Level, ...], leaf: Body, partial: Collection[str]) -> Chain:
    made = definitions(level_statements(levels, leaf))
    wanted: dict[str, set[tuple[Expr, Const] | FillNeed]] = {}
    for expr in chain_exprs(levels, leaf):
        for value, mask, fill in filter(None, map(_masked_name, walk(expr))):
            wanted.setdefault(value.name, set()).add((mask, fill))
    for expr in chain_exprs(levels, leaf):
        for name, need in _as_they_are(expr, partial):
            wanted.get(name, set()).add(need)
    single = {
        n: key
        for n, (key, *others) in wanted.items()
        if not others and n in made and not isinstance(key, FillNeed)
    }

    def drop(expr: Expr) -> Expr | None:
        found = _masked_name(expr)
        return found[0] if found is not None and found[0].name in single else None

    def place(stmt: Stmt) -> Body:
        stmt = rewrite_stmt(stmt, drop)
        if isinstance(stmt, Assign) and stmt.name in single:
            stmt = replace(stmt, value=_merged(stmt.value, *single[stmt.name]))
        return (stmt,)

    return map_chain(levels, leaf, place, lambda e: rewrite(e, drop)) if single else (levels, leaf)


def _as_they_are(expr: Expr, partial: Collection[str]) -> Iterator[tuple[str, FillNeed]]:
    """(name, need) of the values that hold what a reduction needs, and must go on doing so."""
    for part in walk(expr):
        if isinstance(part, Apply):
            for need in needs(part, partial):
                operand = part.args[need.operand]
                if isinstance(operand, Var):
                    yield operand.name, need


def _masked_name(expr: Expr) -> tuple[Var, Expr, Const] | None:
    """(name, mask, fill) of `where(mask of a range, name, fill)`.

    A mask of the author's, which may have taken the range in, leaves out what others use.
    """
    match expr:
        case Apply("where", (mask, Var() as value, Const() as fill)):
            return (value, mask, fill) if _of_ranges(mask) else None
        case _:
            return None


def _of_ranges(mask: Expr) -> bool:
    """Whether a mask leaves out lanes outside of ranges, and no others."""
    match mask:
        case Apply("in_range"):
            return True
        case Apply("expand_dims" | "broadcast" | "logical_and", args):
            return all(map(_of_ranges, args))
        case _:
            return False


def _merged(value: Expr, mask: Expr, fill: Const) -> Expr:
    """`where(mask, value, fill)`, as one select if the value selects with the same fill."""
    match value:
        case Apply("where", (own, inner, Const(number))) if number == fill.value:
            both = Apply("logical_and", (own, mask), Type(value.type.shape, "bool"))
            return replace(value, args=(both, inner, fill))
        case _:
            return Apply("where", (mask, value, fill), value.type)
