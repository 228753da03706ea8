"""Scans, recurrences and hashes over ragged rows, as people write them the first time."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

OFFSETS = np.array([0, 0, 7, 8, 31, 31, 40], np.int32)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((45, 6)).astype(np.float32)
X[40:] = np.nan  # in no group
SMALL = tile.Config(blocks={"t": 8, "f": 8})


@tile.kernel
def running_sums(x, offsets):
    T, F = x.shape
    y = hl.zeros([T, F], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for f in hl.tile(F):
            before = hl.zeros([f], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                rows = x[t, f]
                lower = (t.index[:, None] >= t.index[None, :]).to(hl.float32)
                y[t, f] = hl.dot(lower, rows) + before[None, :]
                before = before + rows.sum(0)
    return y


@tile.kernel
def running_means(x, offsets, keep: hl.constexpr = 0.8):
    """The last row of a tile is what the next one begins with, and all rows are stored."""
    T, F = x.shape
    y = hl.zeros([T, F], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for f in hl.tile(F):
            state = hl.zeros([f], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                i, j = t.index[:, None], t.index[None, :]
                weights = (1 - keep) * hl.exp((i - j).to(hl.float32) * math.log(keep))
                since = (t.index - t.begin + 1).to(hl.float32)
                own = hl.dot(hl.where(i >= j, weights, 0.0), x[t, f])
                rows = own + hl.exp(since * math.log(keep))[:, None] * state[None, :]
                y[t, f] = rows
                state = hl.where((t.index == t.end - 1)[:, None], rows, 0.0).sum(0)
    return y


@tile.kernel
def likelihood(x, moves, offsets):
    """Row by row, of arrays that may have none."""
    G = offsets.shape[0] - 1
    out = hl.zeros([G], dtype=hl.float32)
    for g in hl.grid(G):
        alpha = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.grid(offsets[g], offsets[g + 1]):
            alpha = hl.logsumexp(alpha[:, None] + moves[:, :], 0) + x[t, :]
        out[g] = hl.logsumexp(alpha, 0)
    return out


@tile.kernel
def hashed(ids, table):
    out = hl.empty([ids.shape[0], table.shape[1]], dtype=table.dtype)
    for t in hl.tile(ids.shape[0]):
        place = (ids[t].to(hl.uint32) * 2654435761) % table.shape[0]
        out[t, :] = table[place.to(hl.int32), :]
    return out


@tile.kernel
def last_products(x, w, offsets):
    y = hl.zeros([offsets.shape[0] - 1, w.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        if offsets[g + 1] > offsets[g]:
            y[g, :] = hl.dot(x[offsets[g + 1] - 1, :][None, :], w[:, :])[0]
    return y


def groups(x):
    return [x[b:e].astype(np.float64) for b, e in itertools.pairwise(OFFSETS)]


def summed(x):
    return np.concatenate([*(np.cumsum(rows, 0) for rows in groups(x)), np.zeros((5, 6))])


def averaged(x):
    found = np.zeros(x.shape)
    for begin, end in itertools.pairwise(OFFSETS):
        state = 0
        for row in range(begin, end):
            found[row] = state = 0.8 * state + 0.2 * x[row].astype(np.float64)
    return found


SCANS = {"sums": (running_sums, summed), "means": (running_means, averaged)}


@pytest.mark.parametrize("config", [None, SMALL], ids=["default", "small"])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name, config):
    kernel, meaning = SCANS[name]
    np.testing.assert_allclose(kernel(X, OFFSETS, config=config), meaning(X), atol=1e-5)


def test_recurrences():
    moves = RNG.standard_normal((6, 6)).astype(np.float32)
    expected = []
    for rows in groups(X):
        alpha = np.zeros(6)
        for row in rows:
            alpha = np.log(np.exp(alpha[:, None] + moves).sum(0)) + row
        expected.append(np.log(np.exp(alpha).sum()))
    np.testing.assert_allclose(likelihood(X, moves, OFFSETS), expected, rtol=1e-5)
    nothing = likelihood(X[:0], moves, np.zeros(3, np.int32))
    np.testing.assert_allclose(nothing, np.full(2, math.log(6)), rtol=1e-6)


def test_numbers_that_only_fit_uint32():
    ids, table = RNG.integers(0, 2**31 - 1, 20).astype(np.int32), np.eye(29, dtype=np.float32)
    places = ids.astype(np.uint64) * 2654435761 % 2**32 % 29
    np.testing.assert_array_equal(jax.jit(hashed)(ids, table), table[places.astype(int)])


def test_a_value_of_one_row_is_that_row():
    w = RNG.standard_normal((6, 4)).astype(np.float32)
    expected = [rows[-1] @ w if len(rows) else np.zeros(4) for rows in groups(X)]
    np.testing.assert_allclose(last_products(X, w, OFFSETS), expected, atol=1e-5)
