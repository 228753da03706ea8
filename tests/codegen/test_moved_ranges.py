"""Ranges that rise where they are read, and go back where tiles are cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import PlanError

X = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 30, 45], np.int32)
MOVED = np.array([40, 0, -7, -29], np.int32)
RANGES = list(itertools.pairwise(OFFSETS))
FORMS = ({"blocks": {"t": 8}}, {"blocks": {"t": 8}, "steps": "rectangle"}, {})


def slots(x, offsets, by):
    """Every range goes to a place of its own, in no order."""
    y = hl.full([60, 40], 2.0, dtype=hl.float32)
    for g in hl.grid(4):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=30):
            y[t.index + by[g], :] = x[t, :]
    return y


def boxes(x, offsets):
    """Every range from the begin of a box of its own on."""
    y = hl.full([4, 30, 40], 2.0, dtype=hl.float32)
    for g in hl.grid(4):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=30):
            y[g, t.index - offsets[g], :] = x[t, :]
    return y


def left_out(x, offsets):
    """Sums of ranges of which x need not hold what the mask leaves out: they cut nothing."""
    y = hl.zeros([4, 40], dtype=hl.float32)
    for g in hl.grid(4):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=50):
            rows = hl.load(x, [t, slice(None)], mask=(t.index < 20)[:, None], other=1.0)
            hl.atomic_add(y, [g, slice(None)], rows.sum(0))
    return y


IN_SLOTS, IN_BOXES = np.full((60, 40), 2, np.float32), np.full((4, 30, 40), 2, np.float32)
for number, (begin, end) in enumerate(RANGES):
    IN_SLOTS[begin + MOVED[number] : end + MOVED[number]] = X[begin:end]
    IN_BOXES[number, : end - begin] = X[begin:end]
KNOWN = np.where(np.arange(50)[:, None] < 20, X, 1)
CASES = (
    (slots, (X, OFFSETS, MOVED), IN_SLOTS),
    (boxes, (X, OFFSETS), IN_BOXES),
    (left_out, (X, OFFSETS), np.stack([KNOWN[a:b].sum(0) for a, b in RANGES])),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("function", "arguments", "right"), CASES)
def test_tiles_are_visited_wherever_they_are_cut(function, arguments, right, form):
    kernel = tile.kernel(function)
    try:
        made = kernel(*arguments, config=tile.Config(**form))
    except PlanError as refused:  # blocks would be visited again
        assert "steps" in form, refused
        return
    np.testing.assert_allclose(np.asarray(made), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("index", [0, 1, 2], ids=["slots", "boxes", "left_out"])
def test_no_cursor_follows_ranges_that_go_back(index):
    function, arguments, _ = CASES[index]
    (launch,) = tile.kernel(function).lower(*arguments, config=tile.Config({"t": 8})).plan.launches
    columns = launch.table.columns if launch.table is not None else ()
    assert all(c.back for c in columns if c.cursor or c.visit == "cover")


def looks_back(x, ids):
    """Ranges that end with the one tile of a loop, which an index of the grid moves."""
    y = hl.zeros([64], dtype=hl.float32)
    for k in hl.grid(4):
        for tq in hl.tile(16, block_size=16):
            m = hl.zeros([tq], dtype=hl.float32)
            for tk in hl.tile(hl.maximum(0, tq.begin - 7), tq.end):
                seen = tk.index[None, :] <= tq.index[:, None]
                m = m + hl.where(seen, x[k * 16 + ids[tk], :].sum(1)[None, :], 0).sum(1)
            y[k * 16 + tq.index] = m
    return y


@pytest.mark.parametrize("form", ["outer_pipeline", "worklist"])
def test_what_moves_the_tile_of_a_bound_is_in_the_table(form):
    rows, ids = np.arange(128, dtype=np.float32).reshape(64, 2), np.arange(16)[::-1].copy()
    made = tile.kernel(looks_back)(
        rows, ids.astype(np.int32), config=tile.Config({"tk": 8}, loop_type=form)
    )
    np.testing.assert_array_equal(made, np.cumsum(rows.sum(1).reshape(4, 16)[:, ids], 1).ravel())
