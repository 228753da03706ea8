"""mask_outside: lanes of moved tiles that lie in no row of the array are no data."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, loops, stays
from tests.schedule.written import INT, Writing, mul, positions
from tilelang.analysis import analyze
from tilelang.ir import Along, Apply, Const, KernelIR, walk
from tilelang.ir.traversal import loads
from tilelang.ir.verify import verify
from tilelang.language import build
from tilelang.language.shapes import expand_dims
from tilelang.passes.inline_indices import inline_indices
from tilelang.passes.mask_outside import mask_outside

WHOLE = slice(None)


def cut(ir: KernelIR) -> KernelIR:
    return mask_outside(ir, analyze(ir))


def moved(by: int, guard: int | None = None) -> KernelIR:
    """y[t] = x[t + by] * 2, where `t.index + by < guard`"""
    k = Writing()
    k.input("x", 64, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        shift = Const(by, INT)
        mask = None
        if guard is not None:
            mask = build.binary("lt", build.binary("add", positions("t"), shift, None), guard, None)
            mask = expand_dims(mask, 1, None)
        rows = k.load("x", Along("t", shift), WHOLE, mask=mask)
        k.store("y", "t", WHOLE, value=mul(rows, 2.0))
    return k.ir()


def test_lanes_behind_the_array_are_none():
    becomes(
        moved(3),
        cut,
        """
        for t in tile(64):
            y[t, 0:128] = x[t + 3, 0:128] * 2.0
        """,
        """
        for t in tile(64):
            y[t, 0:128] = where(expand_dims(t.index + 3 < 64, axis=1), x[t + 3, 0:128], 0) * 2.0
        """,
    )


def test_lanes_before_the_array_are_none():
    becomes(
        moved(-3),
        cut,
        """
        for t in tile(64):
            y[t, 0:128] = x[t - 3, 0:128] * 2.0
        """,
        """
        for t in tile(64):
            y[t, 0:128] = where(expand_dims(t.index - 3 >= 0, axis=1), x[t - 3, 0:128], 0) * 2.0
        """,
    )


def test_lanes_of_two_tiles_that_are_none():
    """A mask of rows and one of columns meet in one that has both."""
    k = Writing()
    k.input("x", 64, 128)
    k.output("y", 64, 128)
    shift = Const(3, INT)
    with k.tile("t", 0, 64), k.tile("u", 0, 128):
        k.store("y", "t", "u", value=mul(k.load("x", Along("t", shift), Along("u", shift)), 2.0))
    (store,) = verify(cut(k.ir())).body[0].body[0].body
    masks = [e for e in walk(store.value) if isinstance(e, Apply) and e.op == "logical_and"]
    assert [str(mask.type) for mask in masks] == ["bool[t, u]"]


def test_a_mask_that_says_so_is_enough():
    becomes(
        moved(3, 64),
        cut,
        """
        for t in tile(64):
            y[t, 0:128] = load(x[t + 3, 0:128], mask=expand_dims(t.index + 3 < 64, axis=1), other=0) * 2.0
        """,
        """
        for t in tile(64):
            y[t, 0:128] = load(x[t + 3, 0:128], mask=expand_dims(t.index + 3 < 64, axis=1), other=0) * 2.0
        """,
    )
    assert "where" in loops(verify(cut(moved(3, 65))))  # one too generous


def test_tiles_inside_stay():
    stays(moved(0), cut)


def test_facts_speak_of_tiles_as_they_were_written():
    """A tile that the facts do not know, because another pass has changed it, is not masked."""
    k = Writing()
    k.input("x", 64)
    k.output("y", 64)
    with k.tile("t", 0, 64):
        by = k.let("by", Const(3, INT))
        k.store("y", "t", value=k.load("x", Along("t", by)))
    ir, facts = k.ir(), analyze(k.ir())
    assert "where" in loops(verify(inline_indices(mask_outside(ir, facts))))
    assert "where" not in loops(verify(mask_outside(inline_indices(ir), facts)))


def test_what_a_mask_leaves_out_bounds_no_range():
    """The range is longer than x, whose mask says everything: x has no say in where it ends."""
    k = Writing()
    k.input("x", 64)
    k.output("y", 90)
    with k.tile("t", 0, 90):
        mask = build.binary("lt", positions("t"), 64, None)
        k.store("y", "t", value=mul(k.load("x", "t", mask=mask), 2.0))
    (store,) = cut(k.ir()).body[0].body
    (load,) = loads(store.value)
    assert load.index[0].loose and not store.index[0].loose
    assert load.mask == mask


@tile.kernel
def by_group(x, offsets, shown):
    """Rows of the groups that are shown, and 0.5 for every row of the others."""
    G = offsets.shape[0] - 1
    y = hl.zeros([G, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            acc += hl.load(x, [t, WHOLE], mask=shown[g] > 0, other=0.5).sum(0)
        y[g, :] = acc
    return y


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("rows", [[0, 5, 13], [0, 12, 20], [0, 12, 12]])
def test_a_number_that_leaves_out_all_lanes_bounds_no_range_either(rows, checks):
    """Nobody reads x where the mask does not hold, so its range may go on behind the end of x."""
    x, shown = np.ones((12, 8), np.float32), np.array([1, 0], np.int32)
    offsets = np.array(rows, np.int32)
    called = tile.kernel(by_group._fn, checks=checks)
    expected = np.array([rows[1], 0.5 * (rows[2] - rows[1])])
    for config in (None, tile.Config({"t": 8})):
        found = called(x, offsets, shown, config=config)
        np.testing.assert_allclose(found, np.broadcast_to(expected[:, None], (2, 8)))
    np.testing.assert_allclose(called.reference(x, offsets, shown), found)
