"""One traced program is differentiated in many ways: none knows of what was asked before.

JAX keeps what it traced of a kernel, and with it the structure of what forward saves.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
from tests.gradients.kernels import OFFSETS, case, product, registered
from tests.tiers import share
from tilelang.runtime import jax_gradient

CASE = case()
X, W = jnp.asarray(CASE.x), jnp.asarray(CASE.w)
KINDS = {"derived": lambda: tile.kernel(product), "registered": lambda: registered().kernel}
WAYS = {
    "of x": lambda f: (jax.grad(f, 0)(X, W), None),
    "of w": lambda f: (None, jax.grad(f, 1)(X, W)),
    "of both": lambda f: jax.grad(f, (0, 1))(X, W),
    "vmap of grad": lambda f: (jax.vmap(jax.grad(f), (0, None))(jnp.stack([X, X]), W)[1], None),
    "grad of vmap": lambda f: jax.grad(
        lambda x, w: jax.vmap(f, (0, None))(jnp.stack([x, x]), w).sum() / 2, (0, 1)
    )(X, W),
}


def wrong(f, order) -> list[str]:
    """The ways whose gradients are not those of the case, asked in this order."""
    right = CASE.gradients()
    found = []
    for way in order:
        pairs = zip(WAYS[way](f), right, strict=True)
        if not all(g is None or np.allclose(g, r, rtol=1e-5, atol=1e-5) for g, r in pairs):
            found.append(way)
    return found


def traced(kernel):
    def run(x, w):
        y, total = kernel(x, w, jnp.asarray(OFFSETS))
        return (y * CASE.dy).sum() + (total * CASE.dtotal).sum()

    return jax.jit(run)


@pytest.mark.parametrize("kind", share(KINDS, 2))
def test_any_order(kind):
    kernel = KINDS[kind]()
    for order in ([*WAYS], [*reversed(WAYS)], ["of x", "of both"]):
        assert wrong(traced(kernel), [*order, order[0]]) == [], order


def test_a_planted_bug_is_caught(monkeypatch):
    """What is wanted is read from what JAX kept, and not from what came with the arrays."""
    monkeypatch.setattr(jax_gradient, "_asked", lambda operands, mark: frozenset({"x"}))
    assert wrong(traced(tile.kernel(product)), ["of both"])
