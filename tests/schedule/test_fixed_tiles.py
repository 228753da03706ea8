"""Tiles of a fixed block begin where the author says, where a result goes by which rows they have.

TPUs cut tiles where memory is: of hl.tile(5, 37, block_size=8) the first one would end at 8.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import PlanError

X = np.random.default_rng(1).integers(-4, 5, size=(37, 8)).astype(np.float32)
ROWS = np.random.default_rng(2).integers(-4, 5, size=(37, 2, 8)).astype(np.float32)
OFFSETS = np.array([0, 5, 5, 21, 37], np.int32)
FORMS = ("outer_pipeline", "fori_loop", "emit_pipeline", "worklist")
CONFIGS = (tile.Config(), *(tile.Config(loop_type=f) for f in FORMS))


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


def of_the_last_tile(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        last = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            last = x[t, :].sum(0)
        y[g, :] = last
    return y


def where_it_begins(x, offsets):
    part = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            part[t.begin, :] = x[t, :].sum(0)
    return part


def marked(x, offsets):
    """A place for each tile, of which nothing is computed that goes by it."""
    y, part = hl.zeros(x.shape, dtype=x.dtype), hl.zeros([x.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t, :] = 2 * x[t, :]
            part[t.begin] = 1.0
    return y, part


def the_first_row(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t, :] = x[t, :] * x[t.begin, :][None, :]
    return y


def how_long(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t, :] = x[t, :] * (t.end - t.begin)
    return y


WRONG = (
    ragged, registered, begins_elsewhere, moved, one_that_is_moved, of_the_tile_before,
    of_the_last_tile, where_it_begins, marked, the_first_row, how_long,
)  # fmt: skip


@pytest.mark.parametrize("function", WRONG, ids=lambda f: f.__name__)
def test_tiles_that_memory_would_cut_elsewhere_are_refused(function):
    """In every form; the kernel has a meaning, which the reference and GPUs have, too."""
    kernel, said = tile.kernel(function), []
    kernel.reference(X, OFFSETS)
    for config in (CONFIGS[0], CONFIGS[2]):
        with pytest.raises(PlanError) as caught:
            kernel(X, OFFSETS, config=config)
        said.append(caught.value)
    first = said[0]  # of the default; forms may be refused for what they cannot do at all
    assert "in a tile of t: hl.tile cuts them from where its range begins" in str(first)
    assert first.hint.startswith("begin ranges of t at multiples of 8")


def chunks(x, offsets):
    """They begin at multiples of the block."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for c in hl.grid(2):
        for t in hl.tile(c * 16, c * 16 + 16, block_size=8):
            y[t, :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


def of_blocks(x, offsets):
    """So do these, wherever memory says."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin = offsets[g] // 8 * 8
        for t in hl.tile(begin, offsets[g + 1] // 8 * 8, block_size=8):
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


def the_only_tile(x, offsets):
    """No array has another one."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=64):
            y[t, :] = x[t, :] - x[t, :].sum(0)[None, :]
    return y


def whatever_rows(x, offsets):
    """Nothing goes by the tiles."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            total += x[t, :].sum(0)
        for u in hl.tile(offsets[g], offsets[g + 1], block_size=16):
            y[u, :] = x[u, :] - total[None, :]
    return y


@pytest.mark.parametrize(
    "function",
    [chunks, of_blocks, read_elsewhere, stored_from_zero, the_only_tile, whatever_rows],
    ids=lambda f: f.__name__,
)
def test_tiles_that_are_the_authors_are_taken(function):
    kernel, taken = tile.kernel(function), 0
    expected = kernel.reference(X, OFFSETS)
    for config in CONFIGS:
        try:
            made = kernel(X, OFFSETS, config=config)
        except PlanError as no:
            assert config.loop_type is not None and "of 8 in memory" not in str(no)
            continue
        np.testing.assert_array_equal(made, expected)
        taken += 1
    assert taken >= 2


@tile.kernel
def of_heads(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for h, g in hl.grid([x.shape[1], offsets.shape[0] - 1]):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t, h, :] = x[t, h, :] - x[t, h, :].sum(0)[None, :]
    return y


@pytest.mark.parametrize("config", [None, tile.Config(windows="exact")], ids=str)
def test_copies_that_begin_anywhere_are_taken_where_there_are_some(config):
    assert "pl.BoundedSlice" in of_heads.source(ROWS, OFFSETS, target="tpu:v6e", config=config)
    made = of_heads(ROWS, OFFSETS, config=config)
    np.testing.assert_array_equal(made, of_heads.reference(ROWS, OFFSETS))


def test_and_asked_for_others_it_is_refused():
    with pytest.raises(PlanError, match="y goes by which rows are in a tile of t"):
        of_heads(ROWS, OFFSETS, config=tile.Config(windows="aligned"))
