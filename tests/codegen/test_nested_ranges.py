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


PROGRAMS = (
    positions_alone,
    added_alone,
    tile_in_tile,
    tile_in_tile_uncovered,
    three_tiles,
    loops_in_a_tile,
    some_groups,
    some_groups_whole,
    some_groups_in_a_row,
    moved_over_groups,
)


def agrees(fn, form, layouts=OFFSETS):
    """Whether the kernel does what its reference does, where it takes the form."""
    kernel, x = tile.kernel(fn), np.random.default_rng(0).normal(size=(M, 2)).astype(np.float32)
    for count, offsets in enumerate(layouts, 1):
        arguments = x, np.array(offsets, np.int32), np.array(count, np.int32)
        try:
            blocks = dict.fromkeys(dict(kernel.default_config(*arguments).blocks), 8)
            made = kernel(*arguments, config=tile.Config(blocks, **form))
        except tile.PlanError:
            return form != {}
        expected = kernel.reference(*arguments)
        if not isinstance(made, tuple):
            made, expected = (made,), (expected,)
        for got, want in zip(made, expected, strict=True):
            want = np.asarray(want)
            if not np.allclose(np.where(np.isnan(want), want, got), want, 1e-5, 1e-5, True):
                return False
    return True


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()) or "default")
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_ranges_in_ranges(fn, form):
    assert agrees(fn, form)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_planted_bug_is_caught(broken, monkeypatch):
    fn = next(fn for fn in PROGRAMS if fn.__name__ == broken.program)
    monkeypatch.setattr(broken.owner, broken.name, broken.wrong)
    try:
        noticed = not agrees(fn, broken.form)
    except Exception:  # the generated code does not run
        noticed = True
    assert noticed
