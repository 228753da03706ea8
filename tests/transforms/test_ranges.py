"""Loops that may not run over more, or that meet one element again and again."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import derived, gradients, named
from tests.transforms.test_residuals import _agrees

LOWEST = -1e30


@tile.kernel
def masked_by_a_number(q, k, v):
    """Causal attention whose masked scores are very small, and not -inf."""
    T, D = q.shape
    out = hl.zeros([T, D], dtype=hl.float32)
    for tq in hl.tile(T):
        m = hl.full([tq], LOWEST, dtype=hl.float32)
        total = hl.zeros([tq], dtype=hl.float32)
        acc = hl.zeros([tq, D], dtype=hl.float32)
        for tk in hl.tile(tq.end):
            scores = hl.dot(q[tq, :], k[tk, :].T)
            scores = hl.where(tk.index[None, :] <= tq.index[:, None], scores, LOWEST)
            m_new = hl.maximum(m, scores.amax(-1))
            alpha = hl.exp(m - m_new)
            p = hl.exp(scores - m_new[:, None])
            total = total * alpha + p.sum(-1)
            acc = hl.dot(p, v[tk, :], acc=acc * alpha[:, None])
            m = m_new
        out[tq, :] = acc / total[:, None]
    return out


def function(q, k, v):
    scores = jnp.where(jnp.tri(q.shape[0], dtype=bool), q @ k.T, LOWEST)
    return (jax.nn.softmax(scores, -1) @ v,)


def test_scores_that_are_masked_by_a_number():
    """The range of tk stays that of the open tile tq, so that both loops are open for all of k."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 40, 8), np.float32)
    text = masked_by_a_number.grad_source(q, k, v)
    assert "for tk in hl.tile(0, tq.end, max_extent=40)" in text, text
    _agrees(masked_by_a_number, function, (q, k, v))


@tile.kernel
def again(x, w):
    """The largest of 0 and x[t] + w[t], met once for every i; and of x[t] * i."""
    (T,) = x.shape
    y = hl.zeros([T], dtype=hl.float32)
    for t in hl.tile(T):
        acc = hl.zeros([t], dtype=hl.float32)
        most = hl.full([t], -100.0, dtype=hl.float32)
        for i in hl.grid(3):
            acc = hl.maximum(acc, x[t] + w[t])
            most = hl.maximum(most, x[t] * i)
        y[t] = acc + most
    return y


@tile.kernel
def nearest(q, k):
    """Of every row of q the largest product with a row of k that is at most as far."""
    y = hl.zeros([q.shape[0]], dtype=hl.float32)
    for tq in hl.tile(q.shape[0]):
        m = hl.full([tq], -100.0, dtype=hl.float32)
        for tk in hl.tile(tq.end):
            scores = hl.dot(q[tq, :], k[tk, :].T)
            scores = hl.where(tk.index[None, :] <= tq.index[:, None], scores, LOWEST)
            m = hl.maximum(m, scores.amax(-1))
        y[tq] = m
    return y


def test_the_largest_of_products_is_found_among_products_that_are_computed_alike():
    """Another kernel may round them differently: the largest is computed beside them."""
    text = nearest.grad_source(np.zeros((40, 8), np.float32), np.zeros((64, 8), np.float32))
    assert "hl.max(" in text and "saved" not in text and not re.search(r"\by\[t", text), text
    for rows in (40, 64, 100):
        q, k = np.random.default_rng(rows).standard_normal((2, rows, 8), np.float32)

        def exact(q, k):
            seen = jnp.tri(q.shape[0], k.shape[0], dtype=bool)
            return jnp.where(seen, q @ k.T, LOWEST).max(1).sum()

        mine, right = (jax.grad(f, (0, 1))(q[:40], k) for f in (_sum_of_nearest, exact))
        for one, other in zip(mine, right, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def _sum_of_nearest(q, k):
    return nearest(q, k).sum()


def test_the_largest_of_one_element():
    """It gets all of the adjoint, and not a share for every time that it was met."""
    x, w = np.random.default_rng(0).standard_normal((2, 20), np.float32)

    def function(x, w):
        most = jnp.max(x * jnp.arange(3)[:, None], 0)
        return (jnp.maximum(0, x + w) + most,)

    _agrees(again, function, (x, w))
    text = tile.kernel(again.__wrapped__).grad_source(x, w)
    assert text.count("hl.maximum(") == 1, text  # of x[t] * i alone


@tile.kernel
def largest_that_grows(x, w, offsets):
    """Of each group the largest tanh, times w: it is one of the largest x."""
    G = offsets.shape[0] - 1
    y = hl.zeros([G], dtype=hl.float32)
    for g in hl.grid(G):
        most = hl.full([], -2.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            most = hl.maximum(most, hl.tanh(x[t] * 1.0).max())
        y[g] = most * w[g]
    return y


def test_the_largest_that_grows_with_its_operand_is_found_among_operands():
    """Random kernel 991777: of three loops XLA rounded tanh in one otherwise, and none was it."""
    rng, offsets = np.random.default_rng(0), np.array([0, 3, 3, 17, 20], np.int32)
    x, w = rng.integers(-9, 9, 20).astype(np.float32) / 8, np.arange(4, dtype=np.float32) + 1
    text = largest_that_grows.grad_source(x, w, offsets)
    assert not re.search(r"hl.max\(.*tanh", text.partition("Part of the gradient")[2]), text
    assert not re.search(r"(\w+) = hl.tanh.*\n(.*\n)*.*\1 ==", text), text
    found = jax.grad(lambda x: largest_that_grows(x, w, offsets).sum())(x)
    wanted = np.zeros(20)
    for g, (begin, end) in enumerate(itertools.pairwise(offsets)):
        own = x[begin:end]
        if own.size:
            here = own == own.max()
            wanted[begin:end] = here / here.sum() * (1 - np.tanh(own) ** 2) * w[g]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@tile.kernel
def again_by_rows(x, z, offsets):
    """The largest of z[g] and x[g], which is met once for every row of g: there may be none."""
    G, D = x.shape
    y = hl.zeros([G, D], dtype=hl.float32)
    for g in hl.grid(G):
        acc = z[g, :]
        for _ in hl.grid(offsets[g], offsets[g + 1], max_extent=8):
            acc = hl.maximum(acc, x[g, :])
        y[g, :] = acc
    return y


def test_the_largest_of_one_element_that_may_not_be_met():
    x, z = np.random.default_rng(0).standard_normal((2, 4, 8), np.float32)
    offsets = np.array([0, 3, 3, 4, 9], np.int32)
    ir, made = derived(again_by_rows, (x, z, offsets))
    found = gradients(made, named(ir, (x, z, offsets)), [np.ones_like(x)], 4)
    met = (np.diff(offsets) > 0)[:, None] & (x > z)
    np.testing.assert_array_equal(found["x"], met)
    np.testing.assert_array_equal(found["z"], ~met)
