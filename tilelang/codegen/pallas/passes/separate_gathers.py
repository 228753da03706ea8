"""Separate gathers: every load row by row becomes a statement of its own, without its mask.

y[t] = table[index[t]] * 2   ->   rows_1 = table[index[t]];  y[t] = rows_1 * 2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import assert_never

from tilelang.analysis.uses import picks_rows, references
from tilelang.codegen.pallas.row_loads import by_row, gather_indices
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    Const,
    Expr,
    Gather,
    Index,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    TileIndex,
    Type,
    Var,
    map_children,
    map_index,
)
from tilelang.ir.names import names_in
from tilelang.ir.traversal import map_body, map_stmt


def separate_gathers(ir: KernelIR) -> KernelIR:
    """The kernel with every load row by row in a statement of its own, without its mask."""
    taken = names_in(ir)
    names = (n for n in (f"rows_{i}" for i in count(1)) if n not in taken)
    body: tuple[Stmt, ...] = ()
    for loop in ir.body:
        indices = gather_indices(ir, references((loop,)))
        body += map_body((loop,), partial(_separated, indices, names))
    return replace(ir, body=body)


def _free_of(load: Load) -> Load:
    """The load with index arrays read at positions, so that they need not move as blocks do."""

    return replace(load, index=tuple(_position_free(i) for i in load.index))


def _position_free(entry: Index) -> Index:
    return Gather(_at_positions(entry.expr)) if isinstance(entry, Gather) else entry


def _at_positions(expr: Expr) -> Expr:
    if not isinstance(expr, Load):
        return map_children(expr, _at_positions)
    return replace(expr, index=tuple(_position(i, _at_positions) for i in expr.index))


def _position(entry: Index, inside: Callable[[Expr], Expr]) -> Index:
    if isinstance(entry, Along) and entry.offset is not None:
        place = Type((entry.axis,), "int32")
        return Gather(Apply("add", (TileIndex(entry.axis, place), entry.offset), place))
    return map_index(entry, inside)


def _separated(indices: Collection[str], names: Iterator[str], stmt: Stmt) -> tuple[Stmt, ...]:
    """The statement, after those of the loads in it; `indices` lie in scalar memory."""
    found: list[Stmt] = []

    def hoist(expr: Expr) -> Expr:
        if not isinstance(expr, Load):
            return map_children(expr, hoist)
        mask = None if expr.mask is None else hoist(expr.mask)
        if not by_row(expr, indices):
            return replace(expr, mask=mask)
        name = next(names)
        found.append(Assign(name, replace(_free_of(expr), mask=None), stmt.loc, ""))
        value = Var(name, expr.type)
        if mask is None:
            return value
        other = Const(expr.other, Type((), expr.type.dtype))
        return Apply("where", (mask, value, other), expr.type, (), expr.loc)

    match stmt:
        case Assign(_, Load(mask=None) as load) if by_row(load, indices):
            return (replace(stmt, value=_free_of(load)),)
        case Store() if picks_rows(stmt.index):
            moved = tuple(_position_free(i) for i in stmt.index)
            mask = None if stmt.mask is None else _at_positions(stmt.mask)
            changed: Stmt = replace(stmt, index=moved, value=hoist(_stored(stmt)), mask=mask)
        case Assign() | Store():
            changed = map_stmt(stmt, hoist)
        case Loop():
            carries = tuple(replace(c, next=hoist(c.next)) for c in stmt.carries)
            return (replace(stmt, body=(*stmt.body, *found), carries=carries),)
        case _:
            assert_never(stmt)
    return (*found, changed)


def _stored(store: Store) -> Expr:
    """What is stored; rows that are combined, one by one, are combined where they are stored."""
    if store.combine is None:
        return store.value
    assert isinstance(store.value, Apply) and store.value.op == store.combine
    return store.value.args[1]
