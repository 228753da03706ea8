"""A padded batch as a ragged one: the rows of box b that are no padding become sequence b.

    d      |b 0------.......|    boxes of L rows: whatever padding holds,
           |................|    it never reaches the result
           |b 2-------------|
           |b 3---------....|

    y      0        37  37            120          190      200
           |---------|---|-------------|------------|00000000|
               b 0   b 1      b 2           b 3       in no sequence: 0

A sequence that is longer than a box has no more rows than that, and zeros behind them.  The way
back from jagged_to_padded.py.

How to read the kernel: a tile `t` is rows of y.  Of the rows of d that go there no block may begin
with the first one, so each step sees the two blocks that they lie in.
"""

from __future__ import annotations

import itertools

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def padded_to_jagged(d, offsets, T: hl.constexpr):
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L).

    d        [B, L, F]
    offsets  [B + 1] integers, not decreasing
    T        rows of the result, at least offsets[B]

    Returns [T, F] in d's dtype; all other rows are zero.
    """
    B, L, F = d.shape
    y = hl.zeros([T, F], dtype=d.dtype)
    for b in hl.grid(B):
        begin = offsets[b]
        for t in hl.tile(begin, hl.minimum(offsets[b + 1], begin + L)):
            y[t, :] = d[b, t.index - begin, :]
    return y


def oracle(d: np.ndarray, offsets: np.ndarray, T: int) -> np.ndarray:
    """The same in float64, one box after the other."""
    y = np.zeros((T, d.shape[2]))
    for b, (begin, end) in enumerate(itertools.pairwise(offsets)):
        end = min(end, begin + d.shape[1])
        y[begin:end] = d[b, : end - begin]
    return y


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    longest: int = 83,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray]:
    """d [sequences, longest, features], offsets [sequences + 1]."""
    rng = np.random.default_rng(seed)
    d = rng.standard_normal((len(offsets) - 1, longest, features), np.float32)
    return d, np.array(offsets, np.int32)


def case(rows: int, longest: int, features: int, sequences: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    boxes = tile.spec((sequences, longest, features), dtype)
    return boxes, tile.spec((sequences + 1,), "int32"), rows


SIZES = (
    (1024, 256, 256, 8),  # aligned
    (1000, 190, 72, 7),  # unaligned
    (131072, 1024, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = (*make_inputs(), 200)
    compare("padded_to_jagged", padded_to_jagged, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
