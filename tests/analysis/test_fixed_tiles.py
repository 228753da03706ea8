"""Tiles of a fixed block are what the author says they are, if their range begins where one does.

Tiles are cut where the memory is: of hl.tile(5, 37, block_size=8) the first may end at 8.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

X = np.random.default_rng(1).integers(-4, 5, size=(37, 8)).astype(np.float32)
OFFSETS = np.array([0, 5, 5, 21, 37], np.int32)
FORMS = ({}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"})


def ragged(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t, :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


def registered(x, offsets):
    y, block = hl.zeros(x.shape, dtype=x.dtype), hl.register_block_size(8, 8)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=block):
            y[t, :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


def begins_elsewhere(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(3, x.shape[0], block_size=8):
        y[t, :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


def moved(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], block_size=8):
            rows = offsets[g] + t.index
            y[rows, :] = x[rows, :] - x[rows, :].sum(0)[None, :]
    return y


def one_that_is_moved(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(8, block_size=8):
        y[t.index + 5, :] = x[t.index + 5, :] - x[t.index + 5, :].sum(0)[None, :]
    return y


def of_the_tile_before(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        most = hl.full([x.shape[1]], -9.0, dtype=hl.float32)
        before = hl.full([x.shape[1]], -9.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            before = most
            most = hl.maximum(most, x[t, :].amax(0))
        y[g, :] = before + most
    return y


def chunks(x, offsets):
    """They begin at multiples of the block."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for c in hl.grid(2):
        for t in hl.tile(c * 16, c * 16 + 16, block_size=8):
            y[t, :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


def read_elsewhere(x, offsets):
    """Tiles are cut where they are stored."""
    G, (N, D) = offsets.shape[0] - 1, x.shape
    y = hl.zeros([G, N, D], dtype=x.dtype)
    for g in hl.grid(G):
        for t in hl.tile(offsets[g + 1] - offsets[g], block_size=8, max_extent=N):
            rows = x[offsets[g] + t.index, :]
            y[g, t, :] = rows - rows.sum(0)[None, :]
    return y


def stored_from_zero(x, offsets):
    G, (N, D) = offsets.shape[0] - 1, x.shape
    y = hl.zeros([G, N, D], dtype=x.dtype)
    for g in hl.grid(G):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8, max_extent=N):
            y[g, t.index - offsets[g], :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


WRONG = (ragged, registered, begins_elsewhere, moved, one_that_is_moved, of_the_tile_before)


@pytest.mark.parametrize("function", WRONG, ids=lambda f: f.__name__)
def test_what_goes_by_where_tiles_are_cut_is_refused(function):
    with pytest.raises(
        tile.ParseError, match="the result would depend on the block of t"
    ) as caught:
        tile.kernel(function).reference(X, OFFSETS)
    assert caught.value.hint.partition(", or let ")[2].startswith(
        "t begin at a multiple of 8 in memory, where tiles are cut"
    )


@pytest.mark.parametrize("function", [chunks, read_elsewhere, stored_from_zero])
def test_what_begins_at_a_multiple_is_as_the_author_cut_it(function):
    kernel, taken = tile.kernel(function), 0
    expected = kernel.reference(X, OFFSETS)
    for form in FORMS:
        try:
            made = kernel(X, OFFSETS, config=tile.Config(**form))
        except tile.PlanError:
            continue
        np.testing.assert_array_equal(made, expected)
        taken += 1
    assert taken >= 2
