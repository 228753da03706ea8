"""Scatter rows: stores at a position that is read from memory -> scatters of one row, where needed.

    y[index[m], :] = v   ->   y[[index[m]], :] = v[None, :]

A block that any step may visit again must hold the whole array.  Where it cannot, the row goes to
where the array lies, as the rows of a scatter do.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial

from tilelang.analysis.uses import reads_memory
from tilelang.codegen.pallas.target import STORED_SHARE, Target, padded_bytes
from tilelang.ir import (
    Along,
    Apply,
    At,
    Expr,
    Gather,
    Index,
    KernelIR,
    Load,
    Span,
    Stmt,
    Store,
    Type,
    every_store,
    map_children,
    read_by,
)
from tilelang.ir.traversal import definitions, inlined, map_body, map_stmt

Places = Set[tuple[str, tuple[Index, ...]]]


def scatter_rows(ir: KernelIR, target: Target) -> KernelIR:
    """The kernel with such stores to large outputs, and the loads at their places, as scatters."""
    stores = [s for s in every_store(ir.body) if _large(ir, s.tensor, target)]
    others = {(s.tensor, s.index) for s in stores if not _row(ir, s)}
    far = {(s.tensor, s.index) for s in stores} - others
    defined = definitions(ir.body)
    return replace(ir, body=map_body(ir.body, partial(_statement, far, defined))) if far else ir


def _large(ir: KernelIR, name: str, target: Target) -> bool:
    tensor = ir.tensor(name)
    held = 2 * padded_bytes(tensor.shape, tensor.dtype, target)
    return held > target.vmem_default // STORED_SHARE


def _row(ir: KernelIR, store: Store) -> bool:
    """Whether a store is one of whole rows, or of tiles of them that no range cuts."""
    if store.mask is not None and (store.mask.type.shape or _carried(ir, store.mask)):
        return False
    at = _picked(store.index)
    if at is None:
        return False
    shape = ir.tensor(store.tensor).shape
    for d, (entry, size) in enumerate(zip(store.index, shape, strict=True)):
        match entry:
            case Gather():
                return False
            case Span() if d < at:
                return False
            case Along(axis, offset):
                if d < at or offset is not None or ir.axis(axis).static != (0, size):
                    return False
            case _:
                pass
    return True


def _carried(ir: KernelIR, mask: Expr) -> bool:
    """Whether a loop changes what the mask is made of."""
    defined = definitions(ir.body)
    return any(n not in defined or _carried(ir, defined[n]) for n in read_by((mask,)))


def _picked(index: tuple[Index, ...]) -> int | None:
    """The last position that is read from memory and has something behind it."""
    vectors = [d for d, entry in enumerate(index) if not isinstance(entry, At)]
    read = [
        d
        for d, entry in enumerate(index)
        if isinstance(entry, At) and reads_memory(entry.expr) and vectors and d < vectors[-1]
    ]
    return read[-1] if read else None


def _scattered(index: tuple[Index, ...]) -> tuple[Index, ...]:
    at = _picked(index)
    assert at is not None
    entry = index[at]
    assert isinstance(entry, At)
    lane = Apply("broadcast", (entry.expr,), Type((1,), entry.expr.type.dtype))
    return (*index[:at], Gather(lane), *index[at + 1 :])


def _statement(far: Places, defined: Mapping[str, Expr], stmt: Stmt) -> tuple[Stmt, ...]:
    def read(expr: Expr) -> Expr:
        if not (isinstance(expr, Load) and (expr.tensor, expr.index) in far):
            return map_children(expr, read)
        lanes = replace(expr.type, shape=(1, *expr.type.shape))
        row = replace(expr, index=_scattered(expr.index), type=lanes)
        return Apply("squeeze", (row,), expr.type, (("axis", 0),), expr.loc)

    if not (isinstance(stmt, Store) and (stmt.tensor, stmt.index) in far):
        return (map_stmt(stmt, read),)
    value = stmt.value if stmt.combine is not None else read(stmt.value)
    mask = None if stmt.mask is None else inlined(stmt.mask, defined)
    return (replace(stmt, index=_scattered(stmt.index), value=value, mask=mask),)
