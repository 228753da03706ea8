"""Softmax of many matrices over their rows: dimension 1 of [B, R, N].

How to read the kernel: the dimension that is summed is the one before the last, so a step holds all
rows of some columns of one matrix.  Nothing is transposed.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def batch_softmax(x):
    """y[b, r, n] = exp(x[b, r, n]) / sum over r of exp(x[b, r, n]); [B, R, N] in x's dtype."""
    y = torch.empty_like(x)
    for b in hl.grid(x.shape[0]):
        for tn in hl.tile(x.shape[2]):
            y[b, :, tn] = torch.softmax(x[b, :, tn].to(torch.float32), dim=0).to(x.dtype)
    return y


def oracle(x: np.ndarray) -> np.ndarray:
    """The same in float64."""
    wide = x.astype(np.float64)
    weights = np.exp(wide - wide.max(1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(1, keepdims=True)


def make_inputs(seed: int = 0, batch: int = 3, rows: int = 50, columns: int = 200) -> tuple:
    """x [batch, rows, columns]."""
    return (np.random.default_rng(seed).standard_normal((batch, rows, columns), np.float32) * 3,)


def case(batch: int, rows: int, columns: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return (tile.spec((batch, rows, columns), dtype),)


SIZES = ((8, 256, 512), (7, 100, 300), (64, 1024, 2048))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("batch_softmax", batch_softmax, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
