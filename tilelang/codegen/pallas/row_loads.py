"""Row loads: which loads fetch rows one by one, and which tensors say where those are."""

from __future__ import annotations

from collections.abc import Collection

from tilelang.analysis.uses import picks_rows, references
from tilelang.ir import Gather, KernelIR, Load, Stmt
from tilelang.ir.traversal import loads
from tilelang.language.dtypes import itemsize


def by_row(load: Load, indices: Collection[str]) -> bool:
    """Whether a load fetches its rows, or numbers of scalar memory, one by one."""
    return picks_rows(load.index) or (load.tensor in indices and len(load.type.shape) == 1)


def gather_indices(ir: KernelIR, body: tuple[Stmt, ...]) -> set[str]:
    """Tensors that pick rows, and vectors of which numbers are picked."""
    found = set()
    for tensor, index, writes in references(body):
        for entry in index:
            if isinstance(entry, Gather):
                found |= {load.tensor for load in loads(entry.expr)}
                if len(index) == 1 and not writes and itemsize(ir.tensor(tensor).dtype) == 4:
                    found.add(tensor)
    return found
