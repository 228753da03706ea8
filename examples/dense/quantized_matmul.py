"""Matrix products with 8-bit weights, and with 8-bit inputs as well.

Each column of the weights has a scale, and a weight is stored as the integer nearest to
weight / scale.  The scale of a column stays outside of the sum over k, so that the sum is one of
plain products, and the scale is applied once, to the finished block:

    y[r, n] = sum over k of x[r, k] * (w[k, n] * scale[n]) = scale[n] * (x @ w)[r, n]

With weights of 8 bits half as many bytes are read as with 16.  If x is int8 too, with a scale for
each row, the products are summed in int32, which is exact, at twice the speed of 16-bit floats on
the generations that have such products (all but v4).  examples/jagged/quantized_grouped_gemm.py
does the same for groups of rows, and for 8-bit floats.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def weight_only_matmul(x, w, scale):
    """y = x @ (w * scale): x [M, K], w [K, N] int8, scale [N] float32; y in x's dtype."""
    M, K = x.shape
    N = w.shape[1]
    y = hl.empty([M, N], dtype=x.dtype)
    for tm, tn in hl.tile([M, N]):
        acc = hl.zeros([tm, tn], dtype=hl.float32)
        for tk in hl.tile(K):
            acc = hl.dot(x[tm, tk], w[tk, tn].to(x.dtype), acc=acc)
        y[tm, tn] = (acc * scale[tn]).to(y.dtype)
    return y


@tile.kernel
def quantized_matmul(x, row_scale, w, scale):
    """y = (x * row_scale) @ (w * scale), in the dtype of the scales.

    x [M, K] and w [K, N] int8; row_scale [M], scale [N].
    """
    M, K = x.shape
    N = w.shape[1]
    y = hl.empty([M, N], dtype=scale.dtype)
    for tm, tn in hl.tile([M, N]):
        acc = hl.zeros([tm, tn], dtype=hl.int32)
        for tk in hl.tile(K):
            acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        rescaled = acc.to(hl.float32) * row_scale[tm][:, None] * scale[tn]
        y[tm, tn] = rescaled.to(y.dtype)
    return y


def quantize(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(int8 values, scales): along `axis` the largest value becomes 127."""
    scale = np.abs(array).max(axis, keepdims=True, initial=0) / np.float32(127)
    scale = np.where(scale == 0, np.float32(1), scale)
    return np.rint(array / scale).astype(np.int8), scale.squeeze(axis)


def oracle(x: np.ndarray, w: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The first kernel in float64: the weights are restored before they are used."""
    return x.astype(np.float64) @ (w.astype(np.float64) * scale.astype(np.float64))


def oracle_quantized(
    x: np.ndarray, row_scale: np.ndarray, w: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """The second kernel in float64."""
    return oracle(x.astype(np.float64) * row_scale.astype(np.float64)[:, None], w, scale)


def make_inputs(
    seed: int = 0, m: int = 100, k: int = 150, n: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [m, k], w [k, n] int8, scale [n]."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((k, n), np.float32) * np.float32(k**-0.5)
    return rng.standard_normal((m, k), np.float32), *quantize(w, 0)


def make_quantized_inputs(
    seed: int = 0, m: int = 100, k: int = 150, n: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x [m, k] int8, row_scale [m], w, scale."""
    x, w, scale = make_inputs(seed, m, k, n)
    return *quantize(x, 1), w, scale


def case(m: int, k: int, n: int, dtype: str) -> tuple:
    """Arguments of the first kernel, of which only shapes are known."""
    return tile.spec((m, k), dtype), tile.spec((k, n), "int8"), tile.spec((n,), "float32")


def quantized_case(m: int, k: int, n: int, result: str) -> tuple:
    """The same for the second kernel."""
    x, w = tile.spec((m, k), "int8"), tile.spec((k, n), "int8")
    return x, tile.spec((m,), result), w, tile.spec((n,), result)


SIZES = ((512, 512, 512), (500, 200, 300), (8192, 4096, 4096))  # aligned, unaligned, production
DTYPES = ("bfloat16", "float32")
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in DTYPES)
QUANTIZED_CASES = tuple(quantized_case(*sizes, dtype) for sizes in SIZES for dtype in DTYPES)


def cases() -> Iterator[tuple[tile.Kernel, tuple]]:
    """Every kernel with its arguments, for compile checks."""
    yield from ((weight_only_matmul, each) for each in CASES)
    yield from ((quantized_matmul, each) for each in QUANTIZED_CASES)


def main() -> None:
    """Runs the kernels from torch and from JAX."""
    arguments = make_inputs()
    compare("weights int8", weight_only_matmul, arguments, oracle(*arguments))
    arguments = make_quantized_inputs()
    compare("x and weights int8", quantized_matmul, arguments, oracle_quantized(*arguments))


if __name__ == "__main__":
    main()
