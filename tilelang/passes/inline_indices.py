"""Expand: loop bounds and indices are written out in terms of loop indices and scalar memory.

    start = offsets[g]; hl.tile(start, ...)   ->   bounds that read offsets[g]

Index maps and the step table run outside of the body, where its locals do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import Loc, PlanError
from ..ir import (
    Along,
    Apply,
    Assign,
    At,
    Carry,
    Expr,
    Gather,
    Index,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
    map_children,
    statements,
)

Definitions = Mapping[str, Expr]


def expand(ir: KernelIR) -> KernelIR:
    """The kernel with its bounds and indices written out.

    Raises PlanError at the user's line if one of them depends on a value that a loop carries.
    """
    definitions = {s.name: s.value for s in statements(ir.body) if isinstance(s, Assign)}
    axes = tuple(
        replace(
            a,
            begin=resolve(a.begin, definitions, a.loc),
            end=resolve(a.end, definitions, a.loc),
        )
        for a in ir.axes
    )
    body = tuple(_statement(s, definitions) for s in ir.body)
    return replace(ir, axes=axes, body=body)


def resolve(expr: Expr, definitions: Definitions, loc: Loc | None) -> Expr:
    match expr:
        case Var(name) if name in definitions:
            return resolve(definitions[name], definitions, loc)
        case Var(name):
            raise PlanError(
                f"this bound or index depends on {name}, which a loop changes",
                loc,
                "compute it from loop indices and from numbers loaded from tensors",
            )
        case Apply("cast", (arg,)) if arg.type.dtype == expr.type.dtype:
            return resolve(arg, definitions, loc)
        case _:
            return map_children(expr, lambda e: resolve(e, definitions, loc))


def _index(entry: Index, definitions: Definitions, loc: Loc | None) -> Index:
    match entry:
        case At(expr):
            return At(resolve(expr, definitions, loc))
        case Along(_, offset) if offset is not None:
            return replace(entry, offset=resolve(offset, definitions, loc))
        case _ if hasattr(entry, "expr"):  # a gather reads its index array where it is loaded
            return replace(entry, expr=resolve(entry.expr, definitions, loc))  # type: ignore[union-attr]
        case _:
            return entry


def _value(expr: Expr, definitions: Definitions, loc: Loc | None) -> Expr:
    if isinstance(expr, Load):
        mask = None if expr.mask is None else _value(expr.mask, definitions, loc)
        index = tuple(_index(i, definitions, expr.loc or loc) for i in expr.index)
        return replace(expr, index=index, mask=mask)
    return map_children(expr, lambda e: _value(e, definitions, loc))


def _statement(stmt: Stmt, definitions: Definitions) -> Stmt:
    match stmt:
        case Assign():
            return replace(stmt, value=_value(stmt.value, definitions, stmt.loc))
        case Store():
            visit = resolve if _at_positions(stmt) else _value
            mask = None if stmt.mask is None else visit(stmt.mask, definitions, stmt.loc)
            return replace(
                stmt,
                index=tuple(_index(i, definitions, stmt.loc) for i in stmt.index),
                value=_value(stmt.value, definitions, stmt.loc),
                mask=mask,
            )
        case Loop():
            carries = tuple(_carry(c, definitions) for c in stmt.carries)
            body = tuple(_statement(s, definitions) for s in stmt.body)
            return replace(stmt, carries=carries, body=body)


def _at_positions(store: Store) -> bool:
    """Whether rows are stored one by one: then the mask is asked for each, outside of the body."""
    return any(isinstance(entry, Gather) for entry in store.index)


def _carry(carry: Carry, definitions: Definitions) -> Carry:
    return replace(
        carry,
        init=_value(carry.init, definitions, carry.loc),
        next=_value(carry.next, definitions, carry.loc),
    )
