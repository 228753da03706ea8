"""Rotary position embedding: pairs of features turn by an angle that grows with the position.

The pairs are (d, d + D / 2), the "half" layout of most models: with a and b the two halves of a
head, the result is (a cos - b sin, b cos + a sin).  The angles come as two tables, one row for
every position, and are shared by all heads.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def rope(x, cos, sin):
    """Turns the pairs (x[h, t, d], x[h, t, d + D / 2]) by the angles of position t.

    x         [H, T, D] in float32 or bfloat16, D even
    cos, sin  [T, D / 2] in float32

    Returns [H, T, D] in x's dtype.
    """
    H, T, D = x.shape
    half = D // 2
    y = hl.empty([H, T, D], dtype=x.dtype)
    for h in hl.grid(H):
        for t in hl.tile(T):
            a, b = x[h, t, :half].to(hl.float32), x[h, t, half:].to(hl.float32)
            c, s = cos[t, :], sin[t, :]
            y[h, t, :half] = (a * c - b * s).to(y.dtype)
            y[h, t, half:] = (b * c + a * s).to(y.dtype)
    return y


def oracle(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The same in float64, as a product of complex numbers."""
    half = x.shape[2] // 2
    wide = x.astype(np.float64)
    turned = (wide[..., :half] + 1j * wide[..., half:]) * (cos.astype(float) + 1j * sin)
    return np.concatenate([turned.real, turned.imag], -1)


def make_inputs(seed: int = 0, heads: int = 3, length: int = 100, width: int = 64) -> tuple:
    """x [heads, length, width], cos and sin [length, width / 2]."""
    x = np.random.default_rng(seed).standard_normal((heads, length, width), np.float32)
    speed = 10000.0 ** -(np.arange(width // 2) / (width // 2))
    angles = np.arange(length)[:, None] * speed
    return x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def case(heads: int, length: int, width: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    table = tile.spec((length, width // 2), "float32")
    return tile.spec((heads, length, width), dtype), table, table


SIZES = ((4, 1024, 256), (3, 1000, 64), (32, 8192, 128))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("rope", rope, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
