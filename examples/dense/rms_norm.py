"""RMS norm: every row divided by the root of the mean of its squares, times a weight.

How to read the kernel: a tile holds whole rows, so that one step sees all that a row needs.  The
square is taken in float32, whatever x is, because 16-bit sums of thousands of squares are wrong in
the first digits.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def rms_norm(x, weight, eps: hl.constexpr = 1e-6):
    """y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight.

    x [M, N], weight [N]; y [M, N] in x's dtype.
    """
    y = torch.empty_like(x)
    for tm in hl.tile(x.shape[0]):
        rows = x[tm, :].to(torch.float32)
        mean = torch.mean(rows * rows, dim=-1, keepdim=True)
        y[tm, :] = (rows * torch.rsqrt(mean + eps) * weight[:]).to(x.dtype)
    return y


def oracle(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """The same in float64."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def make_inputs(seed: int = 0, rows: int = 100, columns: int = 300) -> tuple:
    """x [rows, columns], weight [columns]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns), np.float32) * 3
    return x, rng.standard_normal(columns, np.float32)


def case(rows: int, columns: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, columns), dtype), tile.spec((columns,), dtype)


SIZES = ((1024, 1024), (1000, 300), (16384, 4096))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("rms_norm", rms_norm, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
