"""one_hot_stores: stores and updates at computed places are of whole dimensions, and no others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, floats, stays
from tilelang.codegen.pallas.passes.one_hot_stores import one_hot_stores
from tilelang.codegen.pallas.target import TARGETS
from tilelang.ir import KernelIR

OFFSETS = np.array([0, 3, 3, 20, 31], np.int32)
RANGES = tuple(itertools.pairwise(OFFSETS))


def run(ir: KernelIR) -> KernelIR:
    return one_hot_stores(ir, TARGETS["tpu:v5e"])


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
def last(x, v, offsets, size: hl.constexpr):
    """The last row of a range that has its largest number there, and which one that is."""
    y = hl.full([size, v.shape[1]], 7, dtype=v.dtype)
    number = hl.full([size], -7, dtype=hl.int32)
    kept = hl.full([v.shape[1], size], 7, dtype=v.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            at = x[t, :].argmax(1) - 1
            y[at, :] = v[t, :]
            number[at] = t.index
            hl.store(kept, [slice(None), at], v[t, :].T, mask=(x[t, :].amax(1) > 1.5)[None, :])
    return y, number, kept


@tile.kernel
def placed(x, size: hl.constexpr):
    """Single places: rows, one by one; two dimensions; parts of a row; in a range of rows."""
    row = hl.full([size, x.shape[1]], 7.0, dtype=hl.float32)
    pair = hl.full([size, 4], 7, dtype=hl.int32)
    part = hl.full([size, x.shape[1]], 7.0, dtype=hl.float32)
    most = hl.full([size], -9.0, dtype=hl.float32)
    for g in hl.grid(x.shape[0]):
        at = x[g, :].argmax(0) - 1
        row[at, :] = x[g, :]
        if x[g, 0] > 0.0:
            pair[at, x[g, 0:4].argmin(0)] = g
        for d in hl.tile(x.shape[1]):
            hl.store(part, [at, d], x[g, d], mask=x[g, d] > 0.0)
        hl.atomic_max(most, [at], x[g, 1])
    return row, pair, part, most


@tile.kernel
def columns_of(x, index, width: hl.constexpr):
    """Columns that memory says: the last one of each stays; or their sums."""
    y = hl.full([x.shape[0], width], 7.0, dtype=hl.float32)
    z = hl.zeros([x.shape[0], width], dtype=hl.float32)
    for r, t in hl.tile(x.shape):
        y[r, index[t]] = x[r, t]
        hl.atomic_add(z, [r, index[t]], x[r, t])
    return y, z


@tile.kernel
def compacted(x):
    """The rows whose sum is positive, one after the other, and how many there are."""
    y = hl.full(x.shape, 7.0, dtype=hl.float32)
    count = hl.zeros([1], dtype=hl.int32)
    k = 0
    for g in hl.grid(x.shape[0]):
        keep = x[g, :].sum(0) > 0.0
        if keep:
            y[k, :] = x[g, :]
        k = k + hl.where(keep, 1, 0)
        count[0] = k
    return y, count


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
            n[0:8] = n[0:8] + sum(where(expand_dims(argmax(s, axis=1), axis=1) == expand_dims(arange(8), axis=0), 1, 0), axis=0)
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
            y[0:5, 0:8] = y[0:5, 0:8] + group_sum(expand_dims(argmin(far, axis=1), axis=0) == expand_dims(arange(5), axis=1), x[t, 0:8])
        """,
    )


def test_of_what_is_stored_the_last_one_stays() -> None:
    x = tile.spec((32, 8), "float32")
    becomes(
        parsed(last, (x, x, OFFSETS[:2], 5))[0],
        run,
        """
        for g in grid(1):
            for t in tile(offsets[g], offsets[g + 1], max_extent=32):
                at: int32[t] = argmax(x[t, 0:8], axis=1) - 1
                y[rows(at), 0:8] = v[t, 0:8]
                number[rows(at)] = t.index
                kept[0:8, rows(at)] = transpose(v[t, 0:8], perm=(1, 0)) where expand_dims(max(x[t, 0:8], axis=1) > 1.5, axis=0)
        """,
        """
        for g in grid(1):
            for t in tile(offsets[g], offsets[g + 1], max_extent=32):
                at: int32[t] = argmax(x[t, 0:8], axis=1) - 1
                y_last: int32[5] = max(where(expand_dims(at, axis=1) == expand_dims(arange(5), axis=0), expand_dims(t.index, axis=1), -1), axis=0)
                y[0:5, 0:8] = where(expand_dims(y_last >= 0, axis=1), group_sum(expand_dims(at, axis=0) == expand_dims(arange(5), axis=1) and expand_dims(t.index, axis=0) == expand_dims(y_last, axis=1), v[t, 0:8]), y[0:5, 0:8])
                number_last: int32[5] = max(where(expand_dims(at, axis=1) == expand_dims(arange(5), axis=0), expand_dims(t.index, axis=1), -1), axis=0)
                number[0:5] = where(number_last >= 0, sum(where(expand_dims(at, axis=1) == expand_dims(arange(5), axis=0) and expand_dims(t.index, axis=1) == expand_dims(number_last, axis=0), expand_dims(t.index, axis=1), 0), axis=0), number[0:5])
                kept_last: int32[5] = max(where(expand_dims(at, axis=1) == expand_dims(arange(5), axis=0) and expand_dims(reshape(expand_dims(max(x[t, 0:8], axis=1) > 1.5, axis=0), [t]), axis=1), expand_dims(t.index, axis=1), -1), axis=0)
                kept[0:8, 0:5] = where(kept_last >= 0, transpose(group_sum(expand_dims(at, axis=0) == expand_dims(arange(5), axis=1) and expand_dims(t.index, axis=0) == expand_dims(kept_last, axis=1), transpose(transpose(v[t, 0:8], perm=(1, 0)), perm=(1, 0))), perm=(1, 0)), kept[0:8, 0:5])
        """,
    )


def test_one_place_is_selected() -> None:
    becomes(
        parsed(compacted, (tile.spec((32, 8), "float32"),))[0],
        run,
        """
        for g in grid(32) carrying k = 0:
            keep: bool[] = sum(x[g, 0:8], axis=0) > 0.0
            y[k, 0:8] = x[g, 0:8] where keep
            k_1: int32[] = k + where(keep, 1, 0)
            count[0] = k_1
            next k = k_1
        after k_2 = k
        """,
        """
        for g in grid(32) carrying k = 0:
            keep: bool[] = sum(x[g, 0:8], axis=0) > 0.0
            y[0:32, 0:8] = where(expand_dims(k == arange(32), axis=1) and keep, expand_dims(x[g, 0:8], axis=0), y[0:32, 0:8])
            k_1: int32[] = k + where(keep, 1, 0)
            count[0] = k_1
            next k = k_1
        after k_2 = k
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
            z[0:8] = z[0:8] + sum(where(expand_dims(index[t] * 2, axis=1) == expand_dims(arange(8), axis=0), expand_dims(where(max(x[t, 0:8], axis=1) > 0.5, x[t, 0], 0.0), axis=1), 0.0), axis=0)
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


def rows_of(x: np.ndarray, v: np.ndarray, size: int) -> list[np.ndarray]:
    """What `last` says, row by row."""
    y, number = np.full((size, v.shape[1]), 7, v.dtype), np.full(size, -7, np.int32)
    kept = y.T.copy()
    for t in (t for a, b in RANGES for t in range(a, b)):
        at = int(x[t].argmax()) - 1
        if 0 <= at < size:
            y[at], number[at] = v[t], t
            if x[t].max() > 1.5:
                kept[:, at] = v[t]
    return [y, number, kept]


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
@pytest.mark.parametrize("size", [4, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_the_last_row_stays(target, size, dtype) -> None:
    """Rows before and behind the ranges are NaN; places lie before and behind the array."""
    x, v = floats(40, 8), (floats(40, 5) * 1e8).astype(dtype)
    x[31:] = np.nan
    if dtype is np.float32:
        v[31:], v[4, 2], v[5, 1] = np.nan, np.inf, np.nan
    for one, right in zip(
        again(last)(x, v, OFFSETS, size, target=target), rows_of(x, v, size), strict=True
    ):
        np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
@pytest.mark.parametrize("size", [4, 7])
def test_single_places(target, size) -> None:
    x = floats(19, 8)
    x[5, 3], x[9, 2] = np.inf, np.nan
    row, part = (np.full((size, 8), 7.0, np.float32) for _ in range(2))
    pair, most = np.full((size, 4), 7, np.int32), np.full(size, -9.0, np.float32)
    for g in range(19):
        at = int(x[g].argmax()) - 1
        if 0 <= at < size:
            row[at] = x[g]
            pair[at, x[g, :4].argmin()] = g if x[g, 0] > 0 else pair[at, x[g, :4].argmin()]
            part[at] = np.where(x[g] > 0, x[g], part[at])
            most[at] = np.maximum(most[at], x[g, 1])
    found = again(placed)(x, size, target=target)
    for one, right in zip(found, (row, pair, part, most), strict=True):
        np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize(
    ("target", "config"),
    [(None, None), (None, tile.Config(blocks={"r": 8, "t": 8})), ("tpu:v5e", None)],
)
def test_columns_that_memory_says(target, config) -> None:
    x, index = floats(19, 37), np.random.default_rng(3).integers(0, 9, 37).astype(np.int32)
    y, z = again(columns_of)(x, index, 9, target=target, config=config)
    wanted, sums = np.full((19, 9), 7.0, np.float32), np.zeros((19, 9), np.float32)
    for t, at in enumerate(index):
        wanted[:, at] = x[:, t]
        sums[:, at] += x[:, t]
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_allclose(z, sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_places_that_a_loop_carries(target) -> None:
    x = floats(37, 8)
    x[7, 2] = np.nan
    kept = x[x.sum(1) > 0]
    y, count = again(compacted)(x, target=target)
    assert count == len(kept)
    np.testing.assert_array_equal(y[: len(kept)], kept)
    np.testing.assert_array_equal(y[len(kept) :], 7.0)


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
def test_they_compile(target) -> None:
    x = tile.spec((4096, 128), "float32")
    compiled(counts, x, target=target)
    compiled(near, x, tile.spec((64, 128), "float32"), target=target)
    compiled(binned, tile.spec((31, 8), "float32"), OFFSETS, 7, target=target)
    compiled(of_groups, tile.spec((31, 8), "float32"), OFFSETS, target=target)
    compiled(columns, tile.spec((512, 8), "float32"), target=target)
    compiled(last, tile.spec((40, 8), "float32"), x, OFFSETS, 7, target=target)
    compiled(placed, tile.spec((40, 8), "float32"), 7, target=target)
    compiled(compacted, tile.spec((512, 128), "float32"), target=target)
    compiled(columns_of, x, tile.spec((128,), "int32"), 128, target=target)
