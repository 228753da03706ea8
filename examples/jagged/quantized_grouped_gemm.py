"""A grouped matrix product with 8-bit weights, and one with 8-bit inputs as well.

Weights of 8 bits are read from memory in half the time of 16-bit ones.  Each column of each group's
matrix has a scale, and a weight is stored as the integer (or 8-bit float) that is nearest to
weight / scale.  Scales belong to columns, so they stay outside of the sum over k:

    y[r, n] = sum_k x[r, k] * (w[g, k, n] * scale[g, n]) = scale[g, n] * sum_k x[r, k] * w[g, k, n]

If the rows of x are 8-bit too, each with a scale of its own, the sum is one of products of 8-bit
values: integers are summed in int32, which is exact, and floats in float32.

    offsets  0         37  37              120                190       200
             |--------------|---------------|------------------|.........|
    x         37 rows @ w[0]  83 rows @ w[2]   70 rows @ w[3]    in no group: y is 0

How to read the kernels: `tm`, `tn` and `tk` are tiles, `acc` is carried along `tk`.  The weights
are int8, float8_e4m3fn or float8_e5m2, and converted one block at a time, after they were read.
v4 has no products of 8-bit values: there the first kernel works and the second one does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import ml_dtypes
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def weight_only_grouped_gemm(x, w, scale, offsets):
    """y[r] = x[r] @ (w[g] * scale[g]) for the rows r of group g; other rows are zero."""
    M, K = x.shape
    G, _, N = w.shape
    y = hl.zeros([M, N], dtype=x.dtype)
    for g in hl.grid(G):
        for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(K):
                acc = hl.dot(x[tm, tk], w[g, tk, tn].to(x.dtype), acc=acc)
            y[tm, tn] = (acc * scale[g, tn]).to(y.dtype)
    return y


@tile.kernel
def quantized_grouped_gemm(x, row_scale, w, scale, offsets):
    """y[r] = (x[r] * row_scale[r]) @ (w[g] * scale[g]), of 8-bit x and w; dtype of the scales."""
    M, K = x.shape
    G, _, N = w.shape
    y = hl.zeros([M, N], dtype=scale.dtype)
    sums = hl.float32 if w.dtype.is_floating_point else hl.int32
    for g in hl.grid(G):
        for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):
            acc = hl.zeros([tm, tn], dtype=sums)
            for tk in hl.tile(K):
                acc = hl.dot(x[tm, tk], w[g, tk, tn], acc=acc)
            rescaled = acc.to(hl.float32) * row_scale[tm][:, None] * scale[g, tn]
            y[tm, tn] = rescaled.to(y.dtype)
    return y


def quantize(array: np.ndarray, dtype: str, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(8-bit values, scales): along `axis` the largest value becomes the largest of the dtype."""
    largest = 127.0 if dtype == "int8" else float(ml_dtypes.finfo(dtype).max)
    scale = np.abs(array).max(axis, keepdims=True, initial=0) / np.float32(largest)
    scale = np.where(scale == 0, np.float32(1), scale)
    scaled = array / scale
    values = np.rint(scaled).astype(np.int8) if dtype == "int8" else scaled.astype(dtype)
    return values, scale.squeeze(axis)


def oracle(x: np.ndarray, w: np.ndarray, scale: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The first kernel in float64: the weights are restored before they are used."""
    x, w, scale = (a.astype(np.float64) for a in (x, w, scale))
    y = np.zeros((x.shape[0], w.shape[2]))
    for group, (begin, end) in zip(w * scale[:, None], pairwise(offsets), strict=True):
        y[begin:end] = x[begin:end] @ group
    return y


def oracle_quantized(
    x: np.ndarray, row_scale: np.ndarray, w: np.ndarray, scale: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """The second kernel in float64."""
    rows = x.astype(np.float64) * row_scale.astype(np.float64)[:, None]
    return oracle(rows, w, scale, offsets)


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    k: int = 64,
    n: int = 96,
    dtype: str = "int8",
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, k], w [groups, k, n] of 8 bits, scale [groups, n], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k), np.float32)
    w = rng.standard_normal((len(offsets) - 1, k, n), np.float32) * np.float32(k**-0.5)
    return x, *quantize(w, dtype, 1), np.array(offsets, np.int32)


def make_quantized_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    k: int = 64,
    n: int = 96,
    dtype: str = "int8",
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, k] of 8 bits, row_scale [rows], w, scale, offsets."""
    x, w, scale, ends = make_inputs(seed, offsets, rows, k, n, dtype)
    return *quantize(x, dtype, 1), w, scale, ends


def case(rows: int, k: int, n: int, groups: int, dtype: str, weights: str = "int8") -> tuple:
    """Arguments of the first kernel, of which only shapes are known."""
    x, w = tile.spec((rows, k), dtype), tile.spec((groups, k, n), weights)
    return x, w, tile.spec((groups, n), "float32"), tile.spec((groups + 1,), "int32")


def quantized_case(rows: int, k: int, n: int, groups: int, dtype: str, result: str) -> tuple:
    """The same for the second kernel."""
    x, w = tile.spec((rows, k), dtype), tile.spec((groups, k, n), dtype)
    row_scale, scale = tile.spec((rows,), result), tile.spec((groups, n), result)
    return x, row_scale, w, scale, tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 512, 512, 8),  # aligned
    (1000, 200, 300, 7),  # unaligned
    (16384, 4096, 2048, 64),  # production
)
DTYPES = ("bfloat16", "float32")
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in DTYPES)
FLOAT8_CASES = tuple(
    case(*sizes, dtype, weights)
    for sizes in SIZES
    for dtype, weights in zip(DTYPES, ("float8_e4m3fn", "float8_e5m2"))
)
QUANTIZED_CASES = tuple(
    quantized_case(*sizes, dtype, result)
    for sizes in SIZES
    for dtype, result in zip(("int8", "float8_e4m3fn"), DTYPES)
)


def cases() -> Iterator[tuple[tile.Kernel, tuple]]:
    """Every kernel with its arguments, for `python -m tilelang check`."""
    for arguments in (*CASES, *FLOAT8_CASES):
        yield weight_only_grouped_gemm, arguments
    for arguments in QUANTIZED_CASES:
        yield quantized_grouped_gemm, arguments


def main() -> None:
    """Runs the kernels from torch and from JAX."""
    arguments = make_inputs()
    compare("weights int8", weight_only_grouped_gemm, arguments, oracle(*arguments))
    arguments = make_quantized_inputs()
    expected = oracle_quantized(*arguments)
    compare("rows and weights int8", quantized_grouped_gemm, arguments, expected)


if __name__ == "__main__":
    main()
