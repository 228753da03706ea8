"""Scatter rows: stores at a position that is read from memory -> scatters of one row, where needed.

    y[index[m], :] = v   ->   y[[index[m]], :] = v[None, :]

A block that any step may visit again must hold the whole array.  Where it cannot, the row goes to
where the array lies, as the rows of a scatter do.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.analysis.uses import reads_memory
from tilelang.codegen.pallas.target import Target, stays
from tilelang.ir import every_store, map_children, read_by
from tilelang.ir.traversal import definitions, inlined, map_body, map_stmt

Places = Set[tuple[str, tuple[ir.Index, ...]]]


def scatter_rows(kernel: ir.KernelIR, target: Target) -> ir.KernelIR:
    """The kernel with such stores to large outputs, and the loads at their places, as scatters."""
    stores = [s for s in every_store(kernel.body) if _large(kernel, s.tensor, target)]
    others = {(s.tensor, s.index) for s in stores if not _row(kernel, s)}
    far = {(s.tensor, s.index) for s in stores} - others
    defined = definitions(kernel.body)
    return (
        replace(kernel, body=map_body(kernel.body, partial(_statement, far, defined)))
        if far
        else kernel
    )


def _large(kernel: ir.KernelIR, name: str, target: Target) -> bool:
    tensor = kernel.tensor(name)
    return not stays(tensor.shape, tensor.dtype, target, stored=True)


def _row(kernel: ir.KernelIR, store: ir.Store) -> bool:
    """Whether a store is one of whole rows, or of tiles of them that no range cuts."""
    if store.mask is not None and (store.mask.type.shape or _carried(kernel, store.mask)):
        return False
    at = _picked(store.index)
    if at is None:
        return False
    shape = kernel.tensor(store.tensor).shape
    for d, (entry, size) in enumerate(zip(store.index, shape, strict=True)):
        match entry:
            case ir.Gather():
                return False
            case ir.Span() if d < at:
                return False
            case ir.Along(axis, offset):
                if d < at or offset is not None or kernel.axis(axis).static != (0, size):
                    return False
            case _:
                pass
    return True


def _carried(kernel: ir.KernelIR, mask: ir.Expr) -> bool:
    """Whether a loop changes what the mask is made of."""
    defined = definitions(kernel.body)
    return any(n not in defined or _carried(kernel, defined[n]) for n in read_by((mask,)))


def _picked(index: tuple[ir.Index, ...]) -> int | None:
    """The last position that is read from memory and has something behind it."""
    vectors = [d for d, entry in enumerate(index) if not isinstance(entry, ir.At)]
    read = [
        d
        for d, entry in enumerate(index)
        if isinstance(entry, ir.At) and reads_memory(entry.expr) and vectors and d < vectors[-1]
    ]
    return read[-1] if read else None


def _scattered(index: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    at = _picked(index)
    assert at is not None
    entry = index[at]
    assert isinstance(entry, ir.At)
    lane = ir.Apply("broadcast", (entry.expr,), ir.Type((1,), entry.expr.type.dtype))
    return (*index[:at], ir.Gather(lane), *index[at + 1 :])


def _statement(far: Places, defined: Mapping[str, ir.Expr], stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    def read(expr: ir.Expr) -> ir.Expr:
        if not (isinstance(expr, ir.Load) and (expr.tensor, expr.index) in far):
            return map_children(expr, read)
        lanes = replace(expr.type, shape=(1, *expr.type.shape))
        row = replace(expr, index=_scattered(expr.index), type=lanes)
        return ir.Apply("squeeze", (row,), expr.type, (("axis", 0),), expr.loc)

    if not (isinstance(stmt, ir.Store) and (stmt.tensor, stmt.index) in far):
        return (map_stmt(stmt, read),)
    value = stmt.value if stmt.combine is not None else read(stmt.value)
    mask = None if stmt.mask is None else inlined(stmt.mask, defined)
    return (replace(stmt, index=_scattered(stmt.index), value=value, mask=mask),)
