"""Where the elements of views lie, as distances that Triton's addresses are made of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.triton.plan import strides
from tilelang.errors import PlanError

X = np.zeros((6, 4, 8), np.float32)


@tile.kernel
def heads_in_rows(x):
    v = x.permute(1, 0, 2).reshape(x.shape[1], x.shape[0] * x.shape[2])
    y = hl.zeros(v.shape, dtype=x.dtype)
    for t in hl.tile(v.shape[0]):
        y[t, :] = v[t, :]
    return y


@tile.kernel
def cut_rows(x):
    v = x.permute(1, 0, 2).reshape(16, 12)
    y = hl.zeros(v.shape, dtype=x.dtype)
    for t in hl.tile(v.shape[0]):
        y[t, :] = v[t, :]
    return y


def addresses(runs):
    """Where every position of a dimension lies, in order."""
    steps = [np.arange(count) * apart for count, apart in runs]
    return [sum(parts) for parts in itertools.product(*steps)]


def every_address(runs):
    return np.array([sum(parts) for parts in itertools.product(*map(addresses, runs))])


def reshaped():
    """Every order of 2 x 3 x 4 elements as every shape that has as many."""
    shapes = [s for n in (1, 2, 3) for s in itertools.product((1, 2, 3, 4, 6, 8, 12, 24), repeat=n)]
    for order in itertools.permutations(range(3)):
        for shape in shapes:
            if np.prod(shape) == 24:
                yield order, shape


def test_every_reshaped_view():
    """They are where NumPy has them, or are refused because no runs give them."""
    seen = {True: 0, False: 0}
    whole = strides.contiguous((2, 3, 4))
    for order, shape in reshaped():
        there = np.arange(24).reshape(2, 3, 4).transpose(order).reshape(-1)
        found = strides.regrouped([run for dim in order for run in whole[dim]], shape)
        seen[found is not None] += 1
        if found is not None:
            assert [np.prod([count for count, _ in runs]) for runs in found] == list(shape)
            np.testing.assert_array_equal(every_address(found), there)
        else:
            assert order != (0, 1, 2)
    assert seen[True] > seen[False] > 0


def test_rows_that_lie_behind_each_other_are_one():
    assert strides.regrouped([(6, 32), (4, 8), (8, 1)], (6, 32)) == (((6, 32),), ((32, 1),))
    assert strides.regrouped([(4, 8), (6, 32), (8, 1)], (4, 48)) == (((4, 8),), ((6, 32), (8, 1)))


def test_the_text_has_the_distance_of_every_part():
    text = tile.kernel(heads_in_rows.__wrapped__).source(X, target="cuda:sm90")
    assert "t_at[:, None] * 8 + full48[None, :] // 8 * 32 + full48[None, :] % 8" in text


def test_rows_that_are_cut_are_refused():
    with pytest.raises(PlanError) as caught:
        cut_rows.source(X, target="cuda:sm90")
    assert str(caught.value).startswith(
        "v is a reshaped view of a permuted one, which cuts rows into parts of unequal length"
    )
    assert caught.value.loc.text.strip() == "v = x.permute(1, 0, 2).reshape(16, 12)"
    assert caught.value.hint == "reshape before the dimensions are permuted"
