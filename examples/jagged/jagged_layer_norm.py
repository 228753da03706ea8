"""Layer normalisation of ragged batches: a group is normalised over all of its rows and features.

    offsets  0        37  37            120          190      200
             |---------|---|-------------|------------|........|
              group 0    1     group 2      group 3     in no group: y is 0

A group of n rows has n * F numbers; their mean becomes 0 and their variance 1, and every feature
is then scaled by a weight and shifted by a bias.  (Where every row is normalised by itself, a
ragged batch needs nothing special: see examples/dense/layer_norm.py.)

How to read the kernel: three passes over the rows of a group.  The variance is summed from
differences to the mean, and not as E[x^2] - E[x]^2, which would cancel.  The first two loops over
`tm` are ordered, because they carry sums; the third is parallel.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_layer_norm(x, weight, bias, offsets, eps: hl.constexpr = 1e-5):
    """y[r] = (x[r] - mean of r's group) / sqrt(variance of r's group + eps) * weight + bias.

    x             [T, F] in float32 or bfloat16
    weight, bias  [F]
    offsets       [G + 1] integers, not decreasing

    Returns [T, F] in x's dtype; rows in no group are zero.
    """
    T, F = x.shape
    y = jnp.zeros([T, F], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
        total = 0.0
        for tm in hl.tile(begin, end):
            total += jnp.sum(x[tm, :].astype(jnp.float32))
        mean = total / count
        squares = 0.0
        for tm in hl.tile(begin, end):
            centred = x[tm, :].astype(jnp.float32) - mean
            squares += jnp.sum(centred * centred)
        scale = jax.lax.rsqrt(squares / count + eps)
        for tm in hl.tile(begin, end):
            normal = (x[tm, :].astype(jnp.float32) - mean) * scale
            y[tm, :] = (normal * weight[:] + bias[:]).astype(y.dtype)
    return y


def oracle(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, offsets: np.ndarray, eps: float = 1e-5
) -> np.ndarray:
    """The same in float64, one group after the other."""
    x, weight, bias = (a.astype(np.float64) for a in (x, weight, bias))
    y = np.zeros(x.shape)
    for begin, end in itertools.pairwise(offsets):
        if begin < end:
            group = x[begin:end]
            y[begin:end] = (group - group.mean()) / np.sqrt(group.var() + eps) * weight + bias
    return y


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    features: int = 72,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, features], weight and bias [features], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features), np.float32) * 2 + 1
    weight, bias = rng.standard_normal((2, features), np.float32)
    return x, weight, bias, np.array(offsets, np.int32)


def case(rows: int, features: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    x, weight = tile.spec((rows, features), dtype), tile.spec((features,), dtype)
    return x, weight, weight, tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 256, 8),  # aligned
    (1000, 72, 7),  # unaligned
    (131072, 512, 512),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("jagged_layer_norm", jagged_layer_norm, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
