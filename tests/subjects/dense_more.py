"""More kernels of examples/dense: products, normalisation, losses, positions, gradients."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from examples.dense import (
    attention_backward,
    cross_entropy,
    embedding,
    quantized_matmul,
    rope,
    split_k_matmul,
    swiglu,
    transposed_matmul,
)
from tests import baselines
from tests.subjects.subject import Arrays, Subject

try:  # spelled in torch
    from examples.dense import batch_softmax, rms_norm
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True

Array = Any


def _rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    rows = x.astype(jnp.float32)
    scale = jax.lax.rsqrt((rows * rows).mean(-1, keepdims=True) + eps)
    return (rows * scale * weight).astype(x.dtype)


def _swiglu(gate: Array, up: Array) -> Array:
    return (jax.nn.silu(gate.astype(jnp.float32)) * up.astype(jnp.float32)).astype(gate.dtype)


def _rope(x: Array, cos: Array, sin: Array) -> Array:
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def _smallest_rope(arrays: Arrays) -> Arrays:
    """One pair of features: the width is even."""
    x, cos, sin = arrays
    return x[:1, :1, :2], cos[:1, :1], sin[:1, :1]


def _smallest_loss(arrays: Arrays) -> Arrays:
    """One row and a vocabulary of one, and so the only label is 0."""
    logits, labels = arrays
    return logits[:1, :1], labels[:1] * 0


def _smallest_table(arrays: Arrays) -> Arrays:
    """One index, and a table of one number."""
    ids, table = arrays
    return ids[:1] * 0, table[:1, :1]


def _cross_entropy(logits: Array, labels: Array) -> Array:
    wide = logits.astype(jnp.float32)
    return jax.nn.logsumexp(wide, axis=-1) - wide[jnp.arange(len(wide)), labels]


def _batch_softmax(x: Array) -> Array:
    return jax.nn.softmax(x.astype(jnp.float32), axis=1).astype(x.dtype)


def _transposed(w: Array, x: Array) -> Array:
    return baselines.product("km,nk->mn", x, w).astype(x.dtype)


def _weight_only(x: Array, w: Array, scale: Array) -> Array:
    return (baselines.product("mk,kn->mn", x, w.astype(x.dtype)) * scale).astype(x.dtype)


def _quantized(x: Array, row_scale: Array, w: Array, scale: Array) -> Array:
    sums = jnp.einsum("mk,kn->mn", x, w, preferred_element_type=jnp.int32)
    return (sums.astype(jnp.float32) * row_scale[:, None] * scale).astype(scale.dtype)


def _scores(q: Array, k: Array) -> Array:
    scores = baselines.product("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    return jnp.where(jnp.tri(q.shape[2], dtype=bool), scores, -jnp.inf)


def _attention_with_lse(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    scores = _scores(q, k)
    peak = scores.max(-1, keepdims=True, initial=-jnp.inf)
    p = jnp.exp(scores - peak)
    total = p.sum(-1, keepdims=True)
    out = baselines.product("bhqk,bhkd->bhqd", p.astype(v.dtype), v) / total
    return out.astype(v.dtype), (peak + jnp.log(total))[..., 0]


def _attention_backward(
    q: Array, k: Array, v: Array, out: Array, lse: Array, grad: Array
) -> tuple[Array, Array, Array]:
    p = jnp.exp(_scores(q, k) - lse[..., None])
    delta = (grad.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1, keepdims=True)
    dp = baselines.product("bhqd,bhkd->bhqk", grad, v)
    ds = p * (dp - delta) * q.shape[-1] ** -0.5
    dq = baselines.product("bhqk,bhkd->bhqd", ds.astype(k.dtype), k)
    dk = baselines.product("bhqk,bhqd->bhkd", ds.astype(q.dtype), q)
    dv = baselines.product("bhqk,bhqd->bhkd", p.astype(v.dtype), grad)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


_SIZES: dict[str, int] = {"m": 50, "k": 136, "n": 200}
_BLOCKS = {"tm": 16, "tn": 128, "tk": 128}
SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="swiglu",
        kernel=swiglu.swiglu,
        oracle=swiglu.oracle,
        baseline=_swiglu,
        make=functools.partial(swiglu.make_inputs, rows=50, columns=200),
        cases=swiglu.CASES,
        blocks={"tm": 16, "tn": 128},
    ),
    Subject(
        name="rope",
        kernel=rope.rope,
        oracle=rope.oracle,
        baseline=_rope,
        make=functools.partial(rope.make_inputs, length=90),
        cases=rope.CASES,
        blocks={"t": 16},
        smallest=_smallest_rope,
    ),
    Subject(
        name="cross_entropy",
        kernel=cross_entropy.cross_entropy,
        oracle=cross_entropy.oracle,
        baseline=_cross_entropy,
        make=functools.partial(cross_entropy.make_inputs, rows=50, vocabulary=300),
        cases=cross_entropy.CASES,
        blocks={"tm": 16, "tv": 128},
        results=("float32",),
        smallest=_smallest_loss,
    ),
    Subject(
        name="embedding",
        kernel=embedding.embedding,
        oracle=embedding.oracle,
        baseline=lambda ids, table: table[ids],
        make=functools.partial(embedding.make_inputs, tokens=50, vocabulary=90, width=200),
        cases=embedding.CASES,
        blocks={},
        dtypes=("float32", "bfloat16", "int32"),
        smallest=_smallest_table,
    ),
    Subject(
        name="split_k_matmul",
        kernel=split_k_matmul.split_k_matmul,
        oracle=split_k_matmul.oracle,
        baseline=baselines.matmul,
        make=functools.partial(split_k_matmul.make_inputs, m=50, k=800, n=200),
        cases=split_k_matmul.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128, "tm_1": 16, "tn_1": 128},
    ),
    Subject(
        name="transposed_matmul",
        kernel=transposed_matmul.transposed_matmul,
        oracle=transposed_matmul.oracle,
        baseline=_transposed,
        make=functools.partial(transposed_matmul.make_inputs, m=150, k=136, n=200),
        cases=transposed_matmul.CASES,
        blocks={"tm": 128, "tn": 128, "tk": 128},
    ),
    Subject(
        name="weight_only_matmul",
        kernel=quantized_matmul.weight_only_matmul,
        oracle=quantized_matmul.oracle,
        baseline=_weight_only,
        make=functools.partial(quantized_matmul.make_inputs, **_SIZES),
        cases=quantized_matmul.CASES,
        blocks=_BLOCKS,
    ),
    Subject(
        name="quantized_matmul",
        kernel=quantized_matmul.quantized_matmul,
        oracle=quantized_matmul.oracle_quantized,
        baseline=_quantized,
        make=functools.partial(quantized_matmul.make_quantized_inputs, **_SIZES),
        cases=quantized_matmul.QUANTIZED_CASES,
        blocks={"tm": 32, "tn": 128, "tk": 128},
    ),
    Subject(
        name="dense_attention_with_lse",
        kernel=attention_backward.attention_with_lse,
        oracle=attention_backward.oracle_forward,
        baseline=_attention_with_lse,
        make=lambda seed: attention_backward.make_inputs(seed, length=90)[:3],
        cases=attention_backward.FORWARD_CASES,
        blocks={"tq": 16, "tk": 32},
        results=("", "float32"),
    ),
    Subject(
        name="dense_attention_backward",
        kernel=attention_backward.attention_backward,
        oracle=attention_backward.oracle,
        baseline=_attention_backward,
        make=functools.partial(attention_backward.make_inputs, length=90),
        cases=attention_backward.CASES,
        blocks={"tq": 16, "tq_1": 16, "tk": 32, "tk_1": 32, "tq_2": 16},
        results=("", "", ""),
    ),
)

if HAS_TORCH:
    SUBJECTS += (
        Subject(
            name="rms_norm",
            kernel=rms_norm.rms_norm,
            oracle=rms_norm.oracle,
            baseline=_rms_norm,
            make=functools.partial(rms_norm.make_inputs, rows=50, columns=200),
            cases=rms_norm.CASES,
            blocks={"tm": 16},
        ),
        Subject(
            name="batch_softmax",
            kernel=batch_softmax.batch_softmax,
            oracle=batch_softmax.oracle,
            baseline=_batch_softmax,
            make=batch_softmax.make_inputs,
            cases=batch_softmax.CASES,
            blocks={"tn": 128},
        ),
    )
