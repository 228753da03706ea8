"""A batched product of which one side is jagged: rows of x times the matrix of their batch.

PyTorch calls this jagged_dense_bmm.  x holds the rows of all batches, one after another; batch b
owns the rows from offsets[b] up to offsets[b + 1] and multiplies them by w[b].  A second kernel
adds bias[b] to each of these rows.

The kernels are spelled in torch: inside of a kernel `torch.addmm`, `hl.dot(..., acc=)` and
`acc + jnp.dot(...)` are one and the same operation, and a kernel spelled in torch takes JAX arrays
as well.  The bias is added in float32, before the result is rounded to the type of x.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_dense_bmm(x, w, offsets):
    """y[r] = x[r] @ w[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    T, D = x.shape
    B, _, N = w.shape
    y = torch.zeros([T, N], dtype=x.dtype)
    for b in hl.grid(B):
        for tm, tn in hl.tile([offsets[b], 0], [offsets[b + 1], N], max_extent=[T, N]):
            acc = torch.zeros([tm, tn], dtype=torch.float32)
            for tk in hl.tile(D):
                acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
            y[tm, tn] = acc.to(y.dtype)
    return y


@tile.kernel
def jagged_dense_bmm_bias(x, w, bias, offsets):
    """y[r] = x[r] @ w[b] + bias[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    T, D = x.shape
    B, _, N = w.shape
    y = torch.zeros([T, N], dtype=x.dtype)
    for b in hl.grid(B):
        for tm, tn in hl.tile([offsets[b], 0], [offsets[b + 1], N], max_extent=[T, N]):
            acc = torch.zeros([tm, tn], dtype=torch.float32)
            for tk in hl.tile(D):
                acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
            y[tm, tn] = (acc + bias[b, tn]).to(y.dtype)
    return y


def oracle(x: np.ndarray, w: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64: every row with its own matrix, no loop at all."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    inside, batch = _batches(offsets, len(x))
    y = np.zeros((x.shape[0], w.shape[2]))
    y[inside] = np.einsum("rd,rdn->rn", x[inside], w[batch])
    return y


def oracle_bias(x: np.ndarray, w: np.ndarray, bias: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same with a bias for each batch."""
    inside, batch = _batches(offsets, len(x))
    y = oracle(x, w, offsets)
    y[inside] += bias.astype(np.float64)[batch]
    return y


def _batches(offsets: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that belong to a batch, and the batch of each of them."""
    sizes = np.diff(offsets)
    return np.arange(rows)[offsets[0] : offsets[-1]], np.repeat(np.arange(len(sizes)), sizes)


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    d: int = 48,
    n: int = 64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, d], w [batches, d, n], offsets [batches + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, d), np.float32)
    w = rng.standard_normal((len(offsets) - 1, d, n), np.float32) * np.float32(d**-0.5)
    return x, w, np.array(offsets, np.int32)


def make_bias(seed: int, batches: int, n: int) -> np.ndarray:
    """bias [batches, n]."""
    return np.random.default_rng(seed + 1).standard_normal((batches, n), np.float32)


def case(rows: int, d: int, n: int, batches: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    x, w = tile.spec((rows, d), dtype), tile.spec((batches, d, n), dtype)
    return x, w, tile.spec((batches + 1,), "int32")


def case_bias(rows: int, d: int, n: int, batches: int, dtype: str) -> tuple:
    """The same for the kernel with a bias."""
    x, w, offsets = case(rows, d, n, batches, dtype)
    return x, w, tile.spec((batches, n), dtype), offsets


SIZES = (
    (1024, 256, 256, 8),  # aligned
    (1000, 200, 72, 7),  # unaligned
    (32768, 512, 512, 128),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))
BIAS_CASES = tuple(case_bias(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs both kernels from torch and from JAX."""
    x, w, offsets = make_inputs()
    bias = make_bias(0, *w.shape[::2])
    compare("jagged_dense_bmm", jagged_dense_bmm, (x, w, offsets), oracle(x, w, offsets))
    expected = oracle_bias(x, w, bias, offsets)
    compare("jagged_dense_bmm_bias", jagged_dense_bmm_bias, (x, w, bias, offsets), expected)


if __name__ == "__main__":
    main()
