"""Views of arrays that the same loop stores to: what they hold is what was there before it."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

Y = np.arange(32, dtype=np.float32).reshape(4, 8)


@tile.kernel
def read_behind(y):
    z = hl.empty([4, 2, 4], dtype=hl.float32)
    v = y.reshape(4, 2, 4)
    for s in hl.grid(4):
        y[s, :] = y[s, :] * 2
        z[s, :, :] = v[s, :, :]
    return z


@tile.kernel
def counted_behind(n, x):
    """A range that is read by a view of what the loop has just stored."""
    z = hl.zeros([4, 8], dtype=hl.float32)
    v = n.reshape(2, 2)
    for g in hl.grid(4):
        n[g] = 3
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(v[g // 2, g % 2], max_extent=16):
            acc = acc + x[t, :].sum(0)
        z[g, :] = acc
    return z


@tile.kernel
def read_later(y):
    z = hl.empty([4, 8], dtype=hl.float32)
    v = y.T
    for s in hl.tile(4):
        y[s, :] = y[s, :] * 2
    for s in hl.tile(4):
        z[s, :] = v[:, s].T
    return z


def test_a_view_of_what_the_loop_stores_is_refused() -> None:
    """The first was stale, in silence."""
    with pytest.raises(tile.PlanError) as found:
        read_behind(Y.copy())
    assert (
        "v is a view of y, which is stored to in the same loop: TPUs make views between loops, "
        "and what is stored would not be in it"
    ) in str(found.value)
    assert "read y itself, or v in a loop of its own" in str(found.value)
    np.testing.assert_array_equal(read_behind.reference(Y.copy()), 2 * Y.reshape(4, 2, 4))


def test_ranges_are_read_too() -> None:
    """It was stale in silence where only statements were looked at."""
    given = np.array([1, 2, 5, 7], np.int32), np.ones((16, 8), np.float32)
    with pytest.raises(tile.PlanError, match="v is a view of n, which is stored to"):
        counted_behind(given[0].copy(), given[1])
    assert (counted_behind.reference(given[0].copy(), given[1]) == 3).all()


def test_one_in_a_later_loop_is_as_it_is_then() -> None:
    np.testing.assert_array_equal(read_later(Y.copy()), 2 * Y)
