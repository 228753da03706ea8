"""Separate gathers: every load row by row becomes a statement of its own, without its mask.

y[t] = table[index[t]] * 2   ->   rows_1 = table[index[t]];  y[t] = rows_1 * 2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import assert_never

from tilelang import ir
from tilelang.analysis.uses import picks_rows, references
from tilelang.codegen.pallas.row_loads import by_row, gather_indices
from tilelang.ir import map_children, map_index
from tilelang.ir.names import names_in
from tilelang.ir.traversal import map_body, map_stmt


def separate_gathers(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with every load row by row in a statement of its own, without its mask."""
    taken = names_in(kernel)
    names = (n for n in (f"rows_{i}" for i in count(1)) if n not in taken)
    body: tuple[ir.Stmt, ...] = ()
    for loop in kernel.body:
        indices = gather_indices(kernel, references((loop,)))
        body += map_body((loop,), partial(_separated, indices, names))
    return replace(kernel, body=body)


def _free_of(load: ir.Load) -> ir.Load:
    """The load with index arrays read at positions, so that they need not move as blocks do."""

    return replace(load, index=tuple(_position_free(i) for i in load.index))


def _position_free(entry: ir.Index) -> ir.Index:
    return ir.Gather(_at_positions(entry.expr)) if isinstance(entry, ir.Gather) else entry


def _at_positions(expr: ir.Expr) -> ir.Expr:
    if not isinstance(expr, ir.Load):
        return map_children(expr, _at_positions)
    return replace(expr, index=tuple(_position(i, _at_positions) for i in expr.index))


def _position(entry: ir.Index, inside: Callable[[ir.Expr], ir.Expr]) -> ir.Index:
    if isinstance(entry, ir.Along) and entry.offset is not None:
        place = ir.Type((entry.axis,), "int32")
        return ir.Gather(ir.Apply("add", (ir.TileIndex(entry.axis, place), entry.offset), place))
    return map_index(entry, inside)


def _separated(
    indices: Collection[str], names: Iterator[str], stmt: ir.Stmt
) -> tuple[ir.Stmt, ...]:
    """The statement, after those of the loads in it; `indices` lie in scalar memory."""
    found: list[ir.Stmt] = []

    def hoist(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Load):
            return map_children(expr, hoist)
        mask = None if expr.mask is None else hoist(expr.mask)
        if not by_row(expr, indices):
            return replace(expr, mask=mask)
        name = next(names)
        found.append(ir.Assign(name, replace(_free_of(expr), mask=None), stmt.loc, ""))
        value = ir.Var(name, expr.type)
        if mask is None:
            return value
        other = ir.Const(expr.other, ir.Type((), expr.type.dtype))
        return ir.Apply("where", (mask, value, other), expr.type, (), expr.loc)

    match stmt:
        case ir.Assign(_, ir.Load(mask=None) as load) if by_row(load, indices):
            return (replace(stmt, value=_free_of(load)),)
        case ir.Store() if picks_rows(stmt.index):
            moved = tuple(_position_free(i) for i in stmt.index)
            mask = None if stmt.mask is None else _at_positions(stmt.mask)
            changed: ir.Stmt = replace(stmt, index=moved, value=hoist(_stored(stmt)), mask=mask)
        case ir.Assign() | ir.Store():
            changed = map_stmt(stmt, hoist)
        case ir.Loop():
            carries = tuple(replace(c, init=hoist(c.init)) for c in stmt.carries)
            first, found = found, []
            carries = tuple(replace(c, next=hoist(c.next)) for c in carries)
            return (*first, replace(stmt, body=(*stmt.body, *found), carries=carries))
        case _:
            assert_never(stmt)
    return (*found, changed)


def _stored(store: ir.Store) -> ir.Expr:
    """What is stored; rows that are combined, one by one, are combined where they are stored."""
    return store.value if store.combine is None else store.operands[1]
