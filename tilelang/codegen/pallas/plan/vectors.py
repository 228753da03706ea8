"""as_columns(problem): vectors along tiles as columns of an array, [n] as [n, 1].

    for t in hl.tile(300): y[t] = x[t, :].argmax(1)      tiles of 8 rows instead of 128

A block of a vector has whole registers of 128 lanes, and so many rows of everything else that a
step has along its tile.  Of a column it has 8, each of which fills a register in memory.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.analysis import again
from tilelang.codegen.pallas.moves import edges
from tilelang.codegen.pallas.passes.numbers_as_rows import numbers_as_rows
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Along, At, Index, KernelIR, every_access, index_exprs, loads
from tilelang.schedule.blocks import chosen
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Need, Refusal

from .blocks import is_cut


def as_columns(problem: Problem) -> Problem | None:
    """The problem whose smallest tiles have fewer rows; None where no vector keeps them large."""
    wide = {
        use.tensor
        for axis in problem.ir.axes
        if axis.kind == "tile"
        for use in problem.uses(axis.name)
        if use.place == 1
    }
    found = frozenset(wide & _vectors(problem.ir))
    if not found:
        return None
    made = numbers_as_rows(problem.ir, found)
    return replace(problem, ir=made, facts=again(made, problem.facts))


def are_short(problem: Problem, config: Config, target: Target, found: Refusal) -> bool:
    """Whether no tiles that vectors have fit into memory, or smaller ones are asked for."""
    if found.needs == Need("smaller"):
        return True
    given = chosen(problem.ir, config)
    tiles = [axis for axis in problem.ir.axes if axis.kind == "tile"]
    blocks = {axis.name: given.get(axis.name) or axis.fixed for axis in tiles}
    return any(
        block and block < problem.extent(name) and not is_cut(problem, name, block, target)
        for name, block in blocks.items()
    )


def _vectors(kernel: KernelIR) -> set[str]:
    """The arrays of which tiles have a part of the last dimension, and one position of the others,
    wherever they are used; no positions, no views, and what views are of."""
    viewed = {n for t in kernel.tensors if t.view is not None for n in (t.name, t.view.source)}
    found, other = set[str](), {*edges(kernel), *viewed}
    for site in every_access(kernel.body, kernel.axes):
        (found if _is_vector(site.index) else other).add(site.tensor)
        positions = (e for entry in site.index for e in index_exprs(entry))
        other |= {load.tensor for e in positions for load in loads(e)}
    return found - other


def _is_vector(index: tuple[Index, ...]) -> bool:
    *lead, last = index or (None,)
    return isinstance(last, Along) and all(isinstance(entry, At) for entry in lead)
