"""What a gradient selects by a condition was not selected by the same one before, and is right."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from tests.transforms.test_residuals import _agrees


@tile.kernel
def selected(x, w):
    """Each of two conditions selects what is computed of what it selected before."""
    M, N = x.shape
    y = hl.zeros([M, N], dtype=hl.float32)
    for tm, tn in hl.tile([M, N]):
        low = tn.index[None, :] <= tm.index[:, None]
        above = w[tm, tn] > 0
        p = hl.exp(hl.where(low, x[tm, tn], 0.0))
        q = hl.exp(hl.where(above, x[tm, tn], 0.0))
        y[tm, tn] = hl.where(low, p + q * w[tm, tn], 0.0)
    return y


def function(x, w):
    low = jnp.arange(x.shape[1])[None, :] <= jnp.arange(x.shape[0])[:, None]
    p, q = jnp.exp(jnp.where(low, x, 0)), jnp.exp(jnp.where(w > 0, x, 0))
    return (jnp.where(low, p + q * w, 0),)


def test_other_conditions_are_asked():
    """Numbers whose exp is too large stand where neither condition holds."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 24, 24), np.float32)
    x[(np.arange(24)[None, :] > np.arange(24)[:, None]) & (w <= 0)] = 1000
    _agrees(selected, lambda x, w: function(x, w), (x, w))


def test_the_same_condition_is_asked_once():
    """Where its value is used once: q is used twice, and computed once."""
    x = tile.spec((24, 24), "float32")
    text = selected.grad_source(x, x)
    assert "hl.where(low, value * hl.exp(x_block), 0.0)" in text
    assert "q = hl.exp(hl.where(above, x_block, 0.0))" in text
