"""Sum and maximum of every segment of rows, in one pass over the rows.

    offsets  0        37  37            120          190      200
             |---------|---|-------------|------------|........|
              segment 0  1    segment 2     segment 3  in no segment

Segment g owns the rows from offsets[g] up to, but not including, offsets[g + 1].  (Where every row
has a number that says which segment it belongs to, see segment_sum.py.)

How to read the kernel: the loop over `tm` is ordered, because it carries two values from tile to
tile; both results are written once, after it.  A segment may be empty: then that loop runs no
iteration, `peak` is still -inf, and the maximum is said to be 0.
"""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def segment_reduction(x, offsets):
    """The sum and the maximum of x[offsets[g] : offsets[g + 1]], for every g.

    x        [T, F] in float32 or bfloat16
    offsets  [G + 1] integers, not decreasing

    Returns two arrays [G, F] in x's dtype; both are 0 where a segment is empty.
    """
    F, G = x.shape[1], offsets.shape[0] - 1
    sums = jnp.empty([G, F], dtype=x.dtype)
    peaks = jnp.empty([G, F], dtype=x.dtype)
    for g in hl.grid(G):
        begin, end = offsets[g], offsets[g + 1]
        for tf in hl.tile(F):
            total = jnp.zeros([tf], dtype=jnp.float32)
            peak = jnp.full([tf], -math.inf, dtype=jnp.float32)
            for tm in hl.tile(begin, end):
                rows = x[tm, tf].astype(jnp.float32)
                total += jnp.sum(rows, axis=0)
                peak = jnp.maximum(peak, jnp.max(rows, axis=0))
            sums[g, tf] = total.astype(sums.dtype)
            peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(peaks.dtype)
    return sums, peaks


def oracle(x: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same in float64, one segment after the other."""
    sums, peaks = np.zeros((2, len(offsets) - 1, x.shape[1]))
    for g, (begin, end) in enumerate(itertools.pairwise(offsets)):
        if begin < end:
            rows = x[begin:end].astype(np.float64)
            sums[g], peaks[g] = rows.sum(0), rows.max(0)
    return sums, peaks


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray]:
    """x [rows, features], offsets [segments + 1]."""
    x = np.random.default_rng(seed).standard_normal((rows, features), np.float32)
    return x, np.array(offsets, np.int32)


def case(rows: int, features: int, segments: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, features), dtype), tile.spec((segments + 1,), "int32")


SIZES = (
    (1024, 256, 8),  # aligned
    (1000, 72, 7),  # unaligned
    (131072, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("segment_reduction", segment_reduction, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
