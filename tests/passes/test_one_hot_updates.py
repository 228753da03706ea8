"""one_hot_updates: updates at computed places are sums of whole dimensions, and no others are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, floats, stays
from tilelang.analysis import analyze
from tilelang.codegen.pallas.passes.one_hot_updates import one_hot_updates
from tilelang.codegen.pallas.target import TARGETS
from tilelang.ir import KernelIR
from tilelang.schedule.problem import Problem

OFFSETS = np.array([0, 3, 3, 20, 31], np.int32)
RANGES = tuple(itertools.pairwise(OFFSETS))


def run(ir: KernelIR) -> KernelIR:
    return one_hot_updates(Problem(ir, analyze(ir)), TARGETS["tpu:v5e"]).ir


@tile.kernel
def counts(logits):
    n = hl.zeros([logits.shape[1]], dtype=hl.int32)
    for t in hl.tile(logits.shape[0]):
        s = hl.softmax(logits[t, :])
        hl.atomic_add(n, [s.argmax(1)], 1)
    return n


@tile.kernel
def near(x, centres):
    """The sums of the rows that are nearest to each centre."""
    y = hl.zeros(centres.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        far = ((x[t, None, :] - centres[None, :, :]) ** 2).sum(2)
        hl.atomic_add(y, [far.argmin(1), slice(None)], x[t, :])
    return y


@tile.kernel
def binned(x, offsets, width: hl.constexpr):
    """Rows by the place of their largest number: sums, the largest, the least, and how many."""
    total = hl.zeros([width, x.shape[1]], dtype=hl.float32)
    most = hl.full([width], -3.0e38, dtype=hl.float32)
    least = hl.full([width, x.shape[1]], 100, dtype=hl.int32)
    number = hl.zeros([width], dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            at = x[t, :].argmax(1) - 1
            hl.atomic_add(total, [at, slice(None)], x[t, :])
            hl.atomic_max(most, [at], x[t, :].sum(1))
            hl.atomic_min(least, [at, slice(None)], (x[t, :] > 0.0).to(hl.int32) * g)
            hl.atomic_add(number, [at], 1, mask=x[t, :].amax(1) > 1.0)
    return total, most, least, number


@tile.kernel
def of_groups(x, offsets):
    """A picked dimension between others, of an array of 16 bits."""
    y = hl.zeros([offsets.shape[0] - 1, 8, x.shape[1]], dtype=hl.bfloat16)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            for d in hl.tile(x.shape[1]):
                hl.atomic_add(y, [g, x[t, 0:8].argmax(1), d], x[t, d])
    return y


@tile.kernel
def columns(x):
    """Columns are picked: those of a value whose rows lie in front."""
    y = hl.zeros([x.shape[1], 8], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [slice(None), x[t, :].argmax(1)], x[t, :].T)
    return y


@tile.kernel
def where_told(x, index, flags):
    """Places that memory holds; which rows count is computed of one, or of all of them."""
    y = hl.zeros([8], dtype=hl.float32)
    z = hl.zeros([8], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [index[t] * 2], x[t, 0], mask=flags[t] == 1)
        hl.atomic_add(z, [index[t] * 2], x[t, 0], mask=x[t, :].amax(1) > 0.5)
    return y, z


@tile.kernel
def histogram(x, size: hl.constexpr):
    n = hl.zeros([size], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(n, [(x[t] * 4.0).to(hl.int32)], x[t])
    return n


@tile.kernel
def largest(x):
    y = hl.full([x.shape[1], x.shape[1]], -3.0e38, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_max(y, [x[t, :].argmax(1), slice(None)], x[t, :])
    return y


def test_numbers_are_added_where_their_row_is() -> None:
    becomes(
        parsed(counts, (tile.spec((32, 8), "float32"),))[0],
        run,
        """
        for t in tile(32):
            s: float32[t, 8] = exp(logits[t, 0:8] - max(logits[t, 0:8], axis=1, keepdim=True)) / sum(exp(logits[t, 0:8] - max(logits[t, 0:8], axis=1, keepdim=True)), axis=1, keepdim=True)
            n[rows(argmax(s, axis=1))] = n[rows(argmax(s, axis=1))] + full([t], int32, value=1)
        """,
        """
        for t in tile(32):
            s: float32[t, 8] = exp(logits[t, 0:8] - max(logits[t, 0:8], axis=1, keepdim=True)) / sum(exp(logits[t, 0:8] - max(logits[t, 0:8], axis=1, keepdim=True)), axis=1, keepdim=True)
            n[0:8] = n[0:8] + sum(where(expand_dims(argmax(s, axis=1), axis=1) == expand_dims(arange(int32, start=0, step=1), axis=0), 1, 0), axis=0)
        """,
    )


def test_rows_are_multiplied() -> None:
    becomes(
        parsed(near, (tile.spec((32, 8), "float32"), tile.spec((5, 8), "float32")))[0],
        run,
        """
        for t in tile(32):
            far: float32[t, 5] = sum(pow(expand_dims(x[t, 0:8], axis=1) - expand_dims(centres[0:5, 0:8], axis=0), 2), axis=2)
            y[rows(argmin(far, axis=1)), 0:8] = y[rows(argmin(far, axis=1)), 0:8] + x[t, 0:8]
        """,
        """
        for t in tile(32):
            far: float32[t, 5] = sum(pow(expand_dims(x[t, 0:8], axis=1) - expand_dims(centres[0:5, 0:8], axis=0), 2), axis=2)
            y[0:5, 0:8] = y[0:5, 0:8] + group_sum(expand_dims(argmin(far, axis=1), axis=0) == expand_dims(arange(int32, start=0, step=1), axis=1), x[t, 0:8])
        """,
    )


def test_a_mask_that_is_computed_is_one_of_values() -> None:
    """Where it is read from memory, as the place is, scalar memory says which rows are meant."""
    ints = tile.spec((32,), "int32")
    becomes(
        parsed(where_told, (tile.spec((32, 8), "float32"), ints, ints))[0],
        run,
        """
        for t in tile(32):
            y[rows(index[t] * 2)] = load(y[rows(index[t] * 2)], mask=flags[t] == 1, other=0.0) + x[t, 0] where flags[t] == 1
            z[rows(index[t] * 2)] = load(z[rows(index[t] * 2)], mask=max(x[t, 0:8], axis=1) > 0.5, other=0.0) + x[t, 0] where max(x[t, 0:8], axis=1) > 0.5
        """,
        """
        for t in tile(32):
            y[rows(index[t] * 2)] = load(y[rows(index[t] * 2)], mask=flags[t] == 1, other=0.0) + x[t, 0] where flags[t] == 1
            z[0:8] = z[0:8] + sum(where(expand_dims(index[t] * 2, axis=1) == expand_dims(arange(int32, start=0, step=1), axis=0), expand_dims(where(max(x[t, 0:8], axis=1) > 0.5, x[t, 0], 0.0), axis=1), 0.0), axis=0)
        """,
    )


def test_large_arrays_stay() -> None:
    stays(parsed(histogram, (tile.spec((32,), "float32"), 1 << 22))[0], run)


def by_hand(x: np.ndarray, width: int) -> list[np.ndarray]:
    """What `binned` says, row by row."""
    total = np.zeros((width, x.shape[1]), np.float32)
    most = np.full(width, -3.0e38, np.float32)
    least = np.full((width, x.shape[1]), 100, np.int32)
    number = np.zeros(width, np.int32)
    for g, row in ((g, row) for g, (a, b) in enumerate(RANGES) for row in x[a:b]):
        at = int(row.argmax()) - 1
        if 0 <= at < width:
            total[at] += row
            most[at] = np.maximum(most[at], row.sum())
            least[at] = np.minimum(least[at], (row > 0) * g)
            number[at] += row.max() > 1.0
    return [total, most, least, number]


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
@pytest.mark.parametrize("width", [4, 7])
def test_ranges_places_outside_and_what_is_not_finite(target, width) -> None:
    """Rows before and behind the ranges are NaN; one of a range has an infinity in its row alone,
    and one NaN, which is the largest of its row."""
    x = floats(40, 8)
    x[31:] = np.nan
    x[5, 3], x[9, 2], x[10, 1] = np.inf, np.nan, -np.inf
    found = again(binned)(x, OFFSETS, width, target=target)
    wanted = by_hand(x, width)
    assert np.isnan(wanted[0][1]).any() and np.isfinite(wanted[0][0, [0, 2, 3]]).all()
    for one, right in zip(found, wanted, strict=True):
        assert one.dtype == right.dtype
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_values(target) -> None:
    x, centres = floats(37, 8), floats(5, 8)
    best = x.argmax(1)
    np.testing.assert_array_equal(again(counts)(x, target=target), np.bincount(best, minlength=8))
    wanted = np.zeros((5, 8), np.float32)
    np.add.at(wanted, ((x[:, None] - centres) ** 2).sum(2).argmin(1), x)
    np.testing.assert_allclose(again(near)(x, centres, target=target), wanted, rtol=1e-5, atol=1e-5)
    wanted = np.zeros((8, 8), np.float32)
    np.add.at(wanted, best, x)
    np.testing.assert_allclose(again(columns)(x, target=target), wanted.T, rtol=1e-5, atol=1e-5)
    wanted = np.zeros((4, 8, 8), np.float32)
    for g, (a, b) in enumerate(RANGES):
        np.add.at(wanted[g], best[a:b], x[a:b])
    found = again(of_groups)(x, OFFSETS, target=target)
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_the_largest(target) -> None:
    """Of numbers that are all below 0, and of rows that nothing picks."""
    x = floats(37, 8) - 10
    x[:, 5] = -20
    wanted = np.full((8, 8), -3.0e38, np.float32)
    np.maximum.at(wanted, x.argmax(1), x)
    np.testing.assert_array_equal(again(largest)(x, target=target), wanted)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_masks_and_bins(target) -> None:
    x, index = floats(37, 8), np.arange(37, dtype=np.int32) % 5
    flags = (np.arange(37) % 3 == 0).astype(np.int32)
    found = again(where_told)(x, index, flags, target=target)
    for one, kept in zip(found, (flags == 1, x.max(1) > 0.5), strict=True):
        kept &= index < 4
        wanted = np.bincount(index[kept] * 2, x[kept, 0], 8)
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)
    bins = np.abs(x[:, 0]) * 3
    place = (bins * 4).astype(np.int32)
    wanted = np.bincount(place[place < 9], bins[place < 9], 9)
    np.testing.assert_allclose(again(histogram)(bins, 9, target=target), wanted, rtol=1e-5)


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
def test_they_compile(target) -> None:
    x = tile.spec((4096, 128), "float32")
    compiled(counts, x, target=target)
    compiled(near, x, tile.spec((64, 128), "float32"), target=target)
    compiled(binned, tile.spec((31, 8), "float32"), OFFSETS, 7, target=target)
    compiled(of_groups, tile.spec((31, 8), "float32"), OFFSETS, target=target)
    compiled(columns, tile.spec((512, 8), "float32"), target=target)
