"""What XLA makes of the examples: the same mathematics, in the same dtypes, without a tile.

The errors of these functions against float64 are the measure for the errors of the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array


def product(spec: str, x: Array, y: Array) -> Array:
    """An einsum that is accumulated in float32."""
    return jnp.einsum(spec, x, y, preferred_element_type=jnp.float32)


def groups_of(offsets: Array, rows: int) -> tuple[Array, Array]:
    """The group of every row, and whether it is in one."""
    position = jnp.arange(rows)
    group = jnp.searchsorted(offsets, position, side="right") - 1
    inside = (offsets[0] <= position) & (position < offsets[-1])
    return jnp.clip(group, 0, max(len(offsets) - 2, 0)), inside


# ---------------------------------------------------------------- jagged


def grouped_gemm(x: Array, w: Array, offsets: Array) -> Array:
    return grouped_gemm_bias(x, w, jnp.zeros((w.shape[0], w.shape[2]), x.dtype), offsets)


def grouped_gemm_bias(x: Array, w: Array, bias: Array, offsets: Array) -> Array:
    group, inside = groups_of(offsets, len(x))
    y = product("rk,rkn->rn", x, w[group]) + bias[group]
    return jnp.where(inside[:, None], y, 0).astype(x.dtype)


def jagged_attention(
    q: Array, k: Array, v: Array, offsets: Array, causal: bool = False, longest: int | None = None
) -> Array:
    group, inside = groups_of(offsets, q.shape[1])
    seen = (group[:, None] == group[None, :]) & inside[None, :]
    return jnp.where(inside[:, None], _attention(q, k, v, seen, causal), 0).astype(v.dtype)


def flash_attention(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    seen = jnp.ones((q.shape[2], k.shape[2]), bool)
    return _attention(q, k, v, seen, causal).astype(q.dtype)


def _attention(q: Array, k: Array, v: Array, seen: Array, causal: bool) -> Array:
    scores = product("...qd,...kd->...qk", q, k) * q.shape[-1] ** -0.5
    seen = jnp.tril(seen) if causal else seen
    scores = jnp.where(seen, scores, -math.inf)
    p = jnp.exp(scores - scores.max(-1, keepdims=True, initial=-math.inf))
    return product("...qk,...kd->...qd", p.astype(v.dtype), v) / p.sum(-1, keepdims=True)


def gdpa(activation: Callable[[Array], Array]) -> Callable[..., Array]:
    def run(q: Array, k: Array, v: Array, offsets: Array) -> Array:
        group, inside = groups_of(offsets, q.shape[1])
        scores = product("htd,thsd->hts", q, k[group]) * q.shape[2] ** -0.5
        out = product("hts,thsd->htd", activation(scores).astype(v.dtype), v[group])
        return jnp.where(inside[:, None], out, 0).astype(q.dtype)

    return run


def jagged_sum(x: Array, offsets: Array) -> Array:
    return _sums(x, offsets, jnp.int32 if x.dtype == jnp.int32 else jnp.float32).astype(x.dtype)


def jagged_mean(x: Array, offsets: Array) -> Array:
    counts = jnp.maximum(jnp.diff(offsets), 1)[:, None]
    return (_sums(x, offsets, jnp.float32) / counts).astype(x.dtype)


def _sums(x: Array, offsets: Array, dtype: Any) -> Array:
    group, inside = groups_of(offsets, len(x))
    rows = jnp.where(inside[:, None], x, 0).astype(dtype)
    return jax.ops.segment_sum(rows, group, len(offsets) - 1)


# ---------------------------------------------------------------- dense


def softmax(x: Array) -> Array:
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype)


def matmul(x: Array, w: Array) -> Array:
    return product("mk,kn->mn", x, w).astype(x.dtype)


def matmul_bias(slope: float) -> Callable[..., Array]:
    def run(x: Array, w: Array, bias: Array) -> Array:
        shifted = product("mk,kn->mn", x, w) + bias
        return jnp.where(shifted > 0, shifted, slope * shifted).astype(x.dtype)

    return run


def batched_matmul(x: Array, w: Array) -> Array:
    return product("bmk,bkn->bmn", x, w).astype(x.dtype)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Array:
    rows = x.astype(jnp.float32)
    centred = rows - rows.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
    return (normal * weight + bias).astype(x.dtype)


def long_sum(x: Array) -> Array:
    return x.astype(jnp.float32).sum(-1).astype(x.dtype)
