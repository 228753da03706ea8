"""More kernels of examples/jagged: reductions in groups, other attention, gradients."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.jagged import (
    grouped_query_attention,
    hstu_attention,
    jagged_attention_backward,
    jagged_layer_norm,
    jagged_softmax,
    sliding_window_attention,
    varlen_attention,
)
from tests.baselines import groups_of, product
from tests.subjects.subject import Arrays, Ragged, Subject, jagged

Array = jax.Array


# ---------------------------------------------------------------- the same in XLA


def _members(offsets: Array, rows: int) -> Array:
    """Which rows share a group: [rows, rows]; none for rows in no group."""
    group, inside = groups_of(offsets, rows)
    return (group[:, None] == group[None, :]) & inside[None, :] & inside[:, None]


def softmax(x: Array, offsets: Array) -> Array:
    group, inside = groups_of(offsets, len(x))
    count = len(offsets) - 1
    rows = jnp.where(inside[:, None], x.astype(jnp.float32), -math.inf)
    peak = jax.ops.segment_max(rows, group, count)
    weights = jnp.where(inside[:, None], jnp.exp(rows - peak[group]), 0)
    total = jax.ops.segment_sum(weights, group, count)
    return jnp.where(inside[:, None], weights / total[group], 0).astype(x.dtype)


def layer_norm(x: Array, weight: Array, bias: Array, offsets: Array, eps: float = 1e-5) -> Array:
    group, inside = groups_of(offsets, len(x))
    count = jnp.maximum(jnp.diff(offsets), 1).astype(jnp.float32) * x.shape[1]
    rows = jnp.where(inside[:, None], x.astype(jnp.float32), 0)

    def mean(values: Array) -> Array:
        sums = jax.ops.segment_sum(values.sum(1), group, len(offsets) - 1)
        return (sums / count)[group][:, None]

    centred = jnp.where(inside[:, None], rows - mean(rows), 0)
    normal = centred * jax.lax.rsqrt(mean(centred * centred) + eps)
    return jnp.where(inside[:, None], normal * weight + bias, 0).astype(x.dtype)


def attention(q: Array, k: Array, v: Array, seen: Array) -> Array:
    scores = jnp.where(seen, product("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5, -math.inf)
    peak = scores.max(-1, keepdims=True, initial=-math.inf)
    p = jnp.exp(scores - jnp.where(peak == -math.inf, 0, peak))
    out = product("hqk,hkd->hqd", p.astype(v.dtype), v) / p.sum(-1, keepdims=True)
    return jnp.where(seen.any(-1)[:, None], out, 0).astype(v.dtype)


def window(q: Array, k: Array, v: Array, offsets: Array, window: int = 64) -> Array:
    position = jnp.arange(q.shape[1])
    distance = position[:, None] - position[None, :]
    seen = _members(offsets, q.shape[1]) & (distance >= 0) & (distance < window)
    return attention(q, k, v, seen)


def grouped_query(q: Array, k: Array, v: Array, offsets: Array, causal: bool = True) -> Array:
    share = len(q) // len(k)
    seen = _members(offsets, q.shape[1])
    return attention(
        q, jnp.repeat(k, share, 0), jnp.repeat(v, share, 0), jnp.tril(seen) if causal else seen
    )


def varlen(
    q: Array, k: Array, v: Array, offsets: Array, causal: bool = True, longest: int = 0
) -> Array:
    first = [jnp.moveaxis(array, 1, 0) for array in (q, k, v)]
    return jnp.moveaxis(grouped_query(first[0], first[1], first[2], offsets, causal), 0, 1)


def hstu(q: Array, k: Array, v: Array, offsets: Array, longest: int, causal: bool = True) -> Array:
    seen = _members(offsets, q.shape[1])
    scores = product("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    weights = jnp.where(jnp.tril(seen) if causal else seen, jax.nn.silu(scores) / longest, 0)
    # rows in no group have no weight but may hold anything
    values = jnp.where(seen.any(0)[:, None], v, 0)
    weights = jnp.where(seen.any(0), weights, 0)
    return product("hqk,hkd->hqd", weights.astype(v.dtype), values).astype(v.dtype)


def with_lse(q: Array, k: Array, v: Array, offsets: Array) -> tuple[Array, Array]:
    seen = _members(offsets, q.shape[1])
    scores = jnp.where(seen, product("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5, -math.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    return attention(q, k, v, seen), jnp.where(seen.any(-1), lse, 0)


def _flow(q: Array, k: Array, v: Array, out: Array, lse: Array, grad: Array, offsets: Array) -> Any:
    """The weights and the gradients of the scores."""
    seen = _members(offsets, q.shape[1])
    scores = product("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    p = jnp.where(seen, jnp.exp(scores - lse[..., None]), 0)
    delta = (grad.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1)
    dp = product("hqd,hkd->hqk", grad, v)
    ds = jnp.where(seen, p * (dp - delta[..., None]) * q.shape[-1] ** -0.5, 0)
    inside = seen.any(-1)[:, None]
    clean = [jnp.where(inside, a, 0) for a in (q, k, grad)]
    return p, ds, clean


def backward_q(*arguments: Array) -> Array:
    q, k = arguments[:2]
    _, ds, (_, keys, _) = _flow(*arguments)
    return product("hqk,hkd->hqd", ds.astype(k.dtype), keys).astype(q.dtype)


def backward_kv(*arguments: Array) -> tuple[Array, Array]:
    q, k, v = arguments[:3]
    p, ds, (queries, _, grads) = _flow(*arguments)
    dk = product("hqk,hqd->hkd", ds.astype(q.dtype), queries).astype(k.dtype)
    return dk, product("hqk,hqd->hkd", p.astype(v.dtype), grads).astype(v.dtype)


# ---------------------------------------------------------------- gradients in float64


def _exact_flow(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    out: np.ndarray,
    lse: np.ndarray,
    grad: np.ndarray,
    offsets: np.ndarray,
) -> Any:
    """(rows, weights, gradients of the scores) of one sequence after the other.

    Of the lse and out that are given: the kernels do not look where those come from.
    """
    for begin, end in itertools.pairwise(offsets):
        rows = slice(begin, end)
        one = [a[:, rows].astype(np.float64) for a in (q, k, v, out, lse, grad)]
        scores = one[0] @ one[1].swapaxes(1, 2) / math.sqrt(q.shape[2])
        p = np.exp(scores - one[4][..., None])
        delta = (one[5] * one[3]).sum(-1, keepdims=True)
        ds = p * (one[5] @ one[2].swapaxes(1, 2) - delta) / math.sqrt(q.shape[2])
        yield rows, p, ds, one


def exact_q(*arguments: np.ndarray) -> np.ndarray:
    dq = np.zeros(arguments[0].shape)
    for rows, _, ds, one in _exact_flow(*arguments):
        dq[:, rows] = ds @ one[1]
    return dq


def exact_kv(*arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    dk, dv = np.zeros((2, *arguments[1].shape))
    for rows, p, ds, one in _exact_flow(*arguments):
        dk[:, rows] = ds.swapaxes(1, 2) @ one[0]
        dv[:, rows] = p.swapaxes(1, 2) @ one[5]
    return dk, dv


def _gradient_inputs(seed: int, rows: int, groups: int) -> Arrays:
    """q, k, v, out, lse and grad; lse is what keeps the weights below 1."""
    rng = np.random.default_rng(seed)
    q, k, v, out, grad = rng.standard_normal((5, 2, rows, 32), np.float32)
    lse = rng.uniform(4, 5, (2, rows)).astype(np.float32)
    return q, k, v, out, lse, grad


# ---------------------------------------------------------------- subjects

_ROWS = Ragged({0: 1, 1: 1, 2: 1}, (), 1)
_BLOCKS = {"tq": 16, "tk": 32}
_BACKWARD: dict[str, Any] = {
    "make": _gradient_inputs,
    "cases": jagged_attention_backward.CASES,
    "blocks": _BLOCKS,
}
_CUT = dict.fromkeys(range(6), 1)

SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="jagged_softmax",
        kernel=jagged_softmax.jagged_softmax,
        oracle=jagged_softmax.oracle,
        baseline=softmax,
        make=jagged(jagged_softmax.make_inputs, features=200),
        cases=jagged_softmax.CASES,
        blocks={"tf": 128, "tm": 16, "tm_1": 16},
        ragged=Ragged({0: 0}, (), 0),
    ),
    Subject(
        name="jagged_layer_norm",
        kernel=jagged_layer_norm.jagged_layer_norm,
        oracle=jagged_layer_norm.oracle,
        baseline=layer_norm,
        make=jagged(jagged_layer_norm.make_inputs, features=200),
        cases=jagged_layer_norm.CASES,
        blocks={"tm": 16, "tm_1": 16, "tm_2": 16},
        groups={"g": 2},
        ragged=Ragged({0: 0}, (), 0),
    ),
    Subject(
        name="sliding_window_attention",
        kernel=sliding_window_attention.sliding_window_attention,
        oracle=sliding_window_attention.oracle,
        baseline=window,
        make=lambda seed, rows, groups: sliding_window_attention.make_inputs(
            seed, (0,) * (groups + 1), rows
        )[:3],
        cases=tuple((*c[:-1], 20) for c in sliding_window_attention.CASES),
        blocks=_BLOCKS,
        ragged=_ROWS,
        static=(20,),
        within=("h",),
    ),
    Subject(
        name="hstu_attention",
        kernel=hstu_attention.hstu_attention,
        oracle=hstu_attention.oracle,
        baseline=hstu,
        make=lambda seed, rows, groups: hstu_attention.make_inputs(seed, (0,) * (groups + 1), rows)[
            :3
        ],
        cases=hstu_attention.CASES,
        blocks=_BLOCKS,
        ragged=_ROWS,
        static=(300,),  # no layout of the tests has a longer sequence
        within=("h",),
    ),
    Subject(
        name="grouped_query_attention",
        kernel=grouped_query_attention.grouped_query_attention,
        oracle=grouped_query_attention.oracle,
        baseline=grouped_query,
        make=jagged(grouped_query_attention.make_inputs, rows_name="length"),
        cases=grouped_query_attention.CASES,
        blocks=_BLOCKS,
        ragged=_ROWS,
        within=("h",),
    ),
    Subject(
        name="varlen_attention",
        kernel=varlen_attention.varlen_attention,
        oracle=varlen_attention.oracle,
        baseline=varlen,
        make=jagged(varlen_attention.make_inputs, rows_name="length"),
        cases=varlen_attention.CASES,
        blocks=_BLOCKS,
        ragged=Ragged({0: 0, 1: 0, 2: 0}, (), 0),
        static=(True, 300),
        within=("h",),
    ),
    Subject(
        name="attention_with_lse",
        kernel=jagged_attention_backward.attention_with_lse,
        oracle=jagged_attention_backward.oracle,
        baseline=with_lse,
        make=lambda seed, rows, groups: _gradient_inputs(seed, rows, groups)[:3],
        cases=jagged_attention_backward.FORWARD_CASES,
        blocks=_BLOCKS,
        ragged=Ragged({0: 1, 1: 1, 2: 1}, (), (1, 1)),
        results=("", "float32"),
        within=("h",),
    ),
    Subject(
        name="attention_backward_of_q",
        kernel=jagged_attention_backward.backward_q,
        oracle=exact_q,
        baseline=backward_q,
        ragged=Ragged(_CUT, (), 1),
        **_BACKWARD,
    ),
    Subject(
        name="attention_backward_of_kv",
        kernel=jagged_attention_backward.backward_kv,
        oracle=exact_kv,
        baseline=backward_kv,
        ragged=Ragged(_CUT, (), (1, 1)),
        results=("", ""),
        **_BACKWARD,
    ),
)
