"""Sums of rows that carry the number of their segment: what jax.ops.segment_sum computes.

    ids   0 0 0 0 2 2 2 2 2 2 2 3 3 0 0 3       sorted or not; segment 1 has no row, its sum is 0

How to read the kernel: there is no loop over segments.  The loop runs over rows, and
`hl.atomic_add` adds each of them at the place that its id picks.  Several rows of a tile may pick
one place; all of them count.  No two iterations run at the same time: the loop is found to be
ordered, and a reduction.  It adds in the dtype of the result, which therefore is float32.

The whole result stays in vector memory, since any row may go anywhere.  If the segments are ranges
of rows, segment_reduction.py needs a place for one segment only.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def segment_sum(x, ids, segments: hl.constexpr):
    """y[g] = the sum of x[r] over the rows r with ids[r] == g.

    x    [T, F] in float32 or bfloat16
    ids  [T] integers from 0 to segments - 1, in any order

    Returns [segments, F] in float32.
    """
    T, F = x.shape
    y = jnp.zeros([segments, F], dtype=jnp.float32)
    for tm in hl.tile(T):
        hl.atomic_add(y, [ids[tm], slice(None)], x[tm, :].astype(jnp.float32))
    return y


def oracle(x: np.ndarray, ids: np.ndarray, segments: int) -> np.ndarray:
    """The same in float64."""
    y = np.zeros((segments, x.shape[1]))
    np.add.at(y, ids, x.astype(np.float64))
    return y


def make_inputs(
    seed: int = 0, rows: int = 200, features: int = 72, segments: int = 30
) -> tuple[np.ndarray, np.ndarray, int]:
    """x [rows, features], ids [rows], sorted but for the last quarter, and the segments."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features), np.float32)
    ids = rng.integers(0, segments, rows).astype(np.int32)
    ids[: rows * 3 // 4].sort()
    return x, ids, segments


def case(rows: int, features: int, segments: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, features), dtype), tile.spec((rows,), "int32"), segments


SIZES = (
    (1024, 256, 8),  # aligned
    (1000, 72, 7),  # unaligned
    (131072, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("segment_sum", segment_sum, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
