"""measured_ranges: what a range is made of vectors by is computed in a loop of its own before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.interpreter import strictly
from tests.passes.becomes import again, becomes, floats, ir_of, stays
from tilelang.codegen.pallas.passes.measured_ranges import measured_ranges

LENS = np.array([[3, 1, 2], [0, 0, 0], [140, 2, 7], [1, 9, 8], [129, 0, 128]], np.int32)
MASKS = np.arange(3) < np.array([0, 1, 2, 3, 3])[:, None]
OFFSETS = np.array([0, 2, 2, 5], np.int32)


@tile.kernel
def measured(x, lens, masks):
    """The sum over as many numbers as the greatest length says, where any mask is set."""
    B, L = x.shape
    y = hl.zeros([B], dtype=hl.float32)
    for b in hl.grid(B):
        n = lens[b, :].amax(0)
        acc = hl.zeros([], dtype=hl.float32)
        if masks[b, :].any():
            for t in hl.tile(n, max_extent=L):
                acc = acc + x[b, t].sum()
        y[b] = acc + n
    return y


@tile.kernel
def of_rows(x, lens, offsets):
    """The same for rows of groups, of which a ragged loop says where they are."""
    B, L = x.shape
    y = hl.zeros([B], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for i in hl.grid(offsets[g], offsets[g + 1]):
            acc = hl.zeros([], dtype=hl.float32)
            for t in hl.tile(lens[i, :].amax(0), max_extent=L):
                acc = acc + x[i, t].sum()
            y[i] = acc
    return y


@tile.kernel
def of_all(x, lens):
    """One length for all rows."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for b in hl.grid(x.shape[0]):
        for t in hl.tile(hl.minimum(lens[:, 0].sum(), x.shape[1]), max_extent=x.shape[1]):
            y[b, t] = x[b, t] * 2
    return y


@tile.kernel
def in_turn(x, lens, masks):
    """The greatest of as many lengths as there are masks set, and how often it is among them."""
    B, L = x.shape
    y = hl.zeros([B], dtype=hl.float32)
    for b in hl.grid(B):
        count = masks[b, :].to(hl.int32).sum()
        most = hl.where(hl.arange(3) < count, lens[b, :], 0).amax(0)
        acc = hl.zeros([], dtype=hl.float32)
        for t in hl.tile(hl.where(lens[b, :] == most, most, 0).sum(), max_extent=L):
            acc = acc + x[b, t].sum()
        y[b] = acc
    return y


@tile.kernel
def stored(x, lens):
    """What the same loop stores is no number before it."""
    B, L = x.shape
    own = hl.zeros(lens.shape, dtype=hl.int32)
    y = hl.zeros([B], dtype=hl.float32)
    for b in hl.grid(B):
        own[b, :] = lens[b, :] // 2
        acc = hl.zeros([], dtype=hl.float32)
        for t in hl.tile(own[b, :].amax(0), max_extent=L):
            acc = acc + x[b, t].sum()
        y[b] = acc
    return y


@tile.kernel
def moved(x, y):
    """Tiles that begin, and end, where the greatest of a row is: of floats that are computed."""
    out = hl.empty(x.shape, dtype=hl.float32)
    total = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(x.shape[0]):
        at = (x[g, :] * 2.0).argmax(0)
        for t in hl.tile(x.shape[1]):
            out[g, t] = y[t.index + at]
        for t in hl.tile(0, at):
            total[g] += y[t].sum(0)
    return out, total


@tile.kernel
def plain(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc = acc + x[t].sum()
        y[g] = acc
    return y


def test_ranges_are_read_from_memory():
    specs = tile.spec((5, 140), "float32"), tile.spec((5, 3), "int32"), tile.spec((5, 3), "bool")
    becomes(
        ir_of(measured, *specs),
        measured_ranges,
        """
        for b in grid(5):
            n: int32[] = max(lens[b, 0:3], axis=0)
            acc: float32[] = full([], float32, value=0.0)
            condition: bool[] = any(masks[b, 0:3], axis=0)
            for t in tile(0, where(condition, n, 0), max_extent=140) carrying acc_1 = acc:
                acc_2: float32[] = acc_1 + sum(x[b, t], axis=0)
                next acc_1 = acc_2
            after acc_3 = acc_1
            y[b] = acc_3 + cast(n, float32)
        """,
        """
        for b_1 in grid(5):
            t_measure[b_1] = cast(any(masks[b_1, 0:3], axis=0), int32)
            t_measure_1[b_1] = max(lens[b_1, 0:3], axis=0)

        for b in grid(5):
            n: int32[] = max(lens[b, 0:3], axis=0)
            acc: float32[] = full([], float32, value=0.0)
            for t in tile(0, where(t_measure[b] != 0, t_measure_1[b], 0), max_extent=140) \
carrying acc_1 = acc:
                acc_2: float32[] = acc_1 + sum(x[b, t], axis=0)
                next acc_1 = acc_2
            after acc_3 = acc_1
            y[b] = acc_3 + cast(n, float32)
        """,
    )  # fmt: skip


def test_a_range_of_rows_is_measured_for_all_of_them():
    specs = tile.spec((5, 140), "float32"), tile.spec((5, 3), "int32"), tile.spec((4,), "int32")
    made = measured_ranges(ir_of(of_rows, *specs))
    assert made.tensor("t_measure").shape == (5,)
    assert made.axis(made.body[0].axis).static == (0, 5)


def test_others_stay():
    rows, lens = tile.spec((5, 140), "float32"), tile.spec((5, 3), "int32")
    stays(plain.lower(tile.spec((40,), "float32"), tile.spec((4,), "int32")).ir, measured_ranges)
    with pytest.raises(tile.PlanError, match="is computed from whole vectors"):
        stored.lower(rows, lens, target="tpu:v6e")


def sums(x, counts):
    return np.array([row[:n].sum() for row, n in zip(x, counts, strict=True)])


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_values(target):
    x, most = floats(5, 140), LENS.max(1)
    got = strictly(measured, 0)(x, LENS, MASKS, target=target)
    want = sums(x, np.where(MASKS.any(1), most, 0)) + most
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    got = strictly(of_rows, 0)(x, LENS, OFFSETS, target=target)
    np.testing.assert_allclose(got, sums(x, most), rtol=1e-4, atol=1e-4)
    got = strictly(of_all, 0)(x, LENS // 4, target=target)
    np.testing.assert_array_equal(got[:, :67], 2 * x[:, :67])
    np.testing.assert_array_equal(got[:, 67:], 0)


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_tiles_begin_where_vectors_say(target):
    x, y = floats(9, 8), floats(40)
    at = x.argmax(1)
    out, total = again(moved)(x, y, target=target)
    np.testing.assert_array_equal(out, y[at[:, None] + np.arange(8)])
    np.testing.assert_allclose(total, [y[:n].sum() for n in at], rtol=1e-5, atol=1e-5)


@needs_libtpu
def test_they_compile():
    compiled(moved, tile.spec((64, 128), "float32"), tile.spec((4096,), "float32"), target="tpu:7x")


def test_what_is_measured_by_others_comes_behind_them():
    x, lens = floats(5, 140), np.minimum(LENS, 40)
    specs = tile.spec((5, 140), "float32"), tile.spec((5, 3), "int32"), tile.spec((5, 3), "bool")
    made = measured_ranges(ir_of(in_turn, *specs))
    assert [len(loop.body) for loop in made.body[:-1]] == [1, 1, 1]
    most = np.where(np.arange(3) < MASKS.sum(1)[:, None], lens, 0).max(1)
    counts = np.where(lens == most[:, None], most[:, None], 0).sum(1)
    for target in ("cpu", "tpu:v5e"):
        got = again(in_turn)(x, lens, MASKS, target=target)
        np.testing.assert_allclose(got, sums(x, counts), rtol=1e-4, atol=1e-4)


@tile.kernel
def with_what_nobody_reads(x, lens):
    """A loop whose value is never used has no axis, either, once it is gone."""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for b in hl.grid(x.shape[0]):
        acc, unused = 0.0, 0.0
        for t in hl.tile(lens[b, :].amax(0), max_extent=x.shape[1]):
            acc = acc + x[b, t].sum()
        for u in hl.tile(x.shape[1]):
            unused = unused + x[b, u].sum()
        y[b] = acc
    return y


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_loops_that_nobody_reads(target):
    x = floats(5, 140)
    got = again(with_what_nobody_reads)(x, LENS, target=target)
    np.testing.assert_allclose(got, sums(x, LENS.max(1)), rtol=1e-4, atol=1e-4)


def test_no_vector_lies_in_scalar_memory():
    specs = tile.spec((5, 140), "float32"), tile.spec((5, 3), "int32")
    for kernel, last in (
        (measured, tile.spec((5, 3), "bool")),
        (of_rows, tile.spec((4,), "int32")),
    ):
        plan = again(kernel).lower(*specs, last, target="tpu:v6e").plan
        held = set(itertools.chain(*(launch.scalars for launch in plan.launches)))
        assert not held & {"lens", "lens_flat", "masks", "masks_flat"}, held
