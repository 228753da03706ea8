"""Softmax over the rows of every group, for every feature by itself.

    offsets  0        37  37            120          190      200
             |---------|---|-------------|------------|........|
              group 0    1     group 2      group 3     in no group: y is 0

How to read the kernel: a group has two passes.  The first one finds, tile by tile, the largest
value m of every feature and the sum of exp(x - m); a larger value in a later tile rescales the sum
so far by exp(m - new).  The second pass writes the quotients.  The loops over groups and features
are parallel; the first loop over `tm` is ordered, because it carries m and total.

Both passes read x, and are phases of one pipeline over all groups: a group that lies in a single
tile is copied to vector memory once, a longer one twice.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_softmax(x, offsets):
    """y[r, f] = exp(x[r, f]) / sum of exp(x[s, f]) over the rows s of r's group.

    x        [T, F] in float32 or bfloat16
    offsets  [G + 1] integers, not decreasing

    Returns [T, F] in x's dtype; rows in no group are zero.
    """
    T, F = x.shape
    y = hl.zeros([T, F], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for tf in hl.tile(F):
            m = hl.full([tf], -math.inf, dtype=hl.float32)
            total = hl.zeros([tf], dtype=hl.float32)
            for tm in hl.tile(begin, end):
                rows = x[tm, tf].to(hl.float32)
                new = hl.maximum(m, rows.amax(0))
                total = total * hl.exp(m - new) + hl.exp(rows - new[None, :]).sum(0)
                m = new
            for tm in hl.tile(begin, end):
                rows = x[tm, tf].to(hl.float32)
                y[tm, tf] = (hl.exp(rows - m[None, :]) / total[None, :]).to(y.dtype)
    return y


def oracle(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64, one group after the other."""
    y = np.zeros(x.shape)
    for begin, end in itertools.pairwise(offsets):
        rows = x[begin:end].astype(np.float64)
        weights = np.exp(rows - rows.max(0, initial=-math.inf))
        y[begin:end] = weights / weights.sum(0)
    return y


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray]:
    """x [rows, features], offsets [groups + 1]."""
    x = np.random.default_rng(seed).standard_normal((rows, features), np.float32)
    return x, np.array(offsets, np.int32)


def case(rows: int, features: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, features), dtype), tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 256, 8),  # aligned
    (1000, 72, 7),  # unaligned
    (131072, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("jagged_softmax", jagged_softmax, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
