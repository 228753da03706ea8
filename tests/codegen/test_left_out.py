"""Loads that leave lanes out: loops run past the end of their arrays, and no window does."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share
from tilelang.errors import PlanError

FORMS = (
    {},
    {"blocks": {"t": 8}},
    {"blocks": {"t": 8}, "steps": "rectangle"},
    {"blocks": {"t": 8}, "loop_type": "worklist"},
    {"blocks": {"t": 8}, "loop_type": "fori_loop"},
    {"blocks": {"t": 16}, "loop_type": "emit_pipeline"},
    {"blocks": {"t": 8}, "loop_type": "unroll"},
    {"blocks": {"t": 8}, "loop_type": "grid"},
)
X = np.random.default_rng(0).standard_normal((20, 16)).astype(np.float32)


@tile.kernel
def past_the_end(x):
    """Two sums over 50 positions of which x has 20."""
    y = hl.zeros([2, 16], dtype=hl.float32)
    for g in hl.grid(2):
        total = hl.zeros([16], dtype=hl.float32)
        for t in hl.tile(50):
            total = total + hl.load(
                x, [t, slice(None)], mask=(t.index < 20)[:, None], other=0.5
            ).sum(0)
        y[g, :] = total
    return y


@tile.kernel
def moved_past_the_end(x):
    """x[t + 3] where there are such rows."""
    y = hl.zeros([60, 16], dtype=hl.float32)
    for t in hl.tile(60):
        y[t, :] = hl.load(x, [t + 3, slice(None)], mask=(t.index + 3 < 20)[:, None], other=2.0)
    return y


@tile.kernel
def read_lengths(x, n):
    """The first n rows of 60; behind those of x, 2."""
    y = hl.zeros([60, 16], dtype=hl.float32)
    for t in hl.tile(n[0], max_extent=60):
        y[t, :] = hl.load(x, [t.index, slice(None)], mask=(t.index < 20)[:, None], other=2.0)
    return y


@tile.kernel
def ragged_past_the_end(x, offsets):
    """Sums of ranges that may lie behind all rows of x."""
    y = hl.zeros([4, 16], dtype=hl.float32)
    for g in hl.grid(4):
        total = hl.zeros([16], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=64):
            total = total + hl.load(
                x, [t, slice(None)], mask=(t.index < 20)[:, None], other=1.0
            ).sum(0)
        y[g, :] = total
    return y


def first_rows(x, n):
    """Of n rows of 60, those of x: n may be 20 at most."""
    y = hl.zeros([60, 16], dtype=hl.float32)
    for t in hl.tile(n[0], max_extent=60):
        y[t, :] = x[t.index, :]
    return y


shorter = tile.kernel(first_rows)


def longer(x: np.ndarray, rows: int, other: float) -> np.ndarray:
    return np.concatenate((x, np.full((rows - len(x), x.shape[1]), other, np.float32)))


OFFSETS = np.array([0, 13, 13, 31, 64], np.int32)
LONG = longer(X, 64, 1.0)
RANGES = list(itertools.pairwise(OFFSETS))
CASES = (
    (past_the_end, (X,), np.tile(longer(X, 50, 0.5).sum(0), (2, 1))),
    (moved_past_the_end, (X,), longer(X[3:], 60, 2.0)),
    (read_lengths, (X, np.array([60])), longer(X, 60, 2.0)),
    (read_lengths, (X, np.array([7])), longer(X[:7], 60, 0.0)),
    (ragged_past_the_end, (X, OFFSETS), np.stack([LONG[a:b].sum(0) for a, b in RANGES])),
    (shorter, (X, np.array([20])), longer(X, 60, 0.0)),
)


@pytest.mark.parametrize("form", share(FORMS, 3))
@pytest.mark.parametrize(("kernel", "arguments", "right"), CASES)
def test_what_is_left_out_bounds_no_loop(kernel, arguments, right, form):
    np.testing.assert_allclose(kernel.reference(*arguments), right, rtol=1e-5, atol=1e-5)
    try:
        found = kernel(*map(jax.numpy.asarray, arguments), config=tile.Config(**form))
    except PlanError as refused:  # a form that this nest does not have
        assert form.keys() & {"loop_type", "steps"}, refused
        return
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_no_window_leaves_its_array():
    """20 rows are three blocks of 8, whatever tile a step is at: a TPU would read behind them."""
    anew = tile.kernel(first_rows)
    text = anew.source(X, np.array([20]), config=tile.Config({"t": 8}), target="tpu:v6e")
    assert "lambda n_1: (jnp.clip(t_of[n_1], 0, 2), 0)" in text
