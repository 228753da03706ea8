"""Numbers of tiles as positions: scale[t.id] of too few blocks is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.pallas.plan import blocks
from tilelang.errors import ParseError, PlanError, RaggedValueError

X, FEW = np.ones(40, np.float32), np.arange(1, 4, dtype=np.float32)


@tile.kernel
def scaled(x, scale):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40, block_size=8):
        y[t] = x[t] * scale[t.id]
    return y


@tile.kernel
def scaled_if(x, scale, s):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40, block_size=8):
        if s[0] < 1:
            y[t] = x[t] * scale[t.id]
    return y


@tile.kernel
def parts_if(x, s):
    y = hl.zeros([3], dtype=hl.float32)
    if s[0] < 1:
        for t in hl.tile(40, block_size=8):
            y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def of_groups(x, scale, offsets):
    """Tiles of each group, counted from its begin."""
    y = hl.zeros([40], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=40, block_size=8):
            hl.atomic_add(y, [t], x[t] * scale[g, t.id])
    return y


def test_where_it_is_certain_the_line_is_refused() -> None:
    with pytest.raises(ParseError, match=r"scale has length 3, t\.id reaches 4"):
        scaled(X, FEW)
    np.testing.assert_array_equal(scaled(X, np.arange(5, dtype=np.float32)), np.arange(40) // 8)


@pytest.mark.parametrize("args", [(scaled_if, X, FEW), (parts_if, X)], ids=["load", "store"])
def test_behind_a_condition_a_call_is_refused(args) -> None:
    kernel, *arrays = args
    for run in (kernel, kernel.reference):
        with pytest.raises(RaggedValueError, match=r"24 // 8 = 3 is too large"):
            run(*arrays, np.zeros(1, np.int32))
        run(*arrays, np.ones(1, np.int32))


def test_of_groups_the_longest_says_it() -> None:
    scale = np.ones((2, 3), np.float32)
    right = (np.arange(40) < 24) * 1.0 + (np.arange(40) < 10)
    np.testing.assert_array_equal(of_groups(X, scale, np.array([0, 24, 34])), right)
    with pytest.raises(RaggedValueError, match="scale"):
        of_groups(X, scale, np.array([0, 25, 35]))


# ---------------------------------------------------------------- blocks that the plan chooses

LONG = np.ones(640, np.float32)


@tile.kernel
def sums(x):
    y = hl.zeros([2], dtype=hl.float32)
    for t in hl.tile(640):
        y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def sums_of_two(x):
    y = hl.zeros([2], dtype=hl.float32)
    for t in hl.tile(640):
        if t.id < 2:
            y[t.id] = x[t].sum(0)
    return y


def of(kernel, **blocks):
    return tile.kernel(kernel.__wrapped__, config=tile.Config(blocks))


@pytest.mark.parametrize("target", ["cpu", "tpu:v6e", "cuda:sm90"])
def test_more_tiles_than_the_array_has_room_for_are_refused(target) -> None:
    wrong = "y has length 2, where t.id is a position, and blocks of 128 make 5 tiles of t"
    with pytest.raises(PlanError, match=wrong) as caught:
        of(sums, t=128).source(LONG, target=target)
    assert caught.value.hint == "blocks of t are 320 at least, or that has to be longer"
    assert "y[t.id] = x[t].sum(0)" in str(caught.value)


def test_as_many_tiles_as_there_is_room_for_are_taken() -> None:
    np.testing.assert_array_equal(sums(LONG), [640, 0])
    np.testing.assert_array_equal(of(sums, t=384)(LONG), [384, 256])
    np.testing.assert_array_equal(of(sums, t=320)(LONG), [320, 320])
    np.testing.assert_array_equal(of(sums_of_two, t=128)(LONG), [128, 128])


def test_planted_tiles_that_nobody_counts(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "check_numbers", lambda facts, found: None)
    with pytest.raises(pytest.fail.Exception):
        test_more_tiles_than_the_array_has_room_for_are_refused("cpu")
