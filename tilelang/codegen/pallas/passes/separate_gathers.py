"""Separate gathers: every load row by row becomes a statement of its own, without its mask.

y[t] = table[index[t]] * 2   ->   rows_1 = table[index[t]];  y[t] = rows_1 * 2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import count

from tilelang.analysis.uses import Reference, picks_rows, references
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
    statements,
)
from tilelang.ir.traversal import loads
from tilelang.language.dtypes import itemsize


def separate(ir: KernelIR) -> KernelIR:
    """The kernel with every load row by row in a statement of its own, without its mask."""
    taken = {s.name for s in statements(ir.body) if isinstance(s, Assign)}
    taken |= {t.name for t in ir.tensors} | {a.name for a in ir.axes}
    names = (n for n in (f"rows_{i}" for i in count(1)) if n not in taken)
    body = (p for s in ir.body for p in _separated(s, gather_indices(ir, references((s,))), names))
    return replace(ir, body=tuple(body))


def _by_row(load: Load, indices: Collection[str]) -> bool:
    return picks_rows(load.index) or (load.tensor in indices and len(load.type.shape) == 1)


def _free_of(load: Load) -> Load:
    """The load with index arrays read at positions, so that they need not move as blocks do."""

    return replace(load, index=tuple(_position_free(i) for i in load.index))


def _position_free(entry: Index) -> Index:
    def position(expr: Expr) -> Expr:
        if not isinstance(expr, Load):
            return map_children(expr, position)
        return replace(expr, index=tuple(_position(i, position) for i in expr.index))

    return Gather(position(entry.expr)) if isinstance(entry, Gather) else entry


def _position(entry: Index, inside: Callable[[Expr], Expr]) -> Index:
    if isinstance(entry, Along) and entry.offset is not None:
        place = Type((entry.axis,), "int32")
        return Gather(Apply("add", (TileIndex(entry.axis, place), entry.offset), place))
    return map_index(entry, inside)


def _separated(stmt: Stmt, indices: Collection[str], names: Iterator[str]) -> tuple[Stmt, ...]:
    """The statement, after those of the loads in it; `indices` lie in scalar memory."""
    found: list[Stmt] = []

    def hoist(expr: Expr) -> Expr:
        if not isinstance(expr, Load):
            return map_children(expr, hoist)
        mask = None if expr.mask is None else hoist(expr.mask)
        if not _by_row(expr, indices):
            return replace(expr, mask=mask)
        name = next(names)
        found.append(Assign(name, replace(_free_of(expr), mask=None), stmt.loc, ""))
        value = Var(name, expr.type)
        if mask is None:
            return value
        other = Const(expr.other, Type((), expr.type.dtype))
        return Apply("where", (mask, value, other), expr.type, (), expr.loc)

    if isinstance(stmt, Store) and picks_rows(stmt.index):
        value = stmt.value
        if stmt.combine is not None:  # one by one, rows are combined where they are stored
            assert isinstance(value, Apply) and value.op == stmt.combine
            value = value.args[1]
        moved = tuple(_position_free(i) for i in stmt.index)
        changed: Stmt = replace(stmt, index=moved, value=hoist(value))
        return (*found, changed)
    match stmt:
        case Assign(_, Load(mask=None) as load) if _by_row(load, indices):
            return (replace(stmt, value=_free_of(load)),)
        case Assign():
            changed = replace(stmt, value=hoist(stmt.value))
        case Store():
            mask = None if stmt.mask is None else hoist(stmt.mask)
            changed = replace(stmt, value=hoist(stmt.value), mask=mask)
        case Loop():
            body = tuple(p for s in stmt.body for p in _separated(s, indices, names))
            carries = tuple(replace(c, next=hoist(c.next)) for c in stmt.carries)
            return (replace(stmt, body=(*body, *found), carries=carries),)
    return (*found, changed)


def gather_indices(ir: KernelIR, found: Iterable[Reference]) -> set[str]:
    """Tensors that pick rows, and vectors of which numbers are picked."""
    out = set()
    for reference in found:
        single = len(reference.index) == 1 and not reference.written
        for entry in reference.index:
            if isinstance(entry, Gather):
                out |= {load.tensor for load in loads(entry.expr)}
                if single and itemsize(ir.tensor(reference.tensor).dtype) == 4:
                    out.add(reference.tensor)
    return out
