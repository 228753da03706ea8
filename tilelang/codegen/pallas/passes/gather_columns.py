"""Gather columns: one position of picked rows -> the rows, of which only that position is summed.

    table[ids[tm], 3]   ->   where(arange(C) == 3, table[ids[tm], :], 0).sum(1)

That is exact, and blind to NaN beside it.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.analysis.uses import picks_rows
from tilelang.codegen.pallas.target import Target, whole_lanes
from tilelang.ir import (
    Apply,
    At,
    Const,
    Expr,
    KernelIR,
    Load,
    Span,
    Stmt,
    Store,
    Type,
    map_children,
)
from tilelang.ir.lanes import arange, leading
from tilelang.ir.traversal import map_body, map_stmt
from tilelang.language.dtypes import wide_of


def gather_columns(ir: KernelIR, target: Target) -> KernelIR:
    """The kernel without single positions of the last dimension of rows that are picked."""

    def read(expr: Expr) -> Expr:
        if not isinstance(expr, Load):
            return map_children(expr, read)
        mask = None if expr.mask is None else read(expr.mask)
        load = replace(expr, mask=mask)
        if expr.type.shape and picks_rows(expr.index) and isinstance(expr.index[-1], At):
            return _column(load, ir.tensor(load.tensor).shape[-1], target)
        return load

    def statement(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Store) and stmt.combine is not None and picks_rows(stmt.index):
            return (stmt,)  # the row is read where it is stored
        return (map_stmt(stmt, read),)

    return replace(ir, body=map_body(ir.body, statement))


def _column(load: Load, size: int, target: Target) -> Expr:
    """The sum over a mask of one position; of a constant one, over its register tile only."""
    at = load.index[-1]
    assert isinstance(at, At)
    part = (0, size)
    if isinstance(at.expr, Const):
        place = int(at.expr.value)
        part = whole_lanes(Span(place, place + 1), size, target)
    lanes, dtype = part[1] - part[0], wide_of(load.type.dtype)
    logical = (*load.type.shape, lanes)
    rows: Expr = replace(
        load,
        index=(*load.index[:-1], Span(*part)),
        type=replace(load.type, shape=logical),
        mask=None,
    )
    if load.type.dtype != dtype:
        rows = Apply("cast", (rows,), Type(logical, dtype))
    one = Apply("eq", (arange(lanes, part[0]), at.expr), Type((lanes,), "bool"))
    one = leading(one, len(logical) - 1)
    zero = Const(0, Type((), dtype), weak=True)
    kept = Apply("where", (one, rows, zero), Type(logical, dtype))
    attrs = (("axis", len(logical) - 1), ("keepdim", False))
    column: Expr = Apply("sum", (kept,), Type(load.type.shape, dtype), attrs)
    if load.type.dtype != dtype:
        column = Apply("cast", (column,), load.type)
    if load.mask is None:
        return column
    other = Const(load.other, Type((), load.type.dtype))
    return Apply("where", (load.mask, column, other), load.type, (), load.loc)
