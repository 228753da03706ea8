"""The sum of every group of rows.

x holds the rows of all groups, one after another; group g owns the rows from offsets[g] up to, but
not including, offsets[g + 1].  Their sum is row g of the result.  A group may be empty: its loop
over rows runs no iteration, `acc` keeps its initial value, and the sum is 0, as it should be.

A partial tile needs no care in the kernel: the sum over a tile is the sum over the rows that it
covers, whatever lies next to them.  Rows are summed in float32 (integers in int32), and rounded to
the type of x once, at the end.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_sum(x, offsets):
    """y[g] = the sum of x[offsets[g] : offsets[g + 1]]."""
    T, F = x.shape
    G = offsets.shape[0] - 1
    total = hl.int32 if x.dtype == hl.int32 else hl.float32
    y = hl.empty([G, F], dtype=x.dtype)
    for g in hl.grid(G):
        for tf in hl.tile(F):
            acc = hl.zeros([tf], dtype=total)
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
                acc += x[tm, tf].to(total).sum(0)
            y[g, tf] = acc.to(y.dtype)
    return y


def oracle(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64: a difference of two running sums would lose digits, slices do not."""
    rows = x.astype(np.float64)
    sums = [rows[begin:end].sum(0) for begin, end in pairwise(offsets)]
    return np.array(sums).reshape(-1, x.shape[1])


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
    compare("jagged_sum", jagged_sum, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
