"""Gradients of several stores to one output, at places that are proved never to meet."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share
from tests.transforms.test_scans import compare
from tilelang.errors import GradientError

RNG = np.random.default_rng(0)
CUTS = [[0, 7, 7, 20], [0, 0, 0, 20], [0, 1, 19, 20], [0, 20, 20, 20]]


@tile.kernel
def jagged_concat(a, b, off_a, off_b):
    """Of every sequence the rows of a, and then those of b."""
    G = off_a.shape[0] - 1
    out = hl.zeros([a.shape[0] + b.shape[0], a.shape[1]], dtype=a.dtype)
    for g in hl.grid(G):
        for t in hl.tile(off_a[g], off_a[g + 1], max_extent=a.shape[0]):
            out[off_b[g] + t.index, :] = a[t, :] * a[t, :]
        for s in hl.tile(off_b[g], off_b[g + 1], max_extent=b.shape[0]):
            out[off_a[g + 1] + s.index, :] = hl.exp(b[s, :])
    return out


def _jagged_concat(a, b, off_a, off_b):
    pairs = zip(itertools.pairwise(off_a), itertools.pairwise(off_b), strict=True)
    rows = [(a[i:j] ** 2, jnp.exp(b[k:m])) for (i, j), (k, m) in pairs]
    return (jnp.concatenate([part for pair in rows for part in pair]),)


@tile.kernel
def both_halves(a, b, offsets):
    """Rows of a, and behind those of its group the rows of b, in one loop."""
    out = hl.zeros([2 * a.shape[0], a.shape[1]], dtype=a.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=a.shape[0]):
            out[offsets[g] + t.index, :] = a[t, :] * b[t, :]
            out[offsets[g + 1] + t.index, :] = b[t, :]
    return out


def _both_halves(a, b, offsets):
    rows = [(a[i:j] * b[i:j], b[i:j]) for i, j in itertools.pairwise(offsets)]
    return (jnp.concatenate([part for pair in rows for part in pair]),)


@tile.kernel
def overlapping(a, b, off_a, off_b):
    """The rows of b begin among those of a, and are stored over them."""
    out = hl.zeros([a.shape[0] + b.shape[0], a.shape[1]], dtype=a.dtype)
    for g in hl.grid(off_a.shape[0] - 1):
        for t in hl.tile(off_a[g], off_a[g + 1], max_extent=a.shape[0]):
            out[off_b[g] + t.index, :] = a[t, :]
        for s in hl.tile(off_b[g], off_b[g + 1], max_extent=b.shape[0]):
            out[off_a[g] + s.index, :] = b[s, :]
    return out


def _rows(count: int) -> np.ndarray:
    return RNG.standard_normal((count, 8)).astype(np.float32)


@pytest.mark.parametrize("cuts", share(CUTS, 3))
def test_parts_of_sequences(cuts):
    off_a, off_b = np.array(cuts, np.int32), np.array([0, 4, 18, 31], np.int32)
    compare(jagged_concat, (_rows(20), _rows(31), off_a, off_b), _jagged_concat)
    compare(both_halves, (_rows(20), _rows(20), off_a), _both_halves)


def test_rows_that_may_be_stored_over_are_refused():
    cuts = np.array(CUTS[0], np.int32)
    with pytest.raises(GradientError) as caught:
        overlapping.grad_source(_rows(20), _rows(20), cuts, cuts)
    assert caught.value.what.endswith("it was not proved that every element of out is stored once")
    assert caught.value.loc is not None
    assert caught.value.loc.text.strip() == "out[off_a[g] + s.index, :] = b[s, :]"
