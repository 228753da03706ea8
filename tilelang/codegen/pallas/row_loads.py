"""Row loads: which loads fetch rows one by one, and which tensors say where those are."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tilelang.analysis.uses import IndexedSite, picks_rows
from tilelang.ir import KernelIR, Load
from tilelang.ir.traversal import loads
from tilelang.language.dtypes import itemsize


def by_row(load: Load, indices: Collection[str]) -> bool:
    """Whether a load fetches its rows, or numbers of scalar memory, one by one."""
    return picks_rows(load.index) or (load.tensor in indices and len(load.type.shape) == 1)


def gather_indices(ir: KernelIR, references: Iterable[IndexedSite]) -> set[str]:
    """Tensors that pick rows or say which are stored, and vectors of which numbers are picked and
    nothing is stored."""
    found, references = set[str](), tuple(references)
    written = {reference.tensor for reference in references if reference.written}
    for reference in references:
        found |= {load.tensor for expr in reference.picks for load in loads(expr)}
        single = len(reference.index) == 1 and reference.tensor not in written
        wide = itemsize(ir.tensor(reference.tensor).dtype) == 4
        if single and wide and picks_rows(reference.index):
            found.add(reference.tensor)
    return found
