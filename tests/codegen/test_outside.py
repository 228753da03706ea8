"""Lanes of a tile that lie outside of an array: never data, whatever masks the author wrote.

The array ends, or begins, inside of a tile; the author's weights are zero there.  Neighbours of the
array in memory are NaN in the interpreters, so that 0 * NaN shows.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share
from tilelang.errors import PlanError
from tilelang.schedule.config import LOOP_TYPES

FORMS = ({}, {"steps": "rectangle"}, *({"loop_type": t} for t in LOOP_TYPES))
rng = np.random.default_rng(0)


@tile.kernel
def causal(x, offsets, L: hl.constexpr):
    """out[r] = the sum of x over the rows of its sequence up to r."""
    out = hl.zeros(x.shape, dtype=hl.float32)
    for b in hl.grid(offsets.shape[0] - 1):
        for tq in hl.tile(L):
            start = offsets[b]
            n = offsets[b + 1] - start
            if tq.begin < n:
                acc = hl.zeros([tq, x.shape[1]], dtype=hl.float32)
                for tk in hl.tile(0, tq.end):
                    seen = (tq.index[:, None] >= tk.index[None, :]) & (tk.index < n)[None, :]
                    weights = hl.where(seen, 1.0, 0.0).to(x.dtype)
                    acc = hl.dot(weights, x[tk.index + start, :], acc=acc)
                out[tq.index + start, :] = acc
    return out


@tile.kernel(checks=False)  # a checked call refuses windows that begin before the array
def windows(x, starts, L: hl.constexpr):
    """y[g] = the sum of the L rows of x from starts[g] on that there are, and how many are."""
    G, M = starts.shape[0], x.shape[0]
    y = hl.zeros([G, x.shape[1]], dtype=hl.float32)
    count = hl.zeros([G], dtype=hl.int32)
    for g in hl.grid(G):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        many = 0
        for t in hl.tile(L):
            if starts[g] < M + 50:
                place = starts[g] + t.index
                live = ((place >= 0) & (place < M)).to(hl.float32)
                acc = acc + (live[:, None] * x[place, :].to(hl.float32)).sum(0)
                many = many + (place < 1000).to(hl.int32).sum(0)
        y[g, :] = acc
        count[g] = many
    return y, count


def integers(M, dtype=np.float32):
    return rng.integers(-8, 9, (M, 8)).astype(dtype)


def same(kernel, arguments, exact, form, block):
    """Compares a call and the reference with what is right; a form may refuse the kernel."""
    try:
        got = kernel(*arguments, config=tile.Config(block, **form))
    except PlanError:
        assert form
        return
    for ours, right in zip(got if isinstance(got, tuple) else (got,), exact, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), right)


@pytest.mark.parametrize("L", share([32, 64], 2))
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_end_of_the_array_lies_in_a_tile(form, L):
    for block in ({}, {"tq": 8, "tk": 8}, {"tq": 16, "tk": 32}):
        for lengths in ((10, 23), (1, 32), (32, 1), (17, 16)):
            offsets = np.cumsum([0, *lengths])
            x = integers(33)
            exact = np.concatenate([x[a:b].cumsum(0) for a, b in itertools.pairwise(offsets)])
            small = causal.reference(x, offsets, L, blocks={"tq": 8, "tk": 8})
            np.testing.assert_array_equal(small, exact)
            same(causal, (x, offsets, L), [exact], form, block)


def rows_of(x, starts, L):
    padded = np.zeros((400, 8))
    padded[150 : 150 + len(x)] = x
    live = starts < len(x) + 50
    rows = [padded[150 + s : 150 + s + L].sum(0) * on for s, on in zip(starts, live, strict=True)]
    return np.stack(rows), L * live


@pytest.mark.parametrize("dtype", share(["float32", "bfloat16"], 2))
@pytest.mark.parametrize("form", [f for f in FORMS if "steps" not in f], ids=str)
def test_tiles_before_and_behind_the_array(form, dtype):
    """Tiles that lie outside as a whole count: only what they read is nothing."""
    starts = np.array([-40, -16, -3, 0, 5, 17, 30, 33, 60, 100])
    for M, L, block in ((7, 20, {}), (33, 100, {"t": 16}), (64, 20, {"t": 8}), (64, 1, {})):
        x = integers(M, ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
        exact = rows_of(x.astype(np.float64), starts, L)
        for ours, right in zip(windows.reference(x, starts, L), exact, strict=True):
            np.testing.assert_array_equal(ours, right)
        same(windows, (x, starts, L), exact, form, block)
