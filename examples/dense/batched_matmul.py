"""A product for every matrix of a batch, spelled in torch.

The batch is a tile like the other dimensions, not an index: a block may span several small
matrices, and how many is the compiler's choice.  `torch.baddbmm` multiplies the matrices of a block
one by one and adds to the accumulator, which is float32 even if x and w are not.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def batched_matmul(x, w):
    """y[b] = x[b] @ w[b]."""
    B, M, K = x.shape
    _, _, N = w.shape
    y = torch.empty([B, M, N], dtype=x.dtype)
    for tb, tm, tn in hl.tile([B, M, N]):
        acc = torch.zeros([tb, tm, tn], dtype=torch.float32)
        for tk in hl.tile(K):
            acc = torch.baddbmm(acc, x[tb, tm, tk], w[tb, tk, tn])
        y[tb, tm, tn] = acc.to(y.dtype)
    return y


def oracle(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same in float64."""
    return np.einsum("bmk,bkn->bmn", x.astype(np.float64), w.astype(np.float64))


def make_inputs(
    seed: int = 0, batch: int = 5, m: int = 100, k: int = 70, n: int = 90
) -> tuple[np.ndarray, np.ndarray]:
    """x [batch, m, k], w [batch, k, n]."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((batch, k, n), np.float32) * np.float32(k**-0.5)
    return rng.standard_normal((batch, m, k), np.float32), w


def case(batch: int, m: int, k: int, n: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((batch, m, k), dtype), tile.spec((batch, k, n), dtype)


SIZES = (
    (8, 256, 256, 256),  # aligned
    (7, 100, 200, 90),  # unaligned
    (64, 1024, 1024, 1024),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("batched_matmul", batched_matmul, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
