"""Attention between two ragged batches: user histories look at candidates of the same request.

    q offsets   0    20 21        60        80      requests 0, 1, 2; the last rows are in none
                |-----|-|----------|.........|
    kv offsets  0          50      50    90 100
                |-----------|       |-----|..|      request 1 has no candidates: its rows are 0

GDPA ("generalised dot-product attention") replaces softmax by an activation, so that a row's result
is a plain sum over keys.  Queries and keys have offsets of their own, and lengths that differ.

How to read the kernel: the ranges of `tq` and `tk` are read from two tensors.  A tile of queries
that no request has still gets a step, in which nothing is added: its rows stay zero.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


def make_kernel(activation: Callable[[jax.Array], jax.Array]) -> tile.Kernel:
    """The kernel for an activation, which is compiled into it."""

    @tile.kernel
    def gdpa_jagged_kv(q, k, v, q_offsets, kv_offsets):
        """out[:, r] = sum of activation(q[:, r] k[:, s] / sqrt(D)) v[:, s] over keys s of r.

        q           [H, Q, D] in float32 or bfloat16
        k, v        [H, K, D] and [H, K, width]
        q_offsets   [B + 1] integers, not decreasing: where the queries of each request begin
        kv_offsets  [B + 1] the same for keys and values

        Returns [H, Q, width] in v's dtype; queries in no request are zero.
        """
        H, Q, D = q.shape
        width = v.shape[2]
        out = jnp.zeros([H, Q, width], dtype=v.dtype)
        for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
            for tq in hl.tile(q_offsets[b], q_offsets[b + 1]):
                acc = jnp.zeros([tq, width], dtype=jnp.float32)
                for tk in hl.tile(kv_offsets[b], kv_offsets[b + 1]):
                    scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_element_type=jnp.float32)
                    weights = activation(scores * D**-0.5).astype(v.dtype)
                    acc += jnp.dot(weights, v[h, tk, :], preferred_element_type=jnp.float32)
                out[h, tq, :] = acc.astype(out.dtype)
        return out

    return gdpa_jagged_kv


gdpa_jagged_kv = make_kernel(jax.nn.gelu)


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form, which is the default of jax.nn.gelu."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def oracle(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, q_offsets: np.ndarray, kv_offsets: np.ndarray
) -> np.ndarray:
    """The same in float64, one request after the other."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    out = np.zeros((*q.shape[:2], v.shape[2]))
    for b in range(len(q_offsets) - 1):
        rows = slice(q_offsets[b], q_offsets[b + 1])
        keys = slice(kv_offsets[b], kv_offsets[b + 1])
        scores = q[:, rows] @ k[:, keys].transpose(0, 2, 1) / np.sqrt(q.shape[2])
        out[:, rows] = gelu(scores) @ v[:, keys]
    return out


def make_inputs(
    seed: int = 0,
    q_offsets: tuple[int, ...] = (0, 20, 21, 60),
    kv_offsets: tuple[int, ...] = (0, 50, 50, 90),
    queries: int = 80,
    keys: int = 100,
    heads: int = 2,
    width: int = 32,
) -> tuple:
    """q [heads, queries, width], k and v [heads, keys, width], offsets [requests + 1] of both."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, queries, width), np.float32)
    k, v = rng.standard_normal((2, heads, keys, width), np.float32)
    return q, k, v, np.array(q_offsets, np.int32), np.array(kv_offsets, np.int32)


def case(heads: int, queries: int, keys: int, width: int, requests: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q, k = tile.spec((heads, queries, width), dtype), tile.spec((heads, keys, width), dtype)
    offsets = tile.spec((requests + 1,), "int32")
    return q, k, k, offsets, offsets


SIZES = (
    (4, 1024, 2048, 128, 8),  # aligned
    (3, 1000, 700, 64, 7),  # unaligned
    (8, 16384, 65536, 128, 128),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("gdpa_jagged_kv", gdpa_jagged_kv, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
