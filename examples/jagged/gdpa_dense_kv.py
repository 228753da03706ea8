"""Generalised dot-product attention: jagged queries, dense keys and values, any activation.

Recommendation models attend from user histories of any length to a fixed number of keys, and put
an activation such as GELU where ordinary attention has its softmax:

    out = activation(q k^T / sqrt(D)) v

q is [H, T, D], with group b in the positions from offsets[b] up to offsets[b + 1]; k and v are
[B, H, S, D], so that every group has S keys of its own.

There is no normalisation, so the sum over keys needs no running maximum: the loop over `ts`
carries nothing but `acc`.  What is worth copying from this file is the *template*: the activation
is a parameter of `make_kernel`, the kernel is a closure over it, and the compiler inlines whatever
function was passed, of JAX, of torch or of your own.

    gelu_attention = make_kernel(jax.nn.gelu)
    silu_attention = make_kernel(torch.nn.functional.silu)
    squared_relu = make_kernel(lambda score: hl.relu(score) * hl.relu(score))
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


def make_kernel(activation: Callable[[Any], Any]) -> tile.Kernel:
    """The kernel for one activation, which maps a block of float32 scores to weights."""

    @tile.kernel
    def gdpa_dense_kv(q, k, v, offsets):
        """out[:, r] = activation(q[:, r] k[b]^T / sqrt(D)) v[b] for r in group b, else zero."""
        H, T, D = q.shape
        B, _, S, _ = k.shape
        out = jnp.zeros([H, T, D], dtype=q.dtype)
        for h, b in hl.grid([H, B]):
            for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
                acc = jnp.zeros([tq, D], dtype=jnp.float32)
                for ts in hl.tile(S):
                    keys = k[b, h, ts, :]
                    scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=jnp.float32)
                    weights = activation(scores * D**-0.5).astype(v.dtype)
                    acc += jnp.dot(weights, v[b, h, ts, :], preferred_element_type=jnp.float32)
                out[h, tq, :] = acc.astype(out.dtype)
        return out

    return gdpa_dense_kv


gelu_attention = make_kernel(jax.nn.gelu)
silu_attention = make_kernel(jax.nn.silu)


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution function in its tanh form, which jax.nn.gelu defaults to."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    """x times the logistic function."""
    return x / (1 + np.exp(-x))


def oracle(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    offsets: np.ndarray,
    activation: Callable[[np.ndarray], np.ndarray] = gelu,
) -> np.ndarray:
    """The same in float64, one group at a time and all heads at once."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    out = np.zeros_like(q)
    for b, (begin, end) in enumerate(pairwise(offsets)):
        scores = np.einsum("hqd,hsd->hqs", q[:, begin:end], k[b]) / np.sqrt(q.shape[2])
        out[:, begin:end] = np.einsum("hqs,hsd->hqd", activation(scores), v[b])
    return out


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 180),
    length: int = 200,
    heads: int = 2,
    keys: int = 40,
    width: int = 32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q [heads, length, width], k and v [groups, heads, keys, width], offsets [groups + 1]."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, length, width), np.float32)
    k, v = rng.standard_normal((2, len(offsets) - 1, heads, keys, width), np.float32)
    return q, k, v * np.float32(keys**-0.5), np.array(offsets, np.int32)


def case(heads: int, length: int, keys: int, width: int, groups: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q, k = tile.spec((heads, length, width), dtype), tile.spec((groups, heads, keys, width), dtype)
    return q, k, k, tile.spec((groups + 1,), "int32")


SIZES = (
    (4, 1024, 256, 128, 8),  # aligned
    (3, 1000, 100, 64, 7),  # unaligned
    (8, 16384, 512, 128, 64),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs both kernels from torch and from JAX."""
    arguments = make_inputs()
    compare("gdpa_dense_kv, gelu", gelu_attention, arguments, oracle(*arguments))
    compare("gdpa_dense_kv, silu", silu_attention, arguments, oracle(*arguments, silu))


if __name__ == "__main__":
    main()
