"""Moves: which arrays have the rows of many groups, that steps move from or to boxes."""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.ir import Apply, KernelIR, Load, Store, statements
from tilelang.ir.traversal import loads

MOVED = "moved_rows"  # (rows of a block, where each group begins, where it ends) -> rows elsewhere


def moves(ir: KernelIR) -> Iterator[tuple[Store, Apply]]:
    """The stores of moved rows, and what they store."""
    for stmt in statements(ir.body):
        if isinstance(stmt, Store) and isinstance(stmt.value, Apply) and stmt.value.op == MOVED:
            yield stmt, stmt.value


def edges(ir: KernelIR) -> frozenset[str]:
    """The tensors that say where groups begin and end."""
    ends = (e for _, value in moves(ir) for e in value.args[1:])
    return frozenset(load.tensor for e in ends for load in loads(e))


def moved(ir: KernelIR) -> frozenset[str]:
    """The tensors that rows go from and to."""
    sources = (value.args[0] for _, value in moves(ir))
    found = {store.tensor for store, _ in moves(ir)}
    return frozenset(found | {load.tensor for load in sources if isinstance(load, Load)})
