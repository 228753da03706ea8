"""A ragged batch plus a padded one: row l of group g gets row l of dense[g].

    x      0        37  37            120          190      200
           |---------|---|-------------|------------|........|
             + d[0]    ^    + d[2]        + d[3]     in no group: y is 0
                       group 1 is empty
    dense  |dddddddddddddddd|    every group has a box of L rows; where a group is longer,
                                 its last rows get nothing

`dense` is what padded code has: positions, say, which begin at zero in every sequence, and are
added here to sequences that are laid end to end.  x is not padded for that, and rows of a box that
its group does not reach never reach the result.

How to read the kernel: `tm` is a tile of rows of x, and `place` says for each of them which row of
the box it gets.  Those rows begin anywhere in the box, so each step sees the two blocks that they
lie in.  All loops are parallel.
"""

from __future__ import annotations

import itertools

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_dense_add(x, dense, offsets):
    """y[r] = x[r] + dense[g, r - offsets[g]] for offsets[g] <= r < offsets[g + 1].

    x        [T, F] in float32 or bfloat16
    dense    [G, L, F] in the same
    offsets  [G + 1] integers, not decreasing

    Row L of a group and those behind it get nothing added.

    Returns [T, F] in x's dtype; rows in no group are zero.
    """
    G, L, _ = dense.shape
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(G):
        begin, end = offsets[g], offsets[g + 1]
        for tm in hl.tile(begin, end):
            place = tm.index - begin
            y[tm, :] = x[tm, :] + hl.load(dense, [g, place, slice(None)], mask=(place < L)[:, None])
    return y


def oracle(x: np.ndarray, dense: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64, one group after the other."""
    y = np.zeros(x.shape)
    for g, (begin, end) in enumerate(itertools.pairwise(offsets)):
        y[begin:end] = x[begin:end]
        both = min(end - begin, dense.shape[1])
        y[begin : begin + both] += dense[g, :both]
    return y


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    longest: int = 60,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, features], dense [groups, longest, features], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features), np.float32)
    dense = rng.standard_normal((len(offsets) - 1, longest, features), np.float32)
    return x, dense, np.array(offsets, np.int32)


def case(rows: int, longest: int, features: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    x, dense = tile.spec((rows, features), dtype), tile.spec((groups, longest, features), dtype)
    return x, dense, tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 256, 256, 8),  # aligned
    (1000, 190, 72, 7),  # unaligned
    (131072, 1024, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("jagged_dense_add", jagged_dense_add, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
