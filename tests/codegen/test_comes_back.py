"""Ranges that may overlap, as rows of one step table: blocks that were left are read back.

Results are those of the loops in their order, the last range has the last word.  They run in JAX's
interpreter and in Pallas's TPU interpreter, where copies that race are found.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.interpreter import races_found
from tilelang.codegen.pallas.plan import launch
from tilelang.codegen.pallas.plan.steps import comes_back
from tilelang.ir import integers

BF16 = ml_dtypes.bfloat16
STRICT = flowing.strict()


@tile.kernel
def selected(x, begins, starts, lengths, T: hl.constexpr):
    """Rows of x from begins[g] on, at starts[g] of the result."""
    y = hl.zeros([T, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(lengths.shape[0]):
        for t in hl.tile(starts[g], starts[g] + lengths[g], max_extent=64):
            y[t, :] = x[begins[g] - starts[g] + t.index, :]
    return y


@tile.kernel
def added(frames, starts, T: hl.constexpr):
    """Frames that overlap are added up, as in the inverse of a windowed transform."""
    G, L, F = frames.shape
    y = hl.zeros([T, F], dtype=hl.float32)
    for g in hl.grid(G):
        for t in hl.tile(starts[g], starts[g] + L, max_extent=L):
            y[t, :] = y[t, :] + frames[g, t.index - starts[g], :].to(hl.float32)
    return y


@tile.kernel
def products(x, w, starts, lengths):
    """Groups of rows by their own weights; a row of several has the last one's."""
    M, K = x.shape
    G, _, N = w.shape
    y = hl.full([M, N], 7.0, dtype=x.dtype)
    for g in hl.grid(G):
        for tm, tn in hl.tile([starts[g], 0], [starts[g] + lengths[g], N], max_extent=[M, N]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(K):
                acc = hl.dot(x[tm, tk], w[g, tk, tn], acc=acc)
            y[tm, tn] = acc.to(y.dtype)
    return y


@tile.kernel
def several(x, starts, lengths):
    """Two results, one of them with nothing in rows of no range; rows are matrices."""
    y, z = hl.zeros_like(x), hl.empty(x.shape, dtype=hl.float32)
    for g in hl.grid(lengths.shape[0]):
        for t in hl.tile(starts[g], starts[g] + lengths[g], max_extent=x.shape[0]):
            y[t, :, :] = x[t, :, :] * (g + 1)
            z[t, :, :] = x[t, :, :].to(hl.float32) - g
    return y, z


@contextmanager
def running(kernel, strict, **blocks):
    """The kernel as rows of one table, in one of the interpreters; it is compiled once."""
    options = {"interpret": STRICT} if strict else {}
    call = tile.kernel(inspect.unwrap(kernel), checks=False, **options)
    config = tile.Config(blocks=blocks, loop_type="outer_pipeline")
    try:
        yield functools.partial(call, config=config)
        assert not strict or not races_found()
    finally:  # memory and races are those of the whole process
        if strict:
            pltpu.reset_tpu_interpret_mode_state()


def drawn(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


# A block of 16 comes again after one other, after many, at once, first and last, and never.
LAYOUTS = (
    ([0, 18, 2, 20, 0, 0], [16, 10, 9, 3, 0, 0]),
    ([0, 0, 30, 5, 66, 60], [64, 1, 33, 20, 0, 9]),
    ([40, 30, 20, 10, 0, 0], [10, 10, 10, 10, 10, 1]),
    ([0, 16, 0, 16, 0, 16], [16, 16, 1, 16, 3, 2]),
    ([3, 20, 44, 44, 44, 50], [2, 7, 6, 0, 0, 3]),
    ([70, 80, 3, 0, 0, 1], [9, 1, 0, 0, 0, 0]),
    ([60, 0, 65, 0, 0, 62], [6, 10, 1, 0, 0, 2]),
    ([-5, 60, -20, 0, 50, 10], [9, 64, 3, 2, 0, 20]),
)
STRICTLY = pytest.mark.parametrize("strict", [False, True], ids=["usual", "strict"])


def inside(start, length, rows):
    return max(start, 0), max(min(start + length, rows), max(start, 0))


@pytest.mark.parametrize(
    ("rows", "block", "strict"),
    [(66, 16, False), (66, 16, True), (64, 16, False), (66, 7, False)],
)
def test_the_last_range_has_the_last_word(rows, block, strict):
    x, begins = drawn(80, 20), 3 * np.arange(6, dtype=np.int32)
    with running(selected, strict, t=block) as call:
        for starts, lengths in np.array(LAYOUTS, np.int32):
            exact = np.zeros((rows, 20))
            for begin, start, length in zip(begins, starts, lengths, strict=True):
                low, high = inside(start, length, rows)
                there = begin + np.arange(low, high) - start
                exact[low:high] = np.where((there < 80)[:, None], x[np.minimum(there, 79)], 0)
            found = call(x, begins, starts, lengths, rows)
            np.testing.assert_array_equal(np.asarray(found), exact)


@STRICTLY
def test_frames_are_added(strict):
    frames, starts = drawn(5, 24, 20, dtype=BF16), np.array([0, 12, 9, 40, 1], np.int32)
    exact = np.zeros((70, 20))
    for frame, start in zip(frames, starts, strict=True):
        exact[start : start + 24] += frame.astype(np.float64)
    with running(added, strict, t=16) as call:
        np.testing.assert_array_equal(np.asarray(call(frames, starts, 70)), exact)


@STRICTLY
def test_loops_inside_of_a_tile(strict):
    """Blocks of columns are a dimension of their own, and the table goes through each anew."""
    x, w = drawn(66, 32), drawn(6, 32, 256, seed=1)
    with running(products, strict, tm=16, tn=128, tk=16) as call:
        for starts, lengths in np.array(LAYOUTS[:3], np.int32):
            exact = np.full((66, 256), 7.0)
            for g, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                low, high = inside(start, length, 66)
                exact[low:high] = x[low:high].astype(np.float64) @ w[g]
            np.testing.assert_array_equal(np.asarray(call(x, w, starts, lengths)), exact)


@STRICTLY
def test_several_results(strict):
    starts, lengths = np.array(LAYOUTS[1], np.int32)
    x = drawn(66, 3, 20)
    first, second, stored = np.zeros_like(x), np.zeros_like(x), np.zeros(66, bool)
    for g, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        here = slice(*inside(start, length, 66))
        first[here], second[here], stored[here] = x[here] * (g + 1), x[here] - g, True
    with running(several, strict, t=16) as call:
        y, z = call(x, starts, lengths)
    np.testing.assert_array_equal(np.asarray(y), first)
    np.testing.assert_array_equal(np.asarray(z)[stored], second[stored])


# ---------------------------------------------------------------- which kernels, and planted bugs

X, NUMBERS = tile.spec((65536, 512), "bfloat16"), tile.spec((256,), "int32")
CALL = X, NUMBERS, NUMBERS, NUMBERS


def test_it_is_the_default_of_ranges_that_may_overlap():
    text = selected.source(*CALL, 65536, target="tpu:v6e")
    assert text.count("pltpu.emit_pipeline") == 1 and "y_in" not in text
    assert "pltpu.sync_copy(y.at[pl.ds(" in text
    told = selected.explain(*CALL, 65536, target="tpu:v6e")
    assert "first visit: fill, read back where t goes back" in told


def test_ranges_of_one_sorted_tensor_never_go_back():
    @tile.kernel
    def sorted_ones(x, offsets):
        y = hl.zeros_like(x)
        for g in hl.grid(offsets.shape[0] - 1):
            for t in hl.tile(offsets[g], offsets[g + 1]):
                y[t, :] = x[t, :] * 2
        return y

    assert "sync_copy" not in sorted_ones.source(X, NUMBERS, target="tpu:v6e")


def test_ranges_that_are_too_long_fill_no_more_than_the_table():
    """Nobody checked them: a range has as many tiles as it may, and those behind it are right."""
    starts, lengths = np.array([40, 0, 112, 2], np.int32), np.array([70, 300, 9, 3], np.int32)
    x, begins = drawn(480, 20), np.array([0, 0, 112, 2], np.int32)
    with running(selected, True, t=16) as call:
        found = np.asarray(call(x, begins, starts, lengths, 400))
    np.testing.assert_array_equal(found[112:121], x[112:121])
    np.testing.assert_array_equal(found[2:5], x[2:5])


def without(window, order):
    return ()


def one_less(axis):
    name, below = comes_back.noted(axis)
    return name, integers.sub(below, integers.const(1))


def only_whole_blocks(window, order):
    return comes_back.returns(window, order)[:1]


def of_the_block_before(window, order):
    return tuple(replace(b, rows=8) for b in comes_back.returns(window, order))


BUGS = (
    ("a block that was left is filled anew", "returns", without),
    ("the last tile is taken for a new one", "seen_of", one_less),
    ("what is left of the last block is lost", "returns", only_whole_blocks),
    ("half of a block comes back", "returns", of_the_block_before),
)


@pytest.mark.parametrize(("what", "name", "wrong"), BUGS, ids=[b[0] for b in BUGS])
def test_a_planted_bug_is_caught(what, name, wrong, monkeypatch):
    monkeypatch.setattr(launch, name, wrong)
    with pytest.raises(AssertionError):
        test_the_last_range_has_the_last_word(66, 16, False)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e", "7x"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
def test_every_generation_compiles_it(chip, dtype):
    """The last block has 42 of 64 rows, which are no whole register tiles."""
    numbers, config = tile.spec((64,), "int32"), tile.Config({"t": 64})
    arguments = tile.spec((4096, 130), dtype), numbers, numbers, numbers, 4010
    asked = {"target": f"tpu:{chip}", "config": config}
    assert "sync_copy" in selected.source(*arguments, **asked)
    assert compiled(selected, *arguments, **asked)
