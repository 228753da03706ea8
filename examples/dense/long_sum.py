"""The sum of every row, for rows that are far too long to be on the chip at once.

The loop over `tn` walks over a row in tiles and carries the sum from one to the next: this is what
makes an axis *ordered*, while the loop over `tm` is parallel.  The sum is carried in float32
and rounded to the type of x once, at the end.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def long_sum(x):
    """y[i] = the sum of x[i]."""
    M, N = x.shape
    y = hl.empty([M], dtype=x.dtype)
    for tm in hl.tile(M):
        total = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(N):
            total += x[tm, tn].to(hl.float32).sum(-1)
        y[tm] = total.to(y.dtype)
    return y


def oracle(x: np.ndarray) -> np.ndarray:
    """The same in float64."""
    return x.astype(np.float64).sum(-1)


def make_inputs(seed: int = 0, rows: int = 20, columns: int = 70_000) -> tuple[np.ndarray]:
    """x [rows, columns], scaled so that sums are of size 1."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5),)


def case(rows: int, columns: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return (tile.spec((rows, columns), dtype),)


SIZES = (
    (128, 65_536),  # aligned
    (100, 70_001),  # unaligned
    (256, 1 << 20),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("long_sum", long_sum, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
