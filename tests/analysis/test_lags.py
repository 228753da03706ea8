"""Values that are what another was one tile earlier: refused, where they are nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import ParseError

X = np.arange(120, dtype=np.float32).reshape(40, 3)


def carried(x):
    y = hl.empty([2, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        before = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            before = acc * 2
            acc = acc + x[tm, :].sum(0)
        y[g, :] = before
        y[g + 1, :] = acc
    return y


def stored_before(x):
    y = hl.zeros([2, x.shape[1]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        left = y[1, :]
        y[0, :] = left
        y[1, :] = y[1, :] + x[tm, :].sum(0)
    return y


def stored_after(x):
    y = hl.zeros([2, x.shape[1]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[1, :] = y[1, :] + x[tm, :].sum(0)
        y[0, :] = y[1, :]
    return y


def stored_around(x):
    y = hl.zeros([2, x.shape[1]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[1, :] = y[1, :] + x[tm, :].sum(0)
        y[0, :] = y[1, :]
        y[1, :] = hl.maximum(y[1, :], -1e30)
    return y


def carry_stored_first(x):
    y = hl.zeros([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            y[g, :] = acc
            acc = acc + x[tm, :].sum(0)
    return y


def carry_stored_last(x):
    y = hl.zeros([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            acc = acc + x[tm, :].sum(0)
            y[g, :] = acc
    return y


def said_twice(x):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    z = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        total = hl.zeros([tn], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            total = acc + x[tm, tn].sum(0)
            acc = acc + x[tm, tn].sum(0)
        y[tn] = total
        z[tn] = acc
    return y, z


def by_loops_inside(x):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    z = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        total = hl.zeros([tn], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            part = hl.zeros([tn], dtype=hl.float32)
            for _k in hl.grid(2):
                half = x[tm, tn].sum(0) * 0.5
                part = part + half
            total = acc + part
            acc = acc + part
        y[tn] = total
        z[tn] = acc
    return y, z


def up_to_the_tile(x):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    z = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        total = hl.zeros([tn], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            part = hl.zeros([tn], dtype=hl.float32)
            for k in hl.grid(tm.begin, tm.end):
                part = part + x[k, tn]
            total = acc + part
            acc = acc + part
        y[tn] = total
        z[tn] = acc
    return y, z


def shared_often(x):
    y = hl.zeros([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            v = x[tm, :].sum(0)
            for _i in hl.static_range(60):  # 2 ** 60 ways to the sum
                v = (v + v) * 0.5
            acc = acc + v
        y[g, :] = acc
    return y


def other_element(x):
    y = hl.full([2, x.shape[1]], 2.0, dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[0, :] = y[1, :] * x[tm, :].sum(0)
    return y


def fixed(x):
    y = hl.zeros([2, x.shape[1]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0], block_size=8):
        y[0, :] = y[1, :]
        y[1, :] = y[1, :] + x[tm, :].sum(0)
    return y


SUM = X.sum(0)
TAKEN = {
    stored_after: [SUM, SUM],
    stored_around: [SUM, SUM],
    carry_stored_last: [SUM],
    said_twice: [SUM, SUM],
    by_loops_inside: [SUM, SUM],
    up_to_the_tile: [SUM, SUM],
    shared_often: [SUM],
    fixed: [X[:32].sum(0), SUM],
}


def places_changed(x):
    y = hl.empty([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        other = hl.full([x.shape[1]], 2.0, dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            for _ in hl.grid(33):  # more than are run through in numbers
                acc, other = other, acc + x[tm, :].sum(0)
        y[g, :] = acc
    return y


def before_the_last(x):
    y = hl.empty([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        before = hl.zeros([x.shape[1]], dtype=hl.float32)
        most = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            for k in hl.grid(2):
                before = most
                most = hl.maximum(most, x[tm, :].amax(0) * k)
        y[g, :] = before
    return y


def of_the_last(x):
    y = hl.empty([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        state = (hl.zeros([x.shape[1]], dtype=hl.float32), 0)
        for tm in hl.tile(x.shape[0]):
            state = (x[tm, :].sum(0), 1)
        y[g, :] = state[0]
    return y


def first_of_all(x):
    """Most tiles leave what was there, and the end of the last one is that of the range."""
    y = hl.empty([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        first = hl.zeros([x.shape[1]], dtype=hl.float32)
        end = 0
        for tm in hl.tile(x.shape[0]):
            if tm.begin == 0:
                first = hl.where(tm.index[:, None] == 0, x[tm, :], 0.0).sum(0)
            end = tm.end
        y[g, :] = first + end
    return y


def places_changed_within(x):
    """A tile begins anew: how often it does so is the author's."""
    y = hl.empty(x.shape, dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        acc = hl.zeros([tm, x.shape[1]], dtype=hl.float32)
        other = hl.full([tm, x.shape[1]], 2.0, dtype=hl.float32)
        for _ in hl.grid(3):
            acc, other = other, acc + x[tm, :]
        y[tm, :] = acc
    return y


def running_maximum(x):
    """What is folded again and again stays a fold: a maximum, and a sum scaled to it."""
    y = hl.empty([1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(1):
        most = hl.full([x.shape[1]], -1.0, dtype=hl.float32)
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            for _ in hl.grid(2):
                new = hl.maximum(most, x[tm, :].amax(0))
                total = total * hl.exp(most - new) + hl.exp(x[tm, :] - new[None, :]).sum(0)
                most = new
        y[g, :] = total
    return y


TAKEN |= {
    places_changed_within: X + 2.0,
    first_of_all: X[:1] + 40,
    running_maximum: 2 * np.exp(X - X.max(0)).sum(0, keepdims=True),
}


@pytest.mark.parametrize(
    "function",
    [carried, stored_before, carry_stored_first, places_changed, before_the_last, of_the_last],
)
def test_what_goes_by_the_tile_before(function):
    with pytest.raises(ParseError, match="the result would depend on the block of tm"):
        tile.kernel(function).source(X)


@pytest.mark.parametrize("function", TAKEN, ids=lambda f: f.__name__)
def test_what_does_not(function):
    kernel = tile.kernel(function)
    for config in (
        (None,) if function is fixed else (tile.Config({"tm": 8}), tile.Config({"tm": 40}))
    ):
        np.testing.assert_allclose(kernel(X, config=config), TAKEN[function], rtol=1e-6)


def test_another_element_of_the_array_is_another_array():
    with pytest.raises(ParseError, match="every tile of tm stores to the same elements") as caught:
        tile.kernel(other_element).source(X)
    assert caught.value.hint == "carry the value over the loop, or use hl.atomic_add(y, ...)"


def test_the_message():
    with pytest.raises(ParseError) as caught:
        tile.kernel(stored_before).source(X)
    assert caught.value.what == (
        "y[0, 0:3] is what y[1, 0:3] was one tile of tm earlier: the result would depend on the "
        "block of tm"
    )
    assert "y[0, :] = left" in str(caught.value)
    assert caught.value.hint == (
        "take what y[1, 0:3] is after the loop of tm, or fix the tiles: "
        "hl.tile(..., block_size=...)"
    )
