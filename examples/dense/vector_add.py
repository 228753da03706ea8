"""The sum of two vectors: the smallest kernel there is.

One loop over tiles, two loads, one store.  `tile` stands for a range of indices; the compiler
chooses how long it is and takes care of a last tile that is only partly inside of the vector.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def vector_add(x, y):
    """out[i] = x[i] + y[i]."""
    assert x.shape == y.shape, "x and y must be equally long"
    out = torch.empty_like(x)
    for ti in hl.tile(x.shape[0]):
        out[ti] = x[ti] + y[ti]
    return out


def oracle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same in float64."""
    return x.astype(np.float64) + y.astype(np.float64)


def make_inputs(seed: int = 0, length: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """x and y [length]."""
    x, y = np.random.default_rng(seed).standard_normal((2, length), np.float32)
    return x, y


def case(length: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((length,), dtype), tile.spec((length,), dtype)


SIZES = (4096, 5000, 1 << 24)  # aligned, unaligned, production
CASES = tuple(case(length, dtype) for length in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("vector_add", vector_add, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
