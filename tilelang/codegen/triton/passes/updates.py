"""Updates: an atomic store holds what it adds; the other operand is in memory.

y[i] = y[i] + x  [combine add]   ->   y[i] = x  [combine add]
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.ir import KernelIR, Stmt, Store
from tilelang.ir.traversal import map_body


def updates(ir: KernelIR) -> KernelIR:
    """The kernel without the loads of what atomic stores update."""
    return replace(ir, body=map_body(ir.body, _update))


def _update(stmt: Stmt) -> tuple[Stmt, ...]:
    if isinstance(stmt, Store) and stmt.combine is not None:
        return (replace(stmt, value=stmt.operands[1]),)
    return (stmt,)
