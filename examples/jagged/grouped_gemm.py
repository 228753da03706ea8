"""Grouped matrix multiplication: every group of rows has weights of its own.

This is the matrix product of a mixture of experts.  The rows of `x` are sorted by group, and group
g owns the rows from offsets[g] up to, but not including, offsets[g + 1]:

    offsets  0         37  37              120                190       200
             |--------------|---------------|------------------|.........|
    x         37 rows @ w[0]  83 rows @ w[2]   70 rows @ w[3]    in no group: y is 0
                           ^
                           group 1 is empty

Groups begin and end anywhere, also in the middle of a tile, and nothing is padded: a tile that
two groups share is computed once for each of them, and each writes only its own rows.

How to read the kernel: `g` is a number, `tm`, `tn` and `tk` are tiles, that is, ranges of indices
whose length the compiler chooses.  The range of `tm` is read from memory, so its length is not
known when the kernel is compiled; `max_extent` says how long it can be at most.  The loops over
`g`, `tm` and `tn` are found to be parallel, because no two of their iterations write the same
element.  The loop over `tk` is ordered, because it carries `acc` from one iteration to the next.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def grouped_gemm(x, w, offsets):
    """y[r] = x[r] @ w[g] for offsets[g] <= r < offsets[g + 1]; other rows are zero."""
    M, K = x.shape
    G, _, N = w.shape
    y = hl.zeros([M, N], dtype=x.dtype)
    for g in hl.grid(G):
        for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(K):
                acc = hl.dot(x[tm, tk], w[g, tk, tn], acc=acc)
            y[tm, tn] = acc.to(y.dtype)
    return y


def oracle(x: np.ndarray, w: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64: one product per group."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    y = np.zeros((x.shape[0], w.shape[2]))
    for group, begin, end in zip(w, offsets[:-1], offsets[1:]):
        y[begin:end] = x[begin:end] @ group
    return y


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    k: int = 64,
    n: int = 96,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, k], w [groups, k, n], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k), np.float32)
    w = rng.standard_normal((len(offsets) - 1, k, n), np.float32) * np.float32(k**-0.5)
    return x, w, np.array(offsets, np.int32)


def case(rows: int, k: int, n: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    x, w = tile.spec((rows, k), dtype), tile.spec((groups, k, n), dtype)
    return x, w, tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 512, 512, 8),  # aligned
    (1000, 200, 300, 7),  # unaligned
    (16384, 4096, 2048, 64),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("grouped_gemm", grouped_gemm, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
