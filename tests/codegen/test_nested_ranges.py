"""Ranges inside of ranges that are data: in every loop type the same result.

Rows of a list that stand for nothing ask for no further ones, every column has its own cursor, and
`max_extent` bounds how long a range is, not where it lies.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.planted.nested import BROKEN
from tests.planted.stale import skip_hidden
from tests.tiers import share

M = 40
FORMS = (
    {},
    {"loop_type": "outer_pipeline"},
    {"loop_type": "outer_pipeline", "steps": "rectangle"},
    {"loop_type": "worklist"},
    {"loop_type": "emit_pipeline"},
    {"loop_type": "fori_loop"},
)
OFFSETS = ([0, 10, 10, 33, 40], [3, 9, 17, 17, 20], [7, 7, 7, 7, 7])


def tile_in_tile(x, offsets, n):
    y = hl.zeros([M], dtype=hl.float32)
    for g in hl.grid(4):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tk in hl.tile(tq.begin, tq.end):
                y[tk] = x[tk, 0] * 2
    return y


def tile_in_tile_uncovered(x, offsets, n):
    y = hl.empty([M], dtype=hl.float32)
    for g in hl.grid(4):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tk in hl.tile(tq.begin, tq.end):
                y[tk] = x[tk, 0] * 2
    return y


def tile_in_tile_of_few(x, offsets, n):
    """An array of fewer rows than a block has shows its one block, wherever the tiles are."""
    few, y = x.reshape(2, M), hl.zeros([M, M], dtype=hl.float32)
    for g in hl.grid(4):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tk in hl.tile(tq.begin, tq.end):
                own = hl.load(few, [tk, slice(None)], mask=(tk.index < 2)[:, None], other=0.0)
                y[tk, :] = own + 1.0
    return y


def three_tiles(x, offsets, n):
    y = hl.zeros([M], dtype=hl.float32)
    for g in hl.grid(4):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tk in hl.tile(tq.begin, tq.end, max_extent=M):
                for tr in hl.tile(tk.begin, tk.end):
                    y[tr] = x[tr, 0] * 2
    return y


def loops_in_a_tile(x, offsets, n):
    y = hl.zeros([M], dtype=hl.float32)
    z = hl.zeros([M], dtype=hl.float32)
    for g in hl.grid(4):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tk in hl.tile(tq.begin, tq.end):
                y[tk] = x[tk, 0] * 2
            for tr in hl.tile(tq.begin, tq.end):
                z[tr] = x[tr, 1] * 3
    return y, z


def tile_in_tile_of_groups(x, offsets, n):
    """Groups have a number of their own, also those without a tile."""
    y = hl.zeros([M], dtype=hl.float32)
    z = hl.zeros([4], dtype=hl.float32)
    for g in hl.grid(4):
        most = -5.0
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tk in hl.tile(tq.begin, tq.end):
                y[tk] = x[tk, 0] * 2
                most = hl.maximum(most, x[tk, 0].amax(0))
        z[g] = most
    return y, z


def some_groups(x, offsets, n):
    y = hl.full([M, M], 3.0, dtype=hl.float32)
    for g in hl.grid(n[()], max_extent=4):
        for tk in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
                y[tk, tm] = x[tk, 0][:, None] + hl.zeros([tk, tm], dtype=hl.float32)
    return y


def some_groups_whole(x, offsets, n):
    y = hl.full([4, M], 3.0, dtype=hl.float32)
    for g in hl.grid(n[()], max_extent=4):
        for a in hl.grid(2):
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
                y[g, tm] = x[tm, a]
    return y


def some_groups_in_a_row(x, offsets, n):
    y = hl.full([M], 3.0, dtype=hl.float32)
    z = hl.full([M], 4.0, dtype=hl.float32)
    for g in hl.grid(n[()], max_extent=4):
        for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            y[tm] = x[tm, 0]
        for tk in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            z[tk] = x[tk, 1]
    return y, z


def moved_over_groups(x, offsets, n):
    y = hl.full([9, 2], 0.0, dtype=hl.float32)
    for k in hl.grid(3):
        for t in hl.tile(1):
            for g in hl.grid(2):
                acc = hl.zeros([t], dtype=hl.float32)
                for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
                    acc = acc + x[tm, g].sum(0)
                y[k * 4 + t.index, g] = acc
    return y


def positions_alone(x, offsets, n):
    y = hl.zeros([4], dtype=hl.float32)
    for g in hl.grid(4):
        acc = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=24):
            acc = acc + t.index.sum(0).to(hl.float32)
        y[g] = acc
    return y


def added_alone(x, offsets, n):
    y = hl.zeros([4], dtype=hl.float32)
    for g in hl.grid(4):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=24):
            hl.atomic_add(y, [g], t.index.sum(0).to(hl.float32))
    return y


def fall_with_groups(x, offsets, n):
    y = hl.zeros([4 * M], dtype=hl.float32)
    z = hl.zeros([M], dtype=hl.float32)
    for g in hl.grid(4):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            z[tq] = x[tq, 1]
            for tk in hl.tile(tq.begin + (3 - g) * M, tq.end + (3 - g) * M, max_extent=M):
                y[tk] = n[()] + hl.zeros([tk], dtype=hl.float32)
    return y, z


def again_in_every_j(x, offsets, n):
    y = hl.zeros([8, M + 8], dtype=hl.float32)
    for j in hl.grid(2):
        for g in hl.grid(4):
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
                y[n[()] + j, tm + 8] = y[n[()] + j, tm + 8] + x[tm, j]
    return y


def again_in_some_j(x, offsets, n):
    y = hl.zeros([M, 2], dtype=hl.float32)
    for _j in hl.grid(n[()], max_extent=4):
        for g in hl.grid(4):
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
                y[tm, :] = y[tm, :] + x[tm, :]
    return y


PROGRAMS = (
    fall_with_groups,
    again_in_every_j,
    again_in_some_j,
    positions_alone,
    added_alone,
    tile_in_tile,
    tile_in_tile_uncovered,
    tile_in_tile_of_few,
    three_tiles,
    loops_in_a_tile,
    tile_in_tile_of_groups,
    some_groups,
    some_groups_whole,
    some_groups_in_a_row,
    moved_over_groups,
)


def name_of(form):
    """A form in one word, as tests are called."""
    return "-".join(form.values()) or "default"


IN_ONE_TABLE = ("outer_pipeline", "outer_pipeline-rectangle", "worklist")
# Which forms refuse which program: blocks would be visited again.  All others must plan.
REFUSED = {
    "fall_with_groups": IN_ONE_TABLE,
    "again_in_every_j": IN_ONE_TABLE,
    "again_in_some_j": IN_ONE_TABLE,
    "tile_in_tile_of_groups": IN_ONE_TABLE[1:],
    "some_groups_whole": (*IN_ONE_TABLE, "emit_pipeline"),
    "moved_over_groups": ("emit_pipeline",),
}


def agrees(fn, form, layouts=OFFSETS):
    """Whether the kernel does what its reference does, or is refused where it must be."""
    kernel, x = tile.kernel(fn), np.random.default_rng(0).normal(size=(M, 2)).astype(np.float32)
    refused = name_of(form) in REFUSED.get(fn.__name__, ())
    for count, offsets in enumerate(layouts, 1):
        arguments = x, np.array(offsets, np.int32), np.array(count, np.int32)
        blocks = dict.fromkeys(dict(kernel.default_config(*arguments).blocks), 8)
        try:
            made = kernel(*arguments, config=tile.Config(blocks, **form))
        except tile.PlanError:
            return refused
        expected = kernel.reference(*arguments)
        if not isinstance(made, tuple):
            made, expected = (made,), (expected,)
        for got, want in zip(made, expected, strict=True):
            want = np.asarray(want)
            if not np.allclose(np.where(np.isnan(want), want, got), want, 1e-5, 1e-5, True):
                return False
    return not refused


@pytest.mark.parametrize("form", share(FORMS, 12, ids=name_of))
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_ranges_in_ranges(fn, form):
    assert agrees(fn, form)


@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_few_rows_that_one_tile_has(form):
    """Blocks of all rows: the inner loop has one tile, which nothing has to say the number of."""
    x, offsets = np.random.default_rng(0).normal(size=(M, 2)).astype(np.float32), OFFSETS[0]
    arguments = x, np.array(offsets, np.int32), np.array(1, np.int32)
    kernel = tile.kernel(tile_in_tile_of_few)
    made = kernel(*arguments, config=tile.Config({"tq": M, "tk": M}, **form))
    np.testing.assert_allclose(made, kernel.reference(*arguments), 1e-6)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_planted_bug_is_caught(broken, monkeypatch):
    fn = next(fn for fn in PROGRAMS if fn.__name__ == broken.program)
    monkeypatch.setattr(broken.owner, broken.name, broken.wrong)
    try:
        noticed = not agrees(fn, broken.form)
    except Exception:  # the generated code does not run
        noticed = True
    if not noticed and broken.stale:
        skip_hidden()
    assert noticed
