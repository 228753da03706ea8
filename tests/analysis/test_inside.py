"""Which tiles may leave their arrays: ranges up to the end of a tile of a range that is checked."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.analysis import inside

OFFSETS = np.array([0, 5, 5, 37, 60], np.int32)
TURNS = np.array([2, 0, 3, 0], np.int32)


@tile.kernel
def before(q, k, offsets, turns, once: hl.constexpr):
    """y[i] = turns[g] * q[i], or once, and the sum of the rows of k up to i of its group."""
    y = hl.zeros([64, q.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=60):
            acc = hl.zeros([tq, q.shape[1]], dtype=hl.float32)
            if once:
                acc = acc + q[tq, :]
            else:
                for _ in hl.grid(0, turns[g], max_extent=3):
                    acc = acc + q[tq, :]
            for tk in hl.tile(offsets[g], tq.end, max_extent=60):
                seen = hl.where(tk.index[None, :] <= tq.index[:, None], 1.0, 0.0)
                acc = acc + hl.dot(seen, k[tk, :])
            y[tq, :] = acc
    return y


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, (count, 8)).astype(np.float32)


def masked(k: np.ndarray, once: bool = True) -> bool:
    """Whether rows of k behind the last one are left out."""
    anew = tile.kernel(before.__wrapped__)  # a kernel keeps what was found of it
    leaving = anew.lower(rows(60, 0), k, OFFSETS, TURNS, once).facts.leaving
    return any(found.index.axis == "tk" and found.size == len(k) for found in leaving)


def test_a_range_up_to_the_end_of_a_tile_lies_where_the_tile_does():
    assert not masked(rows(60, 1))


@pytest.mark.parametrize(("count", "once"), [(59, True), (61, True), (60, False)], ids=str)
def test_only_in_as_long_an_array_that_is_read_whenever_the_loop_runs(count, once):
    """Calls look whether a range lies in what it indexes, and only where that is read."""
    assert masked(rows(count, 1), once)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("block", [8, 16, 64])
def test_the_same_numbers(block, once):
    q, k = rows(60, 0), rows(60, 1)
    exact = np.zeros((64, 8))
    for g, (begin, end) in enumerate(itertools.pairwise(OFFSETS)):
        exact[begin:end] = (1 if once else TURNS[g]) * q[begin:end] + np.cumsum(k[begin:end], 0)
    config = tile.Config({"tq": block, "tk": block})
    np.testing.assert_array_equal(before(q, k, OFFSETS, TURNS, once, config=config), exact)


def test_a_planted_bug_is_seen(monkeypatch):
    """It is forgotten where the reads that calls check stand."""
    right = inside._checked

    def everywhere(*given):
        return (replace(c, loops=frozenset()) for c in right(*given))

    monkeypatch.setattr(inside, "_checked", everywhere)
    with pytest.raises(AssertionError):
        test_only_in_as_long_an_array_that_is_read_whenever_the_loop_runs(60, False)
