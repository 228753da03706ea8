"""Gradients of softmaxes whose scores read numbers at constant positions: cap[0], bias[h, rel].

Such a number does not move with the running maximum, as no number does, whatever else fits it.
"""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import GradientError

T, H, D = 30, 2, 8
LAYOUTS = ([0, 7, 7, 30], [3, 4, 20, 28], [0, 0, 0, 0])


def attention(score, weighed=lambda p: p, block=None):
    @tile.kernel
    def kernel(q, k, v, extra, offsets):
        y = hl.zeros(q.shape, dtype=q.dtype)
        for g in hl.grid(offsets.shape[0] - 1):
            for h in hl.grid(q.shape[1]):
                for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=q.shape[0]):
                    m = hl.full([tq], -1e30, dtype=hl.float32)
                    total = hl.zeros([tq], dtype=hl.float32)
                    acc = hl.zeros([tq, q.shape[2]], dtype=hl.float32)
                    for tk in hl.tile(
                        offsets[g], offsets[g + 1], block_size=block, max_extent=q.shape[0]
                    ):
                        s = score(hl.dot(q[tq, h, :], k[tk, h, :].T), extra, h, tq, tk)
                        new = hl.maximum(m, s.amax(-1))
                        p = hl.exp(s - new[:, None])
                        kept = hl.exp(m - new)
                        total = total * kept + weighed(p).sum(-1)
                        acc = hl.dot(p, v[tk, h, :], acc=acc * kept[:, None])
                        m = new
                    y[tq, h, :] = acc / total[:, None]
        return y

    return kernel


def capped(s, cap, h, tq, tk):
    return cap[0] * hl.tanh(s / cap[1])


def biased(s, bias, h, tq, tk):
    return s + bias[h, tq.index[:, None] - tk.index[None, :] + 9]


def bent(p):
    """What is no multiple of p: with another maximum it is not scaled by one number."""
    return p * hl.tanh(p)


def by_jax(name, offsets, q, k, v, extra):
    """The same with one softmax for each group and head."""
    y = jnp.zeros(q.shape)
    for begin, end in itertools.pairwise(offsets):
        rows = slice(int(begin), int(end))
        s = jnp.einsum("qhd,khd->hqk", q[rows], k[rows])
        if name == "capped":
            s = extra[0] * jnp.tanh(s / extra[1])
        else:
            n = jnp.arange(s.shape[1])
            s = s + extra[:, jnp.clip(n[:, None] - n[None, :] + 9, 0, extra.shape[1] - 1)]
        if s.size:
            p = jax.nn.softmax(s, axis=-1)
            y = y.at[rows].set(jnp.einsum("hqk,khd->qhd", p, v[rows]))
    return y


SCORES = {"capped": capped, "biased": biased}


def _weighed(name, weight, offsets, *given):
    return (by_jax(name, offsets, *given) * weight).sum()


def wrong(name: str) -> list[list[int]]:
    """The layouts whose gradients are not those that JAX derives."""
    rng, kernel = np.random.default_rng(0), attention(SCORES[name])
    q, k, v, weight = (rng.standard_normal((T, H, D)).astype(np.float32) for _ in range(4))
    extra = {"capped": np.array([2.0, 3.0]), "biased": rng.standard_normal((H, 19))}[name]
    given = (q, k, v, extra.astype(np.float32))
    ours = jax.jit(jax.grad(lambda *a: (kernel(*a) * weight).sum(), (0, 1, 2, 3)))
    found = []
    for layout in LAYOUTS:
        offsets = np.array(layout, np.int32)
        want = jax.grad(partial(_weighed, name, weight, offsets), (0, 1, 2, 3))
        pairs = zip(ours(*given, offsets), want(*given), strict=True)
        if not all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in pairs):
            found.append(layout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["capped", "biased"])
def test_gradients_are_those_of_jax(name):
    assert wrong(name) == []


def test_what_is_not_scaled_alike_is_refused():
    x, offsets = tile.spec((T, H, D), "float32"), tile.spec((4,), "int32")
    with pytest.raises(GradientError, match="changes total in a way that is no sum"):
        attention(capped, bent, 8).grad_source(x, x, x, tile.spec((2,), "float32"), offsets)
