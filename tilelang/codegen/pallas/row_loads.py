"""Row loads: which loads fetch rows one by one, and which tensors say where those are; and which
have no room where single numbers are read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tilelang.analysis.uses import IndexedSite, picks_rows
from tilelang.codegen.pallas.target import Target, scalar_bytes
from tilelang.ir import KernelIR, Load
from tilelang.ir.traversal import loads
from tilelang.language.dtypes import is_float, itemsize

NUMBERS = 2  # what part of scalar memory a table may take: index arrays and offsets lie there, too


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


def no_room(kernel: KernelIR, table: str, target: Target) -> bool:
    """Whether numbers of an array cannot be read from scalar memory."""
    return scalar_bytes((math.prod(kernel.tensor(table).shape),)) > target.smem // NUMBERS


def read_in_blocks(kernel: KernelIR, tensors: Collection[str], target: Target) -> frozenset[str]:
    """Those whose single numbers are read in blocks: floats that scalar memory has no room for.

    No position is made of these tensors, which blocks do not know.
    """
    floats = (t for t in tensors if is_float(kernel.tensor(t).dtype) and not target.interpreted)
    return frozenset(t for t in floats if no_room(kernel, t, target))
