"""The mean of every group of rows; the mean of an empty group is 0.

The same loops as in jagged_sum.py, spelled in JAX.  The number of rows is a scalar that the kernel
computes from two loaded offsets; an empty group divides its sum, 0, by 1 instead of by 0.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_mean(x, offsets):
    """y[g] = the mean of x[offsets[g] : offsets[g + 1]], 0 if there are no such rows."""
    T, F = x.shape
    G = offsets.shape[0] - 1
    y = jnp.empty([G, F], dtype=x.dtype)
    for g in hl.grid(G):
        begin, end = offsets[g], offsets[g + 1]
        for tf in hl.tile(F):
            total = jnp.zeros([tf], dtype=jnp.float32)
            for tm in hl.tile(begin, end, max_extent=T):
                total += jnp.sum(x[tm, tf].astype(jnp.float32), axis=0)
            count = jnp.maximum(end - begin, 1)
            y[g, tf] = (total / count.astype(jnp.float32)).astype(y.dtype)
    return y


def oracle(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The same in float64, as the product of a matrix of weights [groups, rows] with x."""
    position = np.arange(len(x))
    member = (offsets[:-1, None] <= position) & (position < offsets[1:, None])
    rows = np.where(member.any(0)[:, None], x.astype(np.float64), 0)
    return member.astype(np.float64) @ rows / np.maximum(np.diff(offsets), 1)[:, None]


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray]:
    """x [rows, features], offsets [groups + 1]."""
    x = np.random.default_rng(seed).standard_normal((rows, features), np.float32)
    return x, np.array(offsets, np.int32)


def case(rows: int, features: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, features), dtype), tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 256, 8),  # aligned
    (1000, 72, 7),  # unaligned
    (131072, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("jagged_mean", jagged_mean, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
