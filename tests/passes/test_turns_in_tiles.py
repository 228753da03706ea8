"""turns_in_tiles: a loop over rows becomes one over tiles of them, and in each over its rows."""

from __future__ import annotations

from typing import Any

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes
from tilelang.codegen.pallas.passes.turns_in_tiles import turns_in_tiles
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused
from tilelang.schedule.rows import rows_of_tiles

X, OFFSETS = tile.spec((40, 16), "float32"), tile.spec((7,), "int32")
BEFORE = """
for b in grid(6):
    h: float32[16] = full([16], float32, value=0.0)
    for t in grid(offsets[b], offsets[b + 1], max_extent=40) carrying h_1 = h:
        h_2: float32[16] = x[t, 0:16] - h_1
        y[t, 0:16] = h_2
        next h_1 = h_2
    after h_3 = h_1
"""
AFTER = """
for b in grid(6):
    h: float32[16] = full([16], float32, value=0.0)
    for t in tile(offsets[b], offsets[b + 1], max_extent=40, block=8) carrying h_4 = h:
        for t_row in grid(t.begin, t.end, max_extent=40) carrying h_1 = h_4:
            h_2: float32[16] = x[t_row, 0:16] - h_1
            y[t_row, 0:16] = h_2
            next h_1 = h_2
        after h_5 = h_1
        next h_4 = h_5
    after h_3 = h_4
"""


@tile.kernel
def rows(x, offsets):
    y = hl.empty(x.shape, dtype=x.dtype)
    for b in hl.grid(offsets.shape[0] - 1):
        h = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.grid(offsets[b], offsets[b + 1]):
            h = x[t, :] - h
            y[t, :] = h
    return y


@tile.kernel
def tiles(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tt in hl.tile(x.shape[0]):
        for t in hl.grid(tt.begin, tt.end):
            h = x[t, :] - h
            y[t, :] = h
    return y


def two_rows(a: Any, b: Any) -> Any:
    """A kernel that stores at t + a, and reads at t + b, of a tile."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros([x.shape[0] + 8, x.shape[1]], dtype=x.dtype)
        h = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tt in hl.tile(x.shape[0] - 8):
            for t in hl.grid(tt.begin, tt.end):
                h = x[t + b, :] - h
                y[t + a, :] = h
        return y

    return kernel


def problem_of(kernel: tile.Kernel, *given: Any) -> Problem:
    low = kernel.lower(*given, target="tpu:v6e")
    return Problem(low.ir, low.facts)


def test_a_loop_over_rows_has_tiles_of_them():
    problem = problem_of(rows, X, OFFSETS)
    becomes(
        problem.ir, lambda ir: turns_in_tiles(Problem(ir, problem.facts), "t", 8).ir, BEFORE, AFTER
    )


def test_rows_of_a_tile_have_no_tiles_of_their_own():
    problem = problem_of(tiles, X)
    assert set(rows_of_tiles(problem.ir)) == {"t"}
    with pytest.raises(Refused) as info:
        turns_in_tiles(problem, "t", 8)
    assert "t cannot have a block: it goes through the rows of a tile already" in str(info.value)


def test_rows_lie_where_tiles_are_cut():
    """Of a tile that is stored at another place than what is read, one of the two is in no block."""
    assert set(rows_of_tiles(problem_of(two_rows(0, 0), X).ir)) == {"t"}
    assert set(rows_of_tiles(problem_of(two_rows(1, 1), X).ir)) == {"t"}
    assert not rows_of_tiles(problem_of(two_rows(0, 1), X).ir)
    assert not rows_of_tiles(problem_of(two_rows(1, 0), X).ir)


def test_a_loop_that_looks_up_its_rows_has_none():
    @tile.kernel
    def picked(x, ids):
        y = hl.empty([ids.shape[0], x.shape[1]], dtype=x.dtype)
        h = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.grid(ids.shape[0]):
            h = x[ids[t], :] - h
            y[t, :] = h
        return y

    problem = problem_of(picked, X, OFFSETS)
    with pytest.raises(Refused) as info:
        turns_in_tiles(problem, "t", 8)
    assert "t cannot have a block: it indexes arrays in another way too" in str(info.value)
