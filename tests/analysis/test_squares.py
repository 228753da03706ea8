"""A tile that is the position in two dimensions of a store: the blocks would say which pairs."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.fuzzing.repeated import repeated
from tests.fuzzing.trial import try_kernel
from tilelang.analysis import stores
from tilelang.analysis.mistakes import FIXED
from tilelang.ir import TensorSpec

X, V = TensorSpec((6, 8), "float32"), TensorSpec((6,), "float32")


def twice_along(x):
    y = hl.zeros([6, 6], dtype=x.dtype)
    for t in hl.tile(6):
        y[t, t] = x[t, 0]
    return y


def picked_and_own(x, v):
    y = hl.zeros([8, 6], dtype=x.dtype)
    for t in hl.tile(6):
        hl.store(y, [v[t].to(hl.int32), t.index], (x[t, 0] + 1.0)[:, None], mask=t.index < 5)
    return y


def updated_twice(x, v):
    y = hl.zeros([6, 8], dtype=x.dtype)
    for t in hl.tile(6):
        one = hl.full([t], 1.0, dtype=x.dtype)
        hl.atomic_add(y, [t, v[t].to(hl.int32)], one)
    return y


TWICE = (
    (twice_along, (X,), "y[t, t] = x[t, 0]"),
    (picked_and_own, (X, V), "hl.store(y, [v[t].to(hl.int32), t.index], (x[t, 0] + 1.0)[:, None], "
     "mask=t.index < 5)"),
    (updated_twice, (X, V), "hl.atomic_add(y, [t, v[t].to(hl.int32)], one)"),
)  # fmt: skip


@pytest.mark.parametrize(("fn", "specs", "line"), TWICE, ids=lambda a: getattr(a, "__name__", ""))
def test_one_position_in_two_dimensions_is_refused(fn, specs, line):
    """NumPy means one place for each: here a tile has every two of its positions."""
    with pytest.raises(tile.ParseError) as caught:
        tile.kernel(fn).reference(*(np.zeros(s.shape, s.dtype) for s in specs))
    found = caught.value
    assert found.loc.text[found.loc.col : found.loc.end_col] == line
    assert (found.what, found.hint) == (
        "t is the position in two dimensions of y, and the value knows one: which pairs it is "
        "stored at would depend on the block of t",
        "for one place each, make both dimensions one, store at row * columns + column and return "
        f"the reshape; or say which places in a mask, or fix the tiles: {FIXED}",
    )


def on_the_diagonal(x):
    y = hl.zeros([6, 6], dtype=x.dtype)
    for t in hl.tile(6):
        y[t, t] = hl.where(t.index[:, None] == t.index[None, :], x[t, 0][:, None], 0.0)
    return y


def only_on_the_diagonal(x):
    y = hl.zeros([6, 6], dtype=x.dtype)
    for t in hl.tile(6):
        hl.store(y, [t, t], x[t, 0], mask=t.index[:, None] == t.index[None, :])
    return y


def as_one_dimension(x):
    y = hl.zeros([36], dtype=x.dtype)
    for t in hl.tile(6):
        y[t.index * 6 + t.index] = x[t, 0]
    return y.reshape(6, 6)


@pytest.mark.parametrize("fn", [on_the_diagonal, only_on_the_diagonal, as_one_dimension])
def test_the_diagonal_is_the_same_whatever_the_blocks(fn):
    x = np.arange(1, 49, dtype=np.float32).reshape(6, 8)
    for block in (1, 4, 8):
        found = tile.kernel(fn).reference(x, blocks={"t": block})
        np.testing.assert_array_equal(found, np.diag(x[:, 0]))


def of_a_fixed_tile(x):
    y = hl.zeros([6, 6], dtype=x.dtype)
    for t in hl.tile(6, block_size=4):
        y[t, t] = 1.0
    return y


def test_of_tiles_that_are_fixed_the_author_knows_what_they_store():
    x = np.ones((6, 8), np.float32)
    wanted = np.kron(np.eye(2), np.ones((4, 4)))[:6, :6]
    np.testing.assert_array_equal(tile.kernel(of_a_fixed_tile).reference(x), wanted)


def test_random_kernels_notice_what_is_accepted(monkeypatch):
    program = repeated(random.Random(9))  # y1[index1[t], t] = x1[t]
    assert try_kernel(program, None, (0,)).kind == "refused"
    monkeypatch.setattr(stores, "_squares", lambda *_: ())
    assert try_kernel(program, None, (0,)).kind == "accepted"
