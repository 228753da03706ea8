"""Products of matrices that are stored transposed: rows and columns of the arrays are exchanged.

    w [N, K], x [K, M]        y = x.T @ w.T        y [M, N]

Weights lie like this in a linear layer of torch, and activations where features come first.  A
block is read as it lies in memory, and the product is told which dimensions to contract: no
transposed copy of x or w is made.

How to read the kernel: `x[tk, tm]` is a block along tk and tm, `.T` exchanges the two.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def transposed_matmul(w, x):
    """y = x.T @ w.T: w [N, K], x [K, M]; y [M, N] in x's dtype."""
    K, M = x.shape
    N = w.shape[0]
    y = jnp.empty([M, N], dtype=x.dtype)
    for tm, tn in hl.tile([M, N]):
        acc = jnp.zeros([tm, tn], dtype=jnp.float32)
        for tk in hl.tile(K):
            product = jnp.dot(x[tk, tm].T, w[tn, tk].T, preferred_element_type=jnp.float32)
            acc = acc + product
        y[tm, tn] = acc.astype(y.dtype)
    return y


def oracle(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The same in float64: (w @ x).T."""
    return (w.astype(np.float64) @ x.astype(np.float64)).T


def make_inputs(
    seed: int = 0, m: int = 200, k: int = 150, n: int = 300
) -> tuple[np.ndarray, np.ndarray]:
    """w [n, k], x [k, m]."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, k), np.float32) * np.float32(k**-0.5)
    return w, rng.standard_normal((k, m), np.float32)


def case(m: int, k: int, n: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((n, k), dtype), tile.spec((k, m), dtype)


SIZES = ((512, 512, 512), (500, 200, 300), (8192, 4096, 4096))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("transposed_matmul", transposed_matmul, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
