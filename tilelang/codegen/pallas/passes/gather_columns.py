"""Gather columns: one position of picked rows -> the rows, of which only that position is summed.

    table[ids[tm], 3]   ->   where(arange(C) == 3, table[ids[tm], :], 0).sum(1)

That is exact, and blind to NaN beside it.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang import ir
from tilelang.analysis.uses import picks_rows
from tilelang.codegen.pallas.target import Target, whole_lanes
from tilelang.ir import map_children
from tilelang.ir.lanes import arange, leading
from tilelang.ir.traversal import map_body, map_stmt
from tilelang.language.dtypes import wide_of


def gather_columns(kernel: ir.KernelIR, target: Target) -> ir.KernelIR:
    """The kernel without single positions of the last dimension of rows that are picked."""

    def read(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Load):
            return map_children(expr, read)
        mask = None if expr.mask is None else read(expr.mask)
        load = replace(expr, mask=mask)
        if expr.type.shape and picks_rows(expr.index) and isinstance(expr.index[-1], ir.At):
            return _column(load, kernel.tensor(load.tensor).shape[-1], target)
        return load

    def statement(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        if isinstance(stmt, ir.Store) and stmt.combine is not None and picks_rows(stmt.index):
            return (stmt,)  # the row is read where it is stored
        return (map_stmt(stmt, read),)

    return replace(kernel, body=map_body(kernel.body, statement))


def _column(load: ir.Load, size: int, target: Target) -> ir.Expr:
    """The sum over a mask of one position; of a constant one, over its register tile only."""
    at = load.index[-1]
    assert isinstance(at, ir.At)
    part = (0, size)
    if isinstance(at.expr, ir.Const):
        place = int(at.expr.value)
        part = whole_lanes(ir.Span(place, place + 1), size, target)
    lanes, dtype = part[1] - part[0], wide_of(load.type.dtype)
    logical = (*load.type.shape, lanes)
    rows: ir.Expr = replace(
        load,
        index=(*load.index[:-1], ir.Span(*part)),
        type=replace(load.type, shape=logical),
        mask=None,
    )
    if load.type.dtype != dtype:
        rows = ir.Apply("cast", (rows,), ir.Type(logical, dtype))
    one = ir.Apply("eq", (arange(lanes, part[0]), at.expr), ir.Type((lanes,), "bool"))
    one = leading(one, len(logical) - 1)
    zero = ir.Const(0, ir.Type((), dtype), weak=True)
    kept = ir.Apply("where", (one, rows, zero), ir.Type(logical, dtype))
    attrs = (("axis", len(logical) - 1), ("keepdim", False))
    column: ir.Expr = ir.Apply("sum", (kept,), ir.Type(load.type.shape, dtype), attrs)
    if load.type.dtype != dtype:
        column = ir.Apply("cast", (column,), load.type)
    if load.mask is None:
        return column
    other = ir.Const(load.other, ir.Type((), load.type.dtype))
    return ir.Apply("where", (load.mask, column, other), load.type, (), load.loc)
