"""The weight gradient of a grouped matrix product: every group of rows gives a matrix.

If y[r] = x[r] @ w[g] for the rows r of group g, then the gradient of the loss with respect to w[g]
sums over those rows:

    dw[g] = x[begin:end].T @ dy[begin:end]          begin, end = offsets[g], offsets[g + 1]

              x.T [K, rows]                  dy [rows, N]
              offsets                            .-------.  offsets
              0    37   37    120                |       |  0
              |----|----|-----|....          -   | dw[0] |  37, and 37 again: dw[1] is zero
      dw[g] = |    |    |     |              @   |-------|
              |----|----|-----|....              | dw[2] |  120
                               ^                 '-------'
                               rows in no group count nowhere

Here the ragged rows are what is summed over: the result has one matrix per group, however many rows
the group has, and that of an empty group is zero.

How to read the kernel: for each group `g` and each tile (`tk`, `tn`) of its matrix, the loop over
`tm` goes through the rows of the group and carries `acc`.  A tile of rows may reach into the
neighbouring groups; both operands of a product are masked there, because 0 * NaN is NaN.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def transposed_grouped_gemm(x, dy, offsets):
    """dw[g] = x[rows of g].T @ dy[rows of g]."""
    M, K = x.shape
    _, N = dy.shape
    G = offsets.shape[0] - 1
    dw = hl.empty([G, K, N], dtype=x.dtype)
    for g in hl.grid(G):
        for tk, tn in hl.tile([K, N]):
            acc = hl.zeros([tk, tn], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
                acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
            dw[g, tk, tn] = acc.to(dw.dtype)
    return dw


def oracle(x: np.ndarray, dy: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64: one product per group."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    dw = np.zeros((len(offsets) - 1, x.shape[1], dy.shape[1]))
    for group, begin, end in zip(dw, offsets[:-1], offsets[1:]):
        group[...] = x[begin:end].T @ dy[begin:end]
    return dw


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    k: int = 64,
    n: int = 96,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, k], dy [rows, n], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k), np.float32)
    dy = rng.standard_normal((rows, n), np.float32)
    return x, dy, np.array(offsets, np.int32)


def case(rows: int, k: int, n: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    x, dy = tile.spec((rows, k), dtype), tile.spec((rows, n), dtype)
    return x, dy, tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 512, 512, 8),  # aligned
    (1000, 200, 300, 7),  # unaligned
    (16384, 4096, 2048, 64),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("transposed_grouped_gemm", transposed_grouped_gemm, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
