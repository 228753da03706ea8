"""Softmax of every row, for rows that fit on the chip.

A tile of whole rows (`x[tm, :]`) is loaded once, and everything else happens where it lies: the
largest value of each row is subtracted before exp, so that nothing overflows, and the sum is formed
in float32 whatever the type of x is.  Spelled in JAX; it takes torch tensors all the same.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def softmax(x):
    """out[i] = exp(x[i]) / the sum of exp(x[i])."""
    out = jnp.empty_like(x)
    for tm in hl.tile(x.shape[0]):
        rows = x[tm, :].astype(jnp.float32)
        e = jnp.exp(rows - jnp.max(rows, axis=-1, keepdims=True))
        out[tm, :] = (e / jnp.sum(e, axis=-1, keepdims=True)).astype(out.dtype)
    return out


def oracle(x: np.ndarray) -> np.ndarray:
    """The same in float64, by way of logarithms."""
    x = x.astype(np.float64)
    return np.exp(x - np.logaddexp.reduce(x, axis=-1, keepdims=True))


def make_inputs(seed: int = 0, rows: int = 200, columns: int = 300) -> tuple[np.ndarray]:
    """x [rows, columns], with values large enough to overflow exp in float32."""
    rng = np.random.default_rng(seed)
    levels = 100 * rng.standard_normal((rows, 1), np.float32)
    return (levels + rng.standard_normal((rows, columns), np.float32),)


def case(rows: int, columns: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return (tile.spec((rows, columns), dtype),)


SIZES = (
    (1024, 1024),  # aligned
    (1000, 300),  # unaligned
    (16384, 4096),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("softmax", softmax, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
