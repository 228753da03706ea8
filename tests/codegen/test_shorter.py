"""Outputs that end before the loop does: the tiles behind their end show their last block again."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again
from tilelang.errors import PlanError
from tilelang.schedule.config import LOOP_TYPES

X = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
ROWS = (3, 20)


@tile.kernel
def head(x, few):
    """The first rows of x, in a loop over all of them."""
    y = hl.full([few.shape[0], x.shape[1]], -1.0, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.store(y, [t, slice(None)], x[t, :] * 2, mask=(t.index < few.shape[0])[:, None])
    return y


@tile.kernel
def asked(x, few, flag):
    """The same, if somebody asks for it: a loop that may run no step."""
    y = hl.full([few.shape[0], x.shape[1]], -1.0, dtype=hl.float32)
    if flag[()] < 1:
        for t in hl.tile(x.shape[0]):
            hl.store(y, [t, slice(None)], x[t, :] * 2, mask=(t.index < few.shape[0])[:, None])
    return y


def given(kernel, rows, flag=0):
    few = np.zeros(rows, np.float32)
    return (X, few) if kernel is head else (X, few, np.array(flag, np.int32))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("kernel", [head, asked], ids=["head", "asked"])
def test_no_tile_behind_the_end_takes_rows_back(kernel, block, rows):
    ran = 0
    for loop_type in LOOP_TYPES:
        config = tile.Config({"t": block}, loop_type=loop_type)
        try:
            kernel.source(*given(kernel, rows), config=config)
        except PlanError as refusal:
            assert refusal.hint
            continue
        ran += 1
        np.testing.assert_array_equal(
            kernel(*given(kernel, rows), config=config), 2 * X[:rows], err_msg=str(config)
        )
    assert ran > 1


@pytest.mark.parametrize("rows", ROWS)
def test_nothing_is_stored_where_no_step_runs(rows):
    np.testing.assert_array_equal(asked(*given(asked, rows, 1)), np.full((rows, 8), -1.0))


def test_tiles_that_share_a_block_are_not_split_over_cores():
    text = head.source(*given(head, 3), config=tile.Config({"t": 8}), target="tpu:v5p")
    assert '"parallel"' not in text
    text = head.source(*given(head, 50), config=tile.Config({"t": 8}), target="tpu:v5p")
    assert '"parallel"' in text


@tile.kernel
def longer_than_its_numbers(x, w):
    """y[i] = x[i] * w[i], where w ends before a tile that is all of x."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        most = 0.0
        for t in hl.tile(x.shape[1]):
            known = hl.load(w, [i, t], mask=t.index < w.shape[1], other=7.0)
            most = hl.maximum(most, known.amax(0))
        for t in hl.tile(x.shape[1]):
            y[i, t] = x[i, t] * most
    return y


def test_a_tile_that_is_longer_than_an_array() -> None:
    """Random kernel 2601111: its block is whole registers there, and not the whole dimension."""
    x, w = X[:, :7].T.copy(), -X[:36, :7].T.copy()
    wanted = x * np.maximum(w.max(1), 7.0)[:, None]
    np.testing.assert_allclose(longer_than_its_numbers(x, w), wanted, rtol=1e-6)


@needs_libtpu
def test_the_compiler_takes_such_a_tile() -> None:
    arguments = tile.spec((7, 50), "float32"), tile.spec((7, 36), "float32")
    assert compiled(longer_than_its_numbers, *arguments, target="tpu:v6e").memory.code


@tile.kernel
def one_short_tile(few, s):
    """A block that the author fixed is more than the loop has, and more than what is stored."""
    y = hl.zeros([few.shape[0]], dtype=hl.float32)
    for g in hl.grid(2):
        for t in hl.tile(6, block_size=16):
            value = hl.full([t], 1.0, dtype=hl.float32) * (t.block_size + t.id + s[g])
            hl.store(y, [t], value, mask=t.index < few.shape[0])
    return y


def test_a_fixed_block_that_covers_a_range_is_one_tile() -> None:
    """TPUs give it whole registers, which was an internal error; found by random kernel 6200252."""
    few, s = np.zeros(5, np.float32), np.array([3, 1], np.float32)
    np.testing.assert_array_equal(again(one_short_tile)(few, s), np.full(5, 17, np.float32))
    found = (
        again(one_short_tile).lower(few, s, target="tpu:v5p").source.load()(few, s, interpret=True)
    )
    np.testing.assert_array_equal(found, np.full(5, 17, np.float32))


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
def test_the_compiler_takes_that_tile(target: str) -> None:
    arguments = tile.spec((5,), "float32"), tile.spec((2,), "float32")
    assert compiled(one_short_tile, *arguments, target=target).memory.code
