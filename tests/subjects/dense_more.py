"""More kernels of examples/dense: normalisation, losses, positions, gradients."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.dense import attention_backward, cross_entropy, rope, split_k_matmul, swiglu
from tests.baselines import matmul, product
from tests.subjects.subject import Arrays, Subject

try:  # spelled in torch
    from examples.dense import batch_softmax, rms_norm
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True

Array = jax.Array


# ---------------------------------------------------------------- the same in XLA


def gated(gate: Array, up: Array) -> Array:
    return (jax.nn.silu(gate.astype(jnp.float32)) * up.astype(jnp.float32)).astype(gate.dtype)


def turned(x: Array, cos: Array, sin: Array) -> Array:
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def losses(logits: Array, labels: Array) -> Array:
    wide = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(wide, labels[:, None], 1)[:, 0]
    return jax.nn.logsumexp(wide, -1) - picked


def normed(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    rows = x.astype(jnp.float32)
    mean = (rows * rows).mean(-1, keepdims=True)
    return (rows * jax.lax.rsqrt(mean + eps) * weight).astype(x.dtype)


def softmax(x: Array) -> Array:
    return jax.nn.softmax(x.astype(jnp.float32), axis=1).astype(x.dtype)


def _flow(q: Array, k: Array, v: Array, lse: Array, delta: Array, grad: Array) -> Any:
    seen = jnp.tri(q.shape[2], dtype=bool)
    scores = product("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    p = jnp.where(seen, jnp.exp(scores - lse[..., None]), 0)
    dp = product("bhqd,bhkd->bhqk", grad, v)
    return p, p * (dp - delta[..., None]) * q.shape[-1] ** -0.5


def backward_q(*arguments: Array) -> Array:
    q, k = arguments[:2]
    return product("bhqk,bhkd->bhqd", _flow(*arguments)[1].astype(k.dtype), k).astype(q.dtype)


def backward_kv(*arguments: Array) -> tuple[Array, Array]:
    q, k, v, _, _, grad = arguments
    p, ds = _flow(*arguments)
    dk = product("bhqk,bhqd->bhkd", ds.astype(q.dtype), q).astype(k.dtype)
    return dk, product("bhqk,bhqd->bhkd", p.astype(v.dtype), grad).astype(v.dtype)


# ---------------------------------------------------------------- gradients in float64


def _exact_flow(*arguments: np.ndarray) -> Any:
    """Weights and gradients of the scores, of the lse and delta that are given."""
    q, k, v, lse, delta, grad = (a.astype(np.float64) for a in arguments)
    root = math.sqrt(q.shape[-1])
    p = np.tril(np.exp(q @ k.swapaxes(-1, -2) / root - lse[..., None]))
    return q, k, grad, p, p * (grad @ v.swapaxes(-1, -2) - delta[..., None]) / root


def exact_q(*arguments: np.ndarray) -> np.ndarray:
    _, k, _, _, ds = _exact_flow(*arguments)
    return ds @ k


def exact_kv(*arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q, _, grad, p, ds = _exact_flow(*arguments)
    return ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ grad


def _rope_inputs(seed: int) -> Arrays:
    return rope.make_inputs(seed, length=90)


# ---------------------------------------------------------------- subjects

_BACKWARD: dict[str, Any] = {
    "make": functools.partial(attention_backward.make_inputs, length=90),
    "cases": attention_backward.CASES,
    "blocks": {"tq": 16, "tk": 32},
}

SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="swiglu",
        kernel=swiglu.swiglu,
        oracle=swiglu.oracle,
        baseline=gated,
        make=functools.partial(swiglu.make_inputs, rows=50, columns=200),
        cases=swiglu.CASES,
        blocks={"tm": 16, "tn": 128},
    ),
    Subject(
        name="rope",
        kernel=rope.rope,
        oracle=rope.oracle,
        baseline=turned,
        make=_rope_inputs,
        cases=rope.CASES,
        blocks={"t": 16},
    ),
    Subject(
        name="cross_entropy",
        kernel=cross_entropy.cross_entropy,
        oracle=cross_entropy.oracle,
        baseline=losses,
        make=functools.partial(cross_entropy.make_inputs, rows=50, vocabulary=500),
        cases=cross_entropy.CASES,
        blocks={"tm": 16, "tv": 128},
        results=("float32",),
    ),
    Subject(
        name="split_k_matmul",
        kernel=split_k_matmul.split_k_matmul,
        oracle=split_k_matmul.oracle,
        baseline=matmul,
        make=functools.partial(split_k_matmul.make_inputs, n=200),
        cases=split_k_matmul.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128, "tm_1": 16, "tn_1": 128},
    ),
    Subject(
        name="dense_attention_backward_of_q",
        kernel=attention_backward.attention_backward_q,
        oracle=exact_q,
        baseline=backward_q,
        **_BACKWARD,
    ),
    Subject(
        name="dense_attention_backward_of_kv",
        kernel=attention_backward.attention_backward_kv,
        oracle=exact_kv,
        baseline=backward_kv,
        results=("", ""),
        **_BACKWARD,
    ),
)

if HAS_TORCH:
    SUBJECTS += (
        Subject(
            name="rms_norm",
            kernel=rms_norm.rms_norm,
            oracle=rms_norm.oracle,
            baseline=normed,
            make=functools.partial(rms_norm.make_inputs, rows=50, columns=200),
            cases=rms_norm.CASES,
            blocks={"tm": 16},
        ),
        Subject(
            name="batch_softmax",
            kernel=batch_softmax.batch_softmax,
            oracle=batch_softmax.oracle,
            baseline=softmax,
            make=batch_softmax.make_inputs,
            cases=batch_softmax.CASES,
            blocks={"tn": 128},
        ),
    )
