"""Positions of a loop that the array it stores to has no place for."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again
from tilelang.codegen.pallas.plan import placement
from tilelang.schedule.problem import Problem


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


@tile.kernel
def longest_sums(x, lengths):
    """Rows of x behind the eighth: the first 30 are kept, and all are summed."""
    G = lengths.shape[0]
    y = hl.full([30, 8], 7.0, dtype=hl.float32)
    sums = hl.zeros([G, 8], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(lengths[g], max_extent=42):
            hl.store(y, [t, slice(None)], x[t + 8, :], mask=(t.index < 30)[:, None])
            acc = acc + x[t + 8, :].sum(0)
        sums[g, :] = acc
    return y, sums


@tile.kernel
def ranges_summed(x, offsets):
    """The same of ranges that may begin anywhere."""
    G = offsets.shape[0] - 1
    y = hl.full([30, 8], 7.0, dtype=hl.float32)
    sums = hl.zeros([G, 8], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=42):
            hl.store(y, [t, slice(None)], x[t + 8, :], mask=(t.index < 30)[:, None])
            acc = acc + x[t + 8, :].sum(0)
        sums[g, :] = acc
    return y, sums


LENGTHS = ([0, 0, 0, 0], [1, 29, 30, 31], [42, 0, 42, 8], [30, 42, 30, 0])


@pytest.mark.parametrize("block", [8, 16, 32])
@pytest.mark.parametrize("form", [None, "fori_loop", "worklist", "outer_pipeline"])
def test_a_range_of_known_begin_goes_on_behind_the_output(block, form):
    config = tile.Config(blocks={"t": block}, loop_type=form)
    for lengths in np.array(LENGTHS, np.int32):
        try:
            y, sums = longest_sums(X, lengths, config=config)
        except tile.PlanError as refused:  # groups overlap, and some forms cannot have that
            assert form in ("worklist", "outer_pipeline") and "visited again" in str(refused)
            return
        kept = np.where(np.arange(30)[:, None] < lengths.max(), X[8:38], 7)
        np.testing.assert_array_equal(y, kept)
        np.testing.assert_allclose(sums, [X[8 : 8 + n].sum(0) for n in lengths], atol=1e-5)


@needs_libtpu
@pytest.mark.parametrize("block", [None, 64])
def test_a_block_of_two_lengths_fills_registers(block):
    """Neither 42 nor 30 is a multiple of 8, and one block is not the whole of both."""
    config = None if block is None else tile.Config(blocks={"t": block})
    compiled(longest_sums, X, np.array(LENGTHS[1], np.int32), target="tpu:v6e", config=config)


def test_a_range_of_unknown_begin_does_not():
    with pytest.raises(tile.PlanError, match=r"t goes on where y has no place.*carries acc"):
        ranges_summed(X, np.array([0, 5, 42], np.int32))


def test_planted_tiles_end_with_the_output(monkeypatch):
    monkeypatch.setattr(Problem, "end", lambda self, axis: self.axis(axis).static and 0)
    monkeypatch.setattr(placement, "check_left_over", lambda problem, axes: None)
    _, sums = again(longest_sums)(X, np.array([42], np.int32))
    assert not np.allclose(sums[0], X[8:].sum(0), atol=1e-5)
