"""Inside: ragged loops that may run within a step that has all rows of all groups.

for tm in hl.tile(offsets[g], offsets[g + 1])    tiles of 32 to 128 rows, of products to 512
"""

from __future__ import annotations

import math

from tilelang.language.dtypes import itemsize

from .estimate import rank
from .types import Plan

# Little goes by how long groups are.  Long tiles are for products, where all arrays take so small a
# part of vector memory that nothing much is moved meanwhile: jagged_dense_bmm of 1,024 rows takes
# 4.6 us with tiles of 128 by v6e's schedules, and 4.0 with 512; rows that are added 3.9 and 4.0.
TILES, LONG = (32, 64, 128), (256, 512)
PART = 16  # a guess: with 1 to 1,000 the examples have the same defaults on v5e, v5p and v6e


def loops(alone: Plan) -> list[str]:
    """Loops over rows of groups that are steps, where all that they read and write fits.

    Ranges that no memory bounds are of known length: their steps may run in pieces, and without
    masks.
    """
    if _bytes(alone) > alone.target.vmem_physical:
        return []
    columns = (c.axis for each in alone.launches if each.table for c in each.table.columns)
    problem = alone.problem
    return [n for n in columns if problem.fact(n).ragged and n in problem.read]


def tiles(alone: Plan) -> tuple[int, ...]:
    """Rows of a tile that are tried, the fewest first."""
    return TILES + LONG if little(alone) and rank.products(alone.launches) else TILES


def little(alone: Plan) -> bool:
    """Whether the arrays are so small that the work alone counts."""
    return PART * _bytes(alone) <= alone.target.vmem_physical


def _bytes(alone: Plan) -> int:
    """Of all arrays that the author has."""
    return sum(math.prod(t.shape) * itemsize(t.dtype) for t in alone.ir.tensors if not t.view)
