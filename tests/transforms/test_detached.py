"""What is detached inside of an online softmax: all of its maximum, or a part of the sum alone."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share
from tilelang.errors import CallError
from tilelang.transforms import sums

RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 21)).astype(np.float32)
V = RNG.standard_normal((21, 8)).astype(np.float32)
C = RNG.standard_normal((9, 8)).astype(np.float32)


def as_it_is(value):
    return value


def softmax(of_weights, of_factor, of_sum, of_maximum):
    """Weighted rows of v, with something done to each part of the softmax; and its sums."""

    @tile.kernel
    def weighted(x, v):
        y = hl.empty([x.shape[0], v.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0], block_size=8):
            m = hl.full([tm], -1e30, dtype=hl.float32)
            total = hl.zeros([tm], dtype=hl.float32)
            acc = hl.zeros([tm, v.shape[1]], dtype=hl.float32)
            for tk in hl.tile(x.shape[1], block_size=8):
                s = x[tm, tk]
                new = of_maximum(hl.maximum(m, hl.max(s, 1)))
                p = hl.exp(s - of_weights(new)[:, None])
                alpha = hl.exp(of_factor(m) - of_factor(new))
                total = total * alpha + of_sum(hl.sum(p, 1))
                acc = hl.dot(p, v[tk, :], acc=acc * alpha[:, None])
                m = new
            y[tm, :] = acc / total[:, None]
        return y

    return weighted


def gradient(kernel):
    return jax.grad(lambda x: (kernel(x, V) * C).sum())(jnp.asarray(X))


@pytest.mark.parametrize("parts", share(("1101", "0000", "1100", "0001"), 2))
def test_a_maximum_that_is_detached_wherever_it_is_read(parts):
    chosen = [hl.detach if part == "1" else as_it_is for part in parts]
    wanted = jax.grad(lambda x: ((jax.nn.softmax(x, -1) @ V) * C).sum())(jnp.asarray(X))
    np.testing.assert_allclose(gradient(softmax(*chosen)), wanted, rtol=1e-5, atol=1e-6)


def test_a_sum_that_is_detached_beside_its_maximum():
    def weighted(x):
        p = jnp.exp(x - jax.lax.stop_gradient(x.max(1, keepdims=True)))
        return (p @ V / jax.lax.stop_gradient(p.sum(1, keepdims=True)) * C).sum()

    found = gradient(softmax(hl.detach, hl.detach, hl.detach, as_it_is))
    np.testing.assert_allclose(found, jax.grad(weighted)(jnp.asarray(X)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", ["1000", "0100", "0010"])
def test_a_part_alone_makes_another_sum(parts):
    """Its derivative by the maximum is not that of the rest, and does not cancel it."""
    chosen = [hl.detach if part == "1" else as_it_is for part in parts]
    with pytest.raises(CallError, match="the loop over tk changes total in a way that is no sum"):
        gradient(softmax(*chosen))


def test_a_planted_bug_is_caught(monkeypatch):
    moves = sums.moves

    def wrong(graph, root, seeds):
        return moves(graph, root, replace(seeds, held=False))

    monkeypatch.setattr(sums, "moves", wrong)
    with pytest.raises(pytest.fail.Exception):
        test_a_part_alone_makes_another_sum("0010")
