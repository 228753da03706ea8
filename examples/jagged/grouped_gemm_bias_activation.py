"""A grouped matrix product with an epilogue: bias, activation, and the gated form of it.

The first half of an expert's feed-forward layer.  The rows of `x` are sorted by group, group g owns
the rows from offsets[g] to offsets[g + 1], and each group has weights and a bias of its own:

    y[r] = activation(x[r] @ w[g] + bias[g])
    y[r] = activation(x[r] @ w[g]) * (x[r] @ v[g])          with a gate, as in SwiGLU

    offsets  0         37  37              120                190       200
             |--------------|---------------|------------------|.........|
              w[0], bias[0]   w[2], bias[2]    w[3], bias[3]     in no group: y is 0

`make_kernel(activation)` makes a kernel of any function of one value: kernels are templates,
because what they find in enclosing scopes is theirs as a constant.  The epilogue costs no pass over
memory of its own: it runs on the accumulator before that is stored.

How to read the kernels: they are spelled in jax.numpy, and mean the same for torch tensors.  `tm`,
`tn` and `tk` are tiles of rows, columns and inner positions; `acc` is carried along `tk`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


def make_kernel(activation: Callable[[Any], Any]) -> tile.Kernel:
    """A kernel with that activation after the bias."""

    @tile.kernel
    def grouped_gemm_bias_activation(x, w, bias, offsets):
        """y[r] = activation(x[r] @ w[g] + bias[g]); rows in no group are zero."""
        M, K = x.shape
        G, _, N = w.shape
        y = jnp.zeros([M, N], dtype=x.dtype)
        for g in hl.grid(G):
            for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):
                acc = jnp.zeros([tm, tn], dtype=jnp.float32)
                for tk in hl.tile(K):
                    acc += jnp.dot(x[tm, tk], w[g, tk, tn], preferred_element_type=jnp.float32)
                y[tm, tn] = activation(acc + bias[g, tn]).astype(y.dtype)
        return y

    return grouped_gemm_bias_activation


def make_gated_kernel(activation: Callable[[Any], Any]) -> tile.Kernel:
    """A kernel whose activation opens and closes a second product."""

    @tile.kernel
    def grouped_gemm_gated(x, w, v, offsets):
        """y[r] = activation(x[r] @ w[g]) * (x[r] @ v[g]); rows in no group are zero."""
        M, K = x.shape
        G, _, N = w.shape
        y = jnp.zeros([M, N], dtype=x.dtype)
        for g in hl.grid(G):
            for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):
                gate = jnp.zeros([tm, tn], dtype=jnp.float32)
                value = jnp.zeros([tm, tn], dtype=jnp.float32)
                for tk in hl.tile(K):
                    rows = x[tm, tk]
                    gate += jnp.dot(rows, w[g, tk, tn], preferred_element_type=jnp.float32)
                    value += jnp.dot(rows, v[g, tk, tn], preferred_element_type=jnp.float32)
                y[tm, tn] = (activation(gate) * value).astype(y.dtype)
        return y

    return grouped_gemm_gated


gelu_layer = make_kernel(jax.nn.gelu)
relu_layer = make_kernel(jax.nn.relu)
swiglu_layer = make_gated_kernel(jax.nn.silu)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def oracle(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    offsets: np.ndarray,
    activation: Callable[[np.ndarray], np.ndarray] = gelu,
) -> np.ndarray:
    """The same in float64: one product per group."""
    x, w, bias = (a.astype(np.float64) for a in (x, w, bias))
    y = np.zeros((x.shape[0], w.shape[2]))
    for g, (begin, end) in enumerate(pairwise(offsets)):
        y[begin:end] = activation(x[begin:end] @ w[g] + bias[g])
    return y


def oracle_gated(x: np.ndarray, w: np.ndarray, v: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The gated layer in float64, with silu."""
    x, w, v = (a.astype(np.float64) for a in (x, w, v))
    y = np.zeros((x.shape[0], w.shape[2]))
    for g, (begin, end) in enumerate(pairwise(offsets)):
        y[begin:end] = silu(x[begin:end] @ w[g]) * (x[begin:end] @ v[g])
    return y


Four = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    k: int = 64,
    n: int = 96,
) -> Four:
    """x [rows, k], w [groups, k, n], bias [groups, n], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k), np.float32)
    w = rng.standard_normal((len(offsets) - 1, k, n), np.float32) * np.float32(k**-0.5)
    bias = rng.standard_normal((len(offsets) - 1, n), np.float32)
    return x, w, bias, np.array(offsets, np.int32)


def make_gated_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    rows: int = 200,
    k: int = 64,
    n: int = 96,
) -> Four:
    """x [rows, k], w and v [groups, k, n], offsets [groups + 1]."""
    x, w, _, ends = make_inputs(seed, offsets, rows, k, n)
    v = np.random.default_rng(seed + 1).standard_normal(w.shape, np.float32) * np.float32(k**-0.5)
    return x, w, v, ends


def case(rows: int, k: int, n: int, groups: int, dtype: str, gated: bool = False) -> tuple:
    """Arguments of which only shapes are known."""
    x, w = tile.spec((rows, k), dtype), tile.spec((groups, k, n), dtype)
    third = w if gated else tile.spec((groups, n), dtype)
    return x, w, third, tile.spec((groups + 1,), "int32")


SIZES = (
    (1024, 512, 512, 8),  # aligned
    (1000, 200, 300, 7),  # unaligned
    (16384, 4096, 2048, 64),  # production
)
DTYPES = ("bfloat16", "float32")
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in DTYPES)
GATED_CASES = tuple(case(*sizes, dtype, True) for sizes in SIZES for dtype in DTYPES)


def cases() -> Iterator[tuple[tile.Kernel, tuple]]:
    """Every kernel with its arguments, for `python -m tilelang check`."""
    for arguments in CASES:
        yield gelu_layer, arguments
    for arguments in GATED_CASES:
        yield swiglu_layer, arguments


def main() -> None:
    """Runs the kernels from torch and from JAX."""
    arguments = make_inputs()
    compare("gelu(x @ w + bias)", gelu_layer, arguments, oracle(*arguments))
    compare("relu(x @ w + bias)", relu_layer, arguments, oracle(*arguments, relu))
    arguments = make_gated_inputs()
    compare("silu(x @ w) * (x @ v)", swiglu_layer, arguments, oracle_gated(*arguments))


if __name__ == "__main__":
    main()
