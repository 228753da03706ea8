"""A ragged batch as a padded one: sequence b becomes row b of a box of zeros.

    x      0        37  37            120          190      200
           |---------|---|-------------|------------|........|
               b 0   b 1      b 2           b 3       in no sequence

    out    |b 0------0000000|    L rows each: what is left of a box is 0,
           |0000000000000000|    and of a longer sequence only the first L rows are there
           |b 2-------------|
           |b 3---------0000|

What code that knows only padded batches wants to have; padded_to_jagged.py is the way back.

How to read the kernel: a tile `t` is rows of a box, and a block of `out`.  The rows of x that go
there begin anywhere, so that they lie in two blocks of x; each step sees both and turns the rows
into place.
"""

from __future__ import annotations

import itertools

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_to_padded(x, offsets, L: hl.constexpr):
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0.

    x        [T, F]
    offsets  [B + 1] integers, not decreasing
    L        rows of a box, at least 1

    Returns [B, L, F] in x's dtype.
    """
    B = offsets.shape[0] - 1
    out = hl.zeros([B, L, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(B):
        begin, end = offsets[b], offsets[b + 1]
        for t in hl.tile(hl.minimum(end - begin, L)):
            out[b, t, :] = x[begin + t.index, :]
    return out


def oracle(x: np.ndarray, offsets: np.ndarray, L: int) -> np.ndarray:
    """The same in float64, one sequence after the other."""
    out = np.zeros((len(offsets) - 1, L, x.shape[1]))
    for b, (begin, end) in enumerate(itertools.pairwise(offsets)):
        out[b, : end - begin] = x[begin : min(end, begin + L)]
    return out


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray]:
    """x [rows, features], offsets [sequences + 1]."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, features), np.float32), np.array(offsets, np.int32)


def case(rows: int, longest: int, features: int, sequences: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, features), dtype), tile.spec((sequences + 1,), "int32"), longest


SIZES = (
    (1024, 256, 256, 8),  # aligned
    (1000, 190, 72, 7),  # unaligned
    (131072, 1024, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = (*make_inputs(), 90)
    compare("jagged_to_padded", jagged_to_padded, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
