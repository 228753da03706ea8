"""Inside: ragged loops that may run within a step that has all rows of all groups.

for tm in hl.tile(offsets[g], offsets[g + 1])    tiles of 32 to 128 rows, of products to 512
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tilelang.language.dtypes import itemsize

from .blocks import multiple
from .estimate import rank
from .types import Plan

# Little goes by how long groups are.  Long tiles are for products, where all arrays take so small a
# part of vector memory that nothing much is moved meanwhile: jagged_dense_bmm of 1,024 rows takes
# 4.6 us with tiles of 128 by v6e's schedules, and 4.0 with 512; rows that are added 3.9 and 4.0.
TILES, LONG = (32, 64, 128), (256, 512)
PART = 16  # a guess: with 1 to 1,000 the examples have the same defaults on v5e, v5p and v6e


def loops(alone: Plan) -> list[str]:
    """Loops over rows of groups that are steps, where all that they read and write may fit.

    Ranges that no memory bounds are of known length: their steps may run in pieces, and without
    masks.
    """
    columns = (c.axis for each in alone.launches if each.table for c in each.table.columns)
    problem = alone.problem
    found = [n for n in columns if problem.fact(n).ragged and n in problem.read]
    return found if found and _least(alone, found) <= alone.target.vmem_physical else []


def tiles(alone: Plan) -> tuple[int, ...]:
    """Rows of a tile that are tried, the fewest first."""
    return TILES + LONG if little(alone) and rank.products(alone.launches) else TILES


def little(alone: Plan) -> bool:
    """Whether the arrays are so small that the work alone counts."""
    return PART * _bytes(alone) <= alone.target.vmem_physical


def _least(alone: Plan, loops: Collection[str]) -> int:
    """Bytes of all arrays that are whole but for tiles of other loops, which are the least ones."""
    others = (n for n, _ in alone.blocks if n not in loops)
    least = {n: multiple(alone.problem, n, alone.target) for n in others}
    return held(alone, least, loops)


def held(alone: Plan, blocks: Mapping[str, int], loops: Collection[str]) -> int:
    """Bytes of all arrays that are whole but for tiles of some loops, at least.

    Of those that are cut, two are there, but where `loops` go through their rows: pieces of those
    may come while others are used.
    """
    problem, total = alone.problem, 0
    flow = {use.tensor for n in loops for use in problem.uses(n) if use.dim == 0}
    cuts: dict[tuple[str, int], int] = {}
    for name, block in blocks.items():
        for use in problem.uses(name):
            place = use.tensor, use.dim
            cuts[place] = min(block, use.size, cuts.get(place, use.size))
    for tensor in alone.ir.tensors:
        if not tensor.view:
            shape = [cuts.get((tensor.name, d), size) for d, size in enumerate(tensor.shape)]
            cut = tuple(shape) != tensor.shape
            twice = cut and tensor.name not in flow
            total += math.prod(shape) * itemsize(tensor.dtype) * (1 + twice)
    return total


def _bytes(alone: Plan) -> int:
    """Of all arrays that the author has."""
    return sum(math.prod(t.shape) * itemsize(t.dtype) for t in alone.ir.tensors if not t.view)
