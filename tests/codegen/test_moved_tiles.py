"""A static tile that is moved by the index of a loop: where it lies is known only at run time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu


@tile.kernel
def partial_products(x, w, splits: hl.constexpr = 4):
    """The product of part s of the columns of x with part s of the rows of w."""
    M, K = x.shape
    length = K // splits
    partial = hl.empty([splits, M, w.shape[1]], dtype=hl.float32)
    for s in hl.grid(splits):
        for tm, tn in hl.tile([M, w.shape[1]]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(length):
                acc = hl.dot(x[tm, s * length + tk.index], w[s * length + tk.index, tn], acc=acc)
            partial[s, tm, tn] = acc
    return partial


@pytest.mark.parametrize("form", [{}, {"loop_type": "fori_loop"}], ids=str)
@pytest.mark.parametrize("block", [None, 64, 128])
def test_parts_that_no_block_divides(block: int | None, form: dict[str, str]) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (50, 800)), rng.integers(-4, 5, (800, 96))
    config = tile.Config({} if block is None else {"tk": block}, **form)
    result = partial_products(x.astype(np.float32), w.astype(np.float32), config=config)
    parts = [x[:, s * 200 : s * 200 + 200] @ w[s * 200 : s * 200 + 200] for s in range(4)]
    np.testing.assert_array_equal(result, np.stack(parts))


@tile.kernel
def moved_inside(x):
    """The products over chunks k of the largest of a tile, which the innermost loop moves."""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for tq in hl.tile(x.shape[0]):
        total = hl.full([tq], 1.0, dtype=hl.float32)
        for tk in hl.tile(24, block_size=24):
            for k in hl.grid(4):
                total = total * x[tq, k * 50 + tk.index].amax(1)
        y[tq] = total
    return y


ROWS = np.random.default_rng(1).integers(1, 4, (24, 176)).astype(np.float32)


@pytest.mark.parametrize("loop_type", ["emit_pipeline", "outer_pipeline"])
def test_a_tile_that_the_loop_inside_moves(loop_type: str) -> None:
    config = tile.Config({"tq": 8}, loop_type=loop_type)
    chunks = [ROWS[:, k * 50 : k * 50 + 24].max(1) for k in range(4)]
    np.testing.assert_array_equal(moved_inside(ROWS, config=config), np.prod(chunks, 0))


def test_a_tile_that_a_loop_within_the_step_moves() -> None:
    with pytest.raises(tile.PlanError, match="where a tile of tk begins in x depends on k, whose"):
        moved_inside.source(ROWS, config=tile.Config({"tq": 8}, loop_type="fori_loop"))


@tile.kernel
def sum_of_tiles(x):
    """The sum of a vector by tiles of tiles, which is kept as a row of an array."""
    y = hl.zeros([1], dtype=hl.float32)
    for j in hl.grid(1):
        total = 0.0
        for u in hl.tile(x.shape[0]):
            for part in hl.tile(u.begin, u.end):
                total = total + x[part].sum(0)
        y[j] = total
    return y


def test_a_refusal_has_the_name_of_the_author() -> None:
    config = tile.Config({"u": 8, "part": 8}, loop_type="fori_loop")
    with pytest.raises(tile.PlanError, match="a tile of part begins in x depends on u, whose"):
        sum_of_tiles.source(ROWS[0, :24], config=config)


@tile.kernel
def largest_of_chunks(x):
    """The largest over chunks k of 40 rows, in a loop around the only tile."""
    y = hl.zeros([2, x.shape[2]], dtype=hl.float32)
    for g in hl.grid(2):
        for tm in hl.tile(x.shape[2]):
            most = hl.full([tm], 0.0, dtype=hl.float32)
            for k in hl.grid(2):
                for t in hl.tile(40):
                    most = hl.maximum(most, x[g, k * 40 + t.index, tm].amax(0))
            y[g, tm] = most
    return y


def test_a_whole_tile_that_a_loop_within_the_step_moves() -> None:
    """The default finds another form; random kernel 700092 had an internal error."""
    x = np.random.default_rng(0).standard_normal((5, 80, 3)).astype(np.float32)
    np.testing.assert_array_equal(largest_of_chunks(x), np.maximum(x[:2].max(1), 0))


@tile.kernel
def heads_to_boxes(x, offsets, length: hl.constexpr):
    """out[b, h, l] = x[offsets[b] + l, h]; zero behind the sequence."""
    H, B = x.shape[1], offsets.shape[0] - 1
    out = hl.zeros([B, H, length, x.shape[2]], dtype=x.dtype)
    for b, h in hl.grid([B, H]):
        for t in hl.tile(offsets[b + 1] - offsets[b], max_extent=length):
            out[b, h, t, :] = x[offsets[b] + t.index, h, :]
    return out


OFFSETS = np.array([0, 5, 5, 60, 61], np.int32)


def test_rows_of_heads_that_a_step_has_in_front() -> None:
    x = np.random.default_rng(2).standard_normal((70, 3, 16)).astype(np.float32)
    out = np.asarray(heads_to_boxes(x, OFFSETS, 60))
    for b, (begin, end) in enumerate(itertools.pairwise(OFFSETS)):
        np.testing.assert_array_equal(out[b, :, : end - begin], x[begin:end].swapaxes(0, 1))
        assert not out[b, :, end - begin :].any()


@needs_libtpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_compiler_turns_whole_registers_of_them(dtype: str) -> None:
    """60 rows are the whole dimension of the boxes, and no whole registers of x's."""
    arguments = tile.spec((140, 3, 16), dtype), OFFSETS, 60
    assert compiled(heads_to_boxes, *arguments, target="tpu:v5e").memory.code
