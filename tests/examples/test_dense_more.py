"""What the shared tests do not ask of the dense examples: hard values, hard sizes, compositions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
from examples.dense import (
    attention_backward,
    cross_entropy,
    embedding,
    quantized_matmul,
    rope,
    split_k_matmul,
    transposed_matmul,
)
from tests.tiers import share


def close(result: Any, expected: np.ndarray, tolerance: float = 2e-6) -> None:
    """Relative to the largest expected value."""
    assert np.shape(result) == expected.shape
    most = tolerance * float(np.abs(expected).max(initial=0) or 1)
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, rtol=0, atol=most)


# ---------------------------------------------------------------- cross entropy


@pytest.mark.parametrize("vocabulary", [1, 127, 129, 300])
def test_labels_at_both_ends_of_a_vocabulary(vocabulary):
    logits, _ = cross_entropy.make_inputs(rows=20, vocabulary=vocabulary)
    labels = np.where(np.arange(20) % 2, vocabulary - 1, 0).astype(np.int32)
    config = tile.Config({"tm": 8, "tv": 128})
    loss = cross_entropy.cross_entropy(logits, labels, config=config)
    close(loss, cross_entropy.oracle(logits, labels))


def test_logits_that_would_overflow_exp():
    logits = np.float32([[1e4, -1e4, 0.0], [-1e30, -1e30, -1e30]])
    labels = np.int32([0, 2])
    close(cross_entropy.cross_entropy(logits, labels), np.array([0.0, math.log(3)]))


def test_impossible_words_do_not_count():
    """-inf in whole tiles of the vocabulary, the first one too."""
    logits, labels = cross_entropy.make_inputs(rows=20, vocabulary=500)
    labels = 256 + labels % 100
    logits[:, :256] = logits[:, 400:] = -np.inf
    loss = cross_entropy.cross_entropy(logits, labels, config=tile.Config({"tm": 8, "tv": 128}))
    close(loss, cross_entropy.oracle(logits[:, 256:400], labels - 256))


def test_labels_of_64_bits():
    logits, labels = cross_entropy.make_inputs(rows=20, vocabulary=300)
    loss = cross_entropy.cross_entropy(logits, labels.astype(np.int64))
    close(loss, cross_entropy.oracle(logits, labels))


# ---------------------------------------------------------------- embedding


def test_rows_that_come_again_and_in_any_order():
    _, table = embedding.make_inputs(vocabulary=30, width=50)
    ids = np.int32([29, 0, 0, 29, 7, 7, 7, 1])
    np.testing.assert_array_equal(np.asarray(embedding.embedding(ids, table)), table[ids])


def test_rows_that_nobody_asked_for_are_not_seen():
    ids, table = embedding.make_inputs(tokens=20, vocabulary=30)
    ids = ids // 2 * 2
    table[1::2] = np.nan
    np.testing.assert_array_equal(np.asarray(embedding.embedding(ids, table)), table[ids])


@pytest.mark.parametrize("wrong", [-1, 30])
def test_an_index_outside_the_table_is_named(wrong):
    ids, table = embedding.make_inputs(tokens=20, vocabulary=30)
    ids[13] = wrong
    with pytest.raises(ValueError, match=rf"ids.*{wrong}"):
        embedding.embedding(ids, table)


# ---------------------------------------------------------------- products


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 5, 7), (20, 1031, 130)])
@pytest.mark.parametrize("splits", [1, 3, 4])
def test_splits_of_any_inner_length(m, k, n, splits):
    x, w = split_k_matmul.make_inputs(m=m, k=k, n=n)
    close(split_k_matmul.split_k_matmul(x, w, splits=splits), split_k_matmul.oracle(x, w))


def test_products_of_int8_are_exact():
    """Sums beyond 2^24, which float32 would round."""
    x, w = np.full((8, 3000), 127, np.int8), np.full((3000, 5), 127, np.int8)
    x[:, 0] = 1
    one = np.ones(8, np.float32), np.ones(5, np.float32)
    y = quantized_matmul.quantized_matmul(x, one[0], w, one[1])
    exact = x.astype(np.int64) @ w.astype(np.int64)
    np.testing.assert_array_equal(np.asarray(y), exact.astype(np.float32))


def test_quantised_weights_are_near_the_weights():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((150, 70), np.float32)
    values, scale = quantized_matmul.quantize(w, 0)
    assert values.dtype == np.int8 and (np.abs(values * scale - w) <= 0.501 * scale).all()


def test_an_inner_length_of_zero_gives_zeros():
    w, x = np.zeros((5, 0), np.float32), np.zeros((0, 3), np.float32)
    assert (np.asarray(transposed_matmul.transposed_matmul(w, x)) == np.zeros((3, 5))).all()


# ---------------------------------------------------------------- rope


def test_turning_back_gives_the_heads_again():
    x, cos, sin = rope.make_inputs(length=90, width=26)
    turned = rope.rope(x, cos, sin)
    close(np.linalg.norm(turned, axis=-1), np.linalg.norm(x.astype(np.float64), axis=-1))
    close(rope.rope(np.asarray(turned), cos, -sin), x)


# ---------------------------------------------------------------- attention


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention in XLA."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tri(q.shape[2], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def differentiable(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """The two kernels as one function that jax.grad can take."""

    @jax.custom_vjp
    def run(q, k, v):
        return forward(q, k, v)[0]

    def keep(q, k, v):
        out, lse = forward(q, k, v)
        return out, (q, k, v, out, lse)

    run.defvjp(keep, lambda kept, grad: backward(*kept, grad))
    return run


@pytest.mark.parametrize("length", share((17, 1, 100), 3))
def test_gradients_are_those_of_jax(length):
    """The forward kernel and the backward kernel together, under jax.jit and jax.grad."""
    q, k, v, *_, grad = attention_backward.make_inputs(length=length, width=24)
    blocks = {"tq": 16, "tk": 32}
    pair = differentiable(
        functools.partial(attention_backward.attention_with_lse, config=tile.Config(blocks)),
        attention_backward.attention_backward,
    )

    def loss(function, *arrays):
        return (function(*arrays) * grad).sum()

    ours = jax.jit(jax.grad(functools.partial(loss, pair), argnums=(0, 1, 2)))(q, k, v)
    theirs = jax.grad(functools.partial(loss, attention), argnums=(0, 1, 2))(q, k, v)
    for mine, want in zip(ours, theirs, strict=True):
        close(mine, np.asarray(want, np.float64), 1e-5)


def test_later_tokens_have_no_influence():
    """NaN in the last rows of k and v reaches no query of an earlier tile."""
    arguments = attention_backward.make_inputs(length=100)
    q, k, v = (a.copy() for a in arguments[:3])
    k[:, :, 70:] = v[:, :, 70:] = np.nan
    config = tile.Config({"tq": 16, "tk": 32})
    clean = attention_backward.attention_with_lse(*arguments[:3], config=config)
    seen = attention_backward.attention_with_lse(q, k, v, config=config)
    for one, other in zip(clean, seen, strict=True):
        np.testing.assert_array_equal(np.asarray(one)[:, :, :64], np.asarray(other)[:, :, :64])
