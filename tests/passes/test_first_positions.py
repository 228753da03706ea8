"""first_positions: argmax along a ragged tile, and that of integers on TPUs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, stays
from tilelang.codegen.pallas.passes.first_positions import first_positions

OFFSETS = np.array([0, 3, 3, 21, 26], np.int32)
PARTS = [slice(a, b) for a, b in itertools.pairwise(OFFSETS)]
RNG = np.random.default_rng(0)


@tile.kernel
def bests(x, offsets):
    """For each row of a group, how far it is behind the first row that is largest there."""
    at = hl.zeros(x.shape, dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=32):
            at[t, :] = x[t, :].argmax(0)[None, :] + 100 * (t.index - t.begin)[:, None]
    return at


@tile.kernel
def of_pages(x, pages):
    """The same of tiles that are blocks of the array, of which there may be any number."""
    at = hl.zeros(x.shape, dtype=hl.int32)
    for g in hl.grid(pages.shape[0] - 1):
        for t in hl.tile(pages[g] * 32, pages[g + 1] * 32, block_size=32):
            at[t, :] = x[t, :].argmax(0)[None, :] + 100 * (t.index - t.begin)[:, None]
    return at


@tile.kernel
def least(n):
    at = hl.zeros([n.shape[0]], dtype=hl.int32)
    for t in hl.tile(n.shape[0]):
        at[t] = n[t, :].argmin(1)
    return at


def rows(dtype: str) -> np.ndarray:
    """Small numbers, many of which are equal, and some NaN."""
    x = RNG.integers(-3, 3, (26, 20)).astype(dtype)
    if dtype == "float32":
        x[[1, 17, 19], 5] = np.nan
        x[3:21, 6] = -np.inf
    return x


def by_hand(x: np.ndarray) -> np.ndarray:
    """What a tile that holds a whole group says."""
    found = [
        x[p].argmax(0)[None, :] + 100 * np.arange(len(x[p]))[:, None] for p in PARTS if len(x[p])
    ]
    return np.concatenate(found)


def test_the_first_that_reaches_it() -> None:
    ir, _ = parsed(bests, (rows("float32"), OFFSETS))
    becomes(
        ir,
        lambda kernel: first_positions(kernel, integers=False),
        """
        for g in grid(4):
            for t in tile(offsets[g], offsets[g + 1], max_extent=26, block=32):
                at[t, 0:20] = expand_dims(argmax(x[t, 0:20], axis=0), axis=0) + 100 * expand_dims(t.index - t.begin, axis=1)
        """,
        """
        for g in grid(4):
            for t in tile(offsets[g], offsets[g + 1], max_extent=26, block=32):
                at[t, 0:20] = expand_dims(min(where(x[t, 0:20] == max(x[t, 0:20], axis=0, keepdim=True) or isnan(x[t, 0:20]), expand_dims(t.index - t.begin, axis=1), 2147483647), axis=0), axis=0) + 100 * expand_dims(t.index - t.begin, axis=1)
        """,
    )


def test_of_integers_where_they_are_asked_for() -> None:
    ir, _ = parsed(least, (rows("int32"),))
    stays(ir, lambda kernel: first_positions(kernel, integers=False))
    becomes(
        ir,
        lambda kernel: first_positions(kernel, integers=True),
        """
        for t in tile(26):
            at[t] = argmin(n[t, 0:20], axis=1)
        """,
        """
        for t in tile(26):
            at[t] = min(where(n[t, 0:20] == min(n[t, 0:20], axis=1, keepdim=True), arange(20), 2147483647), axis=1)
        """,
    )


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_values(dtype, target) -> None:
    x = rows(dtype)
    np.testing.assert_array_equal(again(bests)(x, OFFSETS, target=target), by_hand(x))
    if dtype == "int32":
        np.testing.assert_array_equal(again(least)(x, target=target), x.argmin(1))


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "uint32"])
def test_they_compile(dtype, target) -> None:
    compiled(of_pages, tile.spec((512, 200), dtype), OFFSETS, target=target)
    compiled(least, tile.spec((512, 200), dtype), target=target)
