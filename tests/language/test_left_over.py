"""Positions of a loop that the array it stores to has no place for."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def early(x):
    y = hl.full([42, 8], 5.0, dtype=hl.float32)
    for _i in hl.grid(1):
        for t in hl.tile(50):
            at = t.index - 8
            hl.store(y, [t - 8, slice(None)], x[t, :], mask=((at >= 0) & (at < 42))[:, None])
    return y


@tile.kernel
def sums_beside(x, lengths):
    G = lengths.shape[0]
    y = hl.zeros([G, 30, 8], dtype=hl.float32)
    sums = hl.zeros([G, 8], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(lengths[g], max_extent=50):
            at = t.index - 8
            hl.store(y, [g, t - 8, slice(None)], x[t, :], mask=((at >= 0) & (at < 30))[:, None])
            acc = acc + x[t, :].sum(0)
        sums[g, :] = acc
    return y, sums


X = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)


@pytest.mark.parametrize("block", [8, 32])
@pytest.mark.parametrize("form", [None, "unroll", "fori_loop"])
def test_a_store_may_begin_before_its_array_under_a_mask(block, form):
    config = tile.Config(blocks={"t": block}, loop_type=form)
    np.testing.assert_array_equal(early(X, config=config), X[8:])


def test_a_sum_over_more_than_the_output_holds_is_refused():
    """Tiles are blocks of y: the sum left out the first eight rows."""
    lengths = np.array([0, 3, 9, 50], np.int32)
    with pytest.raises(tile.PlanError, match=r"t goes on where y has no place.*carries acc"):
        sums_beside(X, lengths)
