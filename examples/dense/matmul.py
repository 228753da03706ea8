"""Matrix multiplication with an epilogue: a function of the result before it is written.

A bias, an activation or a scale costs next to nothing when it is applied to a block of the product
that is still on the chip.  So the kernel is a template: `make_kernel` takes the epilogue, the
kernel is a closure over it, and the compiler inlines it.

    matmul = make_kernel()
    y = matmul(x, w)

    matmul_bias_relu = make_kernel(relu_with_bias)
    y = matmul_bias_relu(x, w, bias)

The epilogue is called with a float32 block of x @ w and, if the call has a bias, with the part of
it that belongs to the columns of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


def identity(block: Any) -> Any:
    """The product as it is."""
    return block


def relu_with_bias(block: Any, bias: Any) -> Any:
    """relu(x @ w + bias)."""
    return jnp.maximum(block + bias, 0)


def leaky_relu_with_bias(slope: float) -> Callable[[Any, Any], Any]:
    """An epilogue that is a closure: values below zero are multiplied by `slope`."""

    def epilogue(block: Any, bias: Any) -> Any:
        shifted = block + bias
        return jnp.where(shifted > 0, shifted, slope * shifted)

    return epilogue


def make_kernel(epilogue: Callable[..., Any] = identity) -> tile.Kernel:
    """The kernel for one epilogue."""

    @tile.kernel
    def matmul(x, w, bias=None):
        """y = epilogue(x @ w), or epilogue(x @ w, bias) if there is a bias [N]."""
        M, K = x.shape
        _, N = w.shape
        y = hl.empty([M, N], dtype=x.dtype)
        for tm, tn in hl.tile([M, N]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(K):
                acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
            block = epilogue(acc) if bias is None else epilogue(acc, bias[tn])
            y[tm, tn] = block.to(y.dtype)
        return y

    return matmul


matmul = make_kernel()
matmul_bias_relu = make_kernel(relu_with_bias)
matmul_bias_leaky_relu = make_kernel(leaky_relu_with_bias(0.1))


def oracle(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The plain product in float64."""
    return x.astype(np.float64) @ w.astype(np.float64)


def oracle_leaky(x: np.ndarray, w: np.ndarray, bias: np.ndarray, slope: float = 0.1) -> np.ndarray:
    """With a bias and a leaky relu; slope 0 is relu."""
    shifted = oracle(x, w) + bias.astype(np.float64)
    return np.maximum(shifted, 0) + slope * np.minimum(shifted, 0)


def make_inputs(
    seed: int = 0, m: int = 200, k: int = 150, n: int = 300
) -> tuple[np.ndarray, np.ndarray]:
    """x [m, k], w [k, n]."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((k, n), np.float32) * np.float32(k**-0.5)
    return rng.standard_normal((m, k), np.float32), w


def make_bias(seed: int = 0, n: int = 300) -> np.ndarray:
    """bias [n]."""
    return np.random.default_rng(seed + 1).standard_normal(n, np.float32)


def case(m: int, k: int, n: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((m, k), dtype), tile.spec((k, n), dtype)


SIZES = (
    (512, 512, 512),  # aligned
    (500, 200, 300),  # unaligned
    (8192, 4096, 4096),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))
BIAS_CASES = tuple((x, w, tile.spec(w.shape[1:], w.dtype)) for x, w in CASES)


def main() -> None:
    """Runs the kernel with three epilogues from torch and from JAX."""
    x, w = make_inputs()
    bias = make_bias()
    compare("matmul", matmul, (x, w), oracle(x, w))
    compare("matmul, relu", matmul_bias_relu, (x, w, bias), oracle_leaky(x, w, bias, 0))
    compare("matmul, leaky relu", matmul_bias_leaky_relu, (x, w, bias), oracle_leaky(x, w, bias))


if __name__ == "__main__":
    main()
