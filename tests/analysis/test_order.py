"""Accesses whose order goes by how a loop is cut: refused, unless proved to stay apart."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import ParseError

X = np.arange(1, 41, dtype=np.float32)
S = np.array([3, 0, 2, 0, 0], np.int32)
IDS = np.random.default_rng(0).integers(0, 40, (40, 4)).astype(np.int32)


def read_from_memory(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(5):
        for k in hl.grid(4):
            y[k * 5 + s[k] + t.index] = x[k * 5 + t.index]
    return y


def computed_for_each_lane(x, s, ids):
    y = hl.zeros([30], dtype=hl.float32)
    for t in hl.tile(10):
        for k in hl.grid(2):
            y[k * 10 + 2 * t.index] = x[t.index + k]
    return y


def slots(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        for k in hl.grid(4):
            y[ids[t, k]] = x[t] + k
    return y


def read_in_another(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    z = hl.empty([4, 5], dtype=hl.float32)
    for t in hl.tile(5):
        for k in hl.grid(4):
            y[k * 5 + t.index] = x[k * 5 + t.index]
            z[k, t] = y[k * 5 + s[k] + t.index]
    return y, z


def stored_beside(x, s, ids):
    y = hl.zeros([41], dtype=hl.float32)
    for t in hl.tile(40):
        y[t.index] = x[t]
        y[t.index + 1] = x[t] * 2
    return y


def stored_first(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        y[7] = 3.0
        y[t] = x[t]
    return y


def read_ahead(x, s, ids):
    y = hl.zeros([41], dtype=hl.float32)
    z = hl.empty([40], dtype=hl.float32)
    for t in hl.tile(40):
        y[t.index] = x[t]
        z[t] = y[t.index + 1]
    return y, z


def summed_in_memory(x, s, ids):
    y = hl.zeros([41], dtype=hl.float32)
    for t in hl.tile(40):
        y[t.index + 1] = y[t.index] + x[t]
    return y


def added_through_indices(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        y[ids[t, 0]] = y[ids[t, 0]] + x[t]
    return y


WRONG = (
    read_from_memory, computed_for_each_lane, slots, read_in_another,
    stored_beside, stored_first, read_ahead, summed_in_memory, added_through_indices,
)  # fmt: skip


def one_for_each(x, s, ids):
    """A scatter: a tile stores in the order of its positions."""
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        y[ids[t, 0]] = x[t]
        y[ids[t, 0]] = x[t] + 1
    return y


def own_column(x, s, ids):
    y = hl.zeros([40, 4], dtype=hl.float32)
    for t in hl.tile(40):
        for k in hl.grid(4):
            y[ids[t, k], k] = x[t] + k
    return y


def own_row(x, s, ids):
    y = hl.zeros([40, 9], dtype=hl.float32)
    for t in hl.tile(40):
        for k in hl.grid(4):
            y[t, s[k]] = x[t] + k
    return y


def chunks(x, s, ids):
    y = hl.zeros([20], dtype=hl.float32)
    for t in hl.tile(5):
        for k in hl.grid(4):
            y[k * 5 + t.index] = x[t] + k
            y[k * 5 + t.index] = y[k * 5 + t.index] * 2
    return y


def loop_outside(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for k in hl.grid(4):
        for t in hl.tile(5):
            y[k * 5 + s[k] + t.index] = x[k * 5 + t.index]
    return y


def fixed(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(5, block_size=2):
        for k in hl.grid(4):
            y[k * 5 + s[k] + t.index] = x[k * 5 + t.index]
    return y


def stored_behind(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        y[t] = x[t]
        y[0] = 3.0
    return y


def added(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(5):
        for k in hl.grid(4):
            hl.atomic_add(y, [k * 5 + s[k] + t.index], x[k * 5 + t.index])
    return y


def once_for_every_tile(x, s, ids):
    y = hl.zeros([9], dtype=hl.float32)
    for t in hl.tile(40):
        for k in hl.grid(4):
            y[s[k]] = y[s[k]] + x[t].sum()
    return y


def rows_so_far(x, s, ids):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        for u in hl.tile(t.end):
            y[u] = y[u] + hl.where(u.index[:, None] <= t.index[None, :], x[t][None, :], 0.0).sum(1)
    return y


def one_by_one(x, s, ids):
    y = hl.zeros([41], dtype=hl.float32)
    for t in hl.tile(40):
        for k in hl.grid(t.begin, t.end):
            y[k + 1] = y[k] + x[k]
    return y


def every_other(x, s, ids):
    y = hl.zeros([160], dtype=hl.float32)
    for t in hl.tile(20):
        for k in hl.grid(4):
            place = 2 * t.index + 1
            y[k * 40 + place] = x[t] + k
        y[2 * t.index + 1] = y[2 * t.index + 1] + x[t]
    return y


def stored_in_every_step(x, s, ids):
    y = hl.zeros([20], dtype=hl.float32)
    for t in hl.tile(5):
        for k in hl.grid(4):
            acc = hl.zeros([t], dtype=hl.float32)
            for u in hl.tile(5):
                acc = acc + x[u].sum() * x[t]
                y[k * 5 + t.index] = acc
    return y


TAKEN = (
    one_for_each, own_column, own_row, chunks, loop_outside, fixed, stored_behind, added,
    once_for_every_tile, rows_so_far, one_by_one, every_other,
    stored_in_every_step,
)  # fmt: skip


@pytest.mark.parametrize("function", WRONG, ids=lambda f: f.__name__)
def test_what_goes_by_the_tiles(function):
    kernel = tile.kernel(function)
    for asked in (kernel.reference, lambda *a: kernel.lower(*a, target="cuda:sm90")):
        with pytest.raises(ParseError, match="which of them is first would depend on the block"):
            asked(X, S, IDS)


@pytest.mark.parametrize("function", TAKEN, ids=lambda f: f.__name__)
def test_what_does_not(function):
    kernel = tile.kernel(function)
    axes = kernel.lower(X, S, IDS, target="cuda:sm90").axes
    sizes = ({"t": n, "u": 3} for n in (1, 3, 40))
    made = [
        kernel.reference(X, S, IDS, blocks={n: b for n, b in each.items() if n in axes})
        for each in sizes
    ]
    for other in made[1:]:
        np.testing.assert_allclose(other, made[0], rtol=1e-6)


MESSAGES = {
    read_from_memory: (
        "two positions of t, in different k, may touch the same element of y: which of them is "
        "first would depend on the block of t",
        "write the loop of k around that of t, use hl.atomic_add, or fix the tiles: "
        "hl.tile(..., block_size=...)",
    ),
    stored_beside: (
        "two statements may touch the same element of y at different t: which of them is first "
        "would depend on the block of t",
        "write a loop over t for each of them, or fix the tiles: hl.tile(..., block_size=...)",
    ),
    summed_in_memory: (
        "y is read and then stored to, and two positions of t may touch the same element: which "
        "of them is first would depend on the block of t",
        "store to another array, add with hl.atomic_add, or fix the tiles: "
        "hl.tile(..., block_size=...)",
    ),
}


@pytest.mark.parametrize("function", MESSAGES, ids=lambda f: f.__name__)
def test_the_message(function):
    with pytest.raises(ParseError) as caught:
        tile.kernel(function).source(X, S, IDS)
    assert (caught.value.what, caught.value.hint) == MESSAGES[function]
    assert "    y[" in str(caught.value)


def test_the_fact():
    low = tile.kernel(fixed).lower(X, S, IDS, target="cuda:sm90")
    assert low.facts.orders == ()
