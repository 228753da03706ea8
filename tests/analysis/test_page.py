"""str(low.ir) and str(low.facts) of a ragged kernel: what a person reads."""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def moved_sums(x, offsets, y):
    """At the first row of every group, the sum of its rows, each one row later."""
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            rows = x[t.index + 1, :]
            total = total + rows.sum(0)
        y[offsets[g], :] = total


LOWERED = moved_sums.lower(
    np.ones((20, 8), np.float32), np.array([0, 5, 20]), np.ones((20, 8), np.float32)
)

IR = """\
kernel moved_sums(x, offsets, y)
  x: float32[20, 8]
  offsets: int64[3]
  y: float32[20, 8], mutated

for g in grid(2):
    total: float32[8] = full([8], float32, value=0.0)
    for t in tile(offsets[g], offsets[g + 1], max_extent=20) carrying total_1 = total:
        rows: float32[t, 8] = x[t + 1, 0:8]
        total_2: float32[8] = total_1 + sum(rows, axis=0)
        next total_1 = total_2
    after total_3 = total_1
    y[offsets[g], 0:8] = total_3
"""

FACTS = """\
axes
  g: ordered, because offsets[g] may name the same element of y twice
      index kept below 2
  t: ordered, because carries total, a sum
      ragged; depends on g; ranges disjoint over g; may be empty
      carries total

outputs
  y: not covered

positions
  g of 3: proved, g stays inside
  g + 1 of 3: proved, g + 1 stays inside
  offsets[g] of 20: dynamic, dimension 0 of y has length 20, offsets[g] is read from memory

stores
  y: the same whatever the blocks

tiles that may leave their arrays
  t + 1 may lie before or behind the 20 positions

taken to be sorted
  offsets
"""


def test_the_kernel():
    assert str(LOWERED.ir) == IR


def test_the_facts():
    assert str(LOWERED.facts) == FACTS
