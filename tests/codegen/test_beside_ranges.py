"""Tiles beside a range that memory holds: steps fill them, and store nothing there.

Where a range begins or ends between two tiles no tile crosses its edge, and some lie behind it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.pallas.plan import lanes

X = np.random.default_rng(0).standard_normal((48, 8)).astype(np.float32)
FORMS = (
    {},
    {"loop_type": "outer_pipeline"},
    {"loop_type": "worklist"},
    {"loop_type": "outer_pipeline", "steps": "rectangle"},
    {"loop_type": "fori_loop"},
)


@tile.kernel
def moved(x, lengths):
    """Rows of each group behind eight that keep what they were made with."""
    y = hl.full([2, 40, 8], 3.0, dtype=hl.float32)
    for g in hl.grid(2):
        for t in hl.tile(lengths[g], max_extent=32):
            y[g, t + 8, :] = x[t, :]
    return y


@tile.kernel
def moved_under_a_mask(x, lengths):
    y = hl.full([2, 30, 8], 3.0, dtype=hl.float32)
    for g in hl.grid(2):
        for t in hl.tile(lengths[g], max_extent=32):
            at = t.index + 8
            hl.store(y, [g, t + 8, slice(None)], x[t, :], mask=(at < 30)[:, None])
    return y


@tile.kernel
def from_eight_on(x, lengths):
    y = hl.full([2, 40, 8], 3.0, dtype=hl.float32)
    for g in hl.grid(2):
        for t in hl.tile(8, lengths[g], max_extent=24):
            y[g, t, :] = x[t, :]
    return y


@tile.kernel
def up_to_sixteen(x, lengths):
    y = hl.full([2, 40, 8], 3.0, dtype=hl.float32)
    for g in hl.grid(2):
        for t in hl.tile(lengths[g], 16, max_extent=16):
            y[g, t, :] = x[t, :]
    return y


def right(kernel: tile.Kernel, form: dict[str, str], lengths: tuple[int, int]) -> bool:
    given = X, np.array(lengths, np.int32)
    wanted = kernel.reference(*given)
    return np.array_equal(kernel(*given, config=tile.Config({"t": 8}, **form)), wanted)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kernel", [moved, moved_under_a_mask], ids=lambda k: k.__name__)
def test_a_length_moved_by_whole_tiles(kernel, form) -> None:
    assert all(right(kernel, form, n) for n in ((0, 32), (3, 9), (16, 24)))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_begin_and_an_end_between_two_tiles(form) -> None:
    assert all(right(from_eight_on, form, n) for n in ((8, 32), (12, 9), (16, 24)))
    assert all(right(up_to_sixteen, form, n) for n in ((0, 16), (3, 9), (8, 12)))


def test_the_planted_loss_of_what_lies_beside(monkeypatch) -> None:
    """A side that no tile crosses, whatever tiles there are behind it."""
    sides = lanes._sides
    monkeypatch.setattr(lanes, "_sides", lambda axis: sides(replace(axis, tiles=axis.tiles or 1)))
    assert not right(tile.kernel(moved.__wrapped__), {}, (3, 9))
