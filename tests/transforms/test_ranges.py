"""Causal loops of which it is not proved that nothing is added behind the tile that they end at."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
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
