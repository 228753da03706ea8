"""How long a range that data say can be: as long as what its index counts through."""

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import again
from tilelang.errors import ParseError, RaggedValueError
from tilelang.frontend import control

ROWS, OFFSETS = 30, np.array([0, 7, 7, 30], np.int32)


def extent(kernel, axis, *args):
    return next(a.max_extent for a in kernel.lower(*args).ir.axes if a.name == axis)


@tile.kernel
def backwards(x, offsets):
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        last = offsets[g + 1] - 1
        total = 0.0
        for j in hl.grid(offsets[g + 1] - offsets[g]):
            total += x[last - j]
            y[last - j] = total
    return y


@tile.kernel
def forwards(x, offsets):
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for j in hl.grid(offsets[g + 1] - offsets[g]):
            y[offsets[g] + j] = 2 * x[offsets[g] + j]
    return y


@tile.kernel
def every_third(x, n):
    """y[b, j] = x[3 * j + b]"""
    y = hl.zeros([3], dtype=x.dtype)
    for b in hl.grid(3):
        total = 0.0
        for j in hl.grid(n[b]):
            total += x[3 * j + b]
        y[b] = total
    return y


def test_a_grid_is_as_long_as_what_it_counts_through():
    x = np.arange(ROWS, dtype=np.float32)
    assert extent(backwards, "j", x, OFFSETS) == ROWS
    assert extent(forwards, "j", x, OFFSETS) == ROWS
    assert extent(every_third, "j", x, np.zeros(3, np.int32)) == ROWS // 3

    parts = [x[a:b] for a, b in itertools.pairwise(OFFSETS)]
    want = np.concatenate([part[::-1].cumsum()[::-1] for part in parts])
    np.testing.assert_allclose(backwards(x, OFFSETS), want)
    np.testing.assert_array_equal(forwards(x, OFFSETS), 2 * x)
    np.testing.assert_array_equal(
        every_third(x, np.array([10, 0, 2], np.int32)), [x[::3].sum(), 0, x[2] + x[5]]
    )


def test_a_call_refuses_what_is_longer():
    x = np.arange(ROWS, dtype=np.float32)
    with pytest.raises(RaggedValueError):
        every_third(x, np.array([11, 0, 0], np.int32))
    with pytest.raises(RaggedValueError):
        backwards(x, np.array([0, 7, 7, 31], np.int32))


@tile.kernel
def carried(x, n):
    """x[p - j], of a p that grows as fast: always one place, however long the range is."""
    y = hl.zeros([4], dtype=x.dtype)
    for g in hl.grid(4):
        p, total = 0, 0.0
        for j in hl.grid(n[g]):
            total += x[p - j]
            p = p + 1
        y[g] = total
    return y


@tile.kernel
def followed(x, n):
    """j and what memory says of j."""
    y = hl.zeros([4], dtype=x.dtype)
    for g in hl.grid(4):
        total = 0.0
        for j in hl.grid(n[g]):
            total += x[j - n[j % 4]]
        y[g] = total
    return y


@tile.kernel
def outer(x, n):
    """x[i + k], of a k that begins where i left: the outer range is not bounded by x."""
    y = hl.zeros([4], dtype=x.dtype)
    for g in hl.grid(4):
        total = 0.0
        for i in hl.grid(n[g]):
            for k in hl.grid(0 - i, 3 - i):
                total += x[i + k]
        y[g] = total
    return y


@tile.kernel
def summed(x, n):
    """j and what a tile inside of its loop says."""
    y = hl.zeros([4], dtype=x.dtype)
    for g in hl.grid(4):
        total = 0.0
        for j in hl.grid(n[g]):
            for t in hl.tile(4):
                total += x[j - n[t].sum(0)]
        y[g] = total
    return y


@pytest.mark.parametrize(
    "kernel, axis",
    [(carried, "j"), (followed, "j"), (outer, "i"), (summed, "j")],
    ids=["carried", "followed", "outer", "summed"],
)
def test_what_changes_in_the_loop_bounds_nothing(kernel, axis):
    x = np.arange(ROWS, dtype=np.float32)
    with pytest.raises(ParseError, match=f"missing max_extent: the extent of {axis} is not"):
        kernel.lower(x, np.ones(4, np.int32))


@tile.kernel
def either(x, z, kinds, offsets):
    """Each branch indexes along t, the one inside of the other too."""
    y = hl.zeros_like(x)
    for g in hl.grid(kinds.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            if kinds[g] > 0:
                y[t] = x[t]
            elif kinds[g] < 0:
                y[t] = z[t]
            else:
                y[t] = hl.full([t], 7.0, dtype=hl.float32)
    return y


@tile.kernel
def longest(x, z, kinds):
    """x is read of some groups, z, which is longer, of others."""
    y = hl.zeros([3], dtype=x.dtype)
    for g in hl.grid(3):
        total = 0.0
        for j in hl.grid(kinds[g]):
            if kinds[g] > 2:
                total += z[j]
            else:
                total += x[j]
        y[g] = total
    return y


@tile.kernel
def some(x, kinds):
    y = hl.zeros_like(x)
    for g in hl.grid(3):
        for j in hl.grid(kinds[g]):
            if kinds[g] > 2:
                y[j] = x[j]
            elif kinds[g] > 1:
                y[j] = 2.0
    return y


def test_both_branches_of_an_if_bound_a_range():
    x = np.arange(ROWS, dtype=np.float32)
    kinds, offsets = np.array([1, -1, 0], np.int32), np.array([0, 4, 9, ROWS], np.int32)
    assert extent(either, "t", x, -x, kinds, offsets) == ROWS
    want = np.concatenate([x[:4], -x[4:9], np.full(ROWS - 9, 7)])
    np.testing.assert_array_equal(either(x, -x, kinds, offsets), want)

    few, counts = x[:2], np.array([2, 4, 9], np.int32)
    assert extent(longest, "j", few, x, counts) == ROWS
    np.testing.assert_array_equal(longest(few, x, counts), [1, 6, 36])


def test_one_branch_bounds_nothing():
    with pytest.raises(ParseError, match="missing max_extent: the extent of j is not"):
        some.lower(np.arange(ROWS, dtype=np.float32), np.ones(3, np.int32))


def test_planted_the_least_of_both_branches(monkeypatch):
    """The range may be as long as the longer one: the other is not read then."""
    x, counts = np.arange(ROWS, dtype=np.float32), np.array([2, 4, 9], np.int32)
    monkeypatch.setattr(control, "max", min, raising=False)
    with pytest.raises(RaggedValueError):
        again(longest)(x[:2], x, counts)
