"""Values out of range: which tensor, which index, which value; and what is no error."""

from __future__ import annotations

import functools
import inspect
import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang as tile
import tilelang.language as hl
from tests.analysis.build import (
    F32,
    INT,
    OFFSETS,
    Draft,
    add,
    begin,
    end,
    floats,
    g,
    h,
    index,
    let,
    load,
    mul,
    op,
    store,
    sub,
)
from tests.planted.checks import BROKEN
from tilelang.analysis import analyze
from tilelang.errors import RaggedValueError
from tilelang.ir import Along, Carry, Const, Gather, Load, Span, Type, Var
from tilelang.runtime import points
from tilelang.runtime.checks import compile_checks

ROWS = 256


def ints(*values):
    return np.array(values, np.int32)


def with_extent(ir, axis, extent):
    axes = tuple(replace(a, max_extent=extent) if a.name == axis else a for a in ir.axes)
    return replace(ir, axes=axes)


def copies(*bounds, groups=4, inner=None):
    """y[t] = x[t] for t in the range of every group."""
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(groups + 1,), starts=(groups,), ends=(groups,))
    body = [store("y", "t", slice(0, 8), value=floats("x", "t", slice(0, 8)))]
    return d.kernel(d.grid("g", 0, groups, d.tile("t", *bounds, *(inner or body))))


def grouped():
    return copies(*OFFSETS)


def starts_and_lengths():
    first = load("starts", g)
    return copies(first, add(first, load("ends", g)))


def starts_and_ends():
    return copies(load("starts", g), load("ends", g))


def refused(ir, **arrays):
    check = compile_checks(ir)
    assert check is not None
    with pytest.raises(RaggedValueError) as caught:
        check.run({name: arrays[name] for name in check.reads})
    assert caught.value.loc is not None
    return caught.value


def message(ir, **arrays):
    return refused(ir, **arrays).what


def test_offsets_that_are_lengths_are_told_how_to_be_made():
    given = refused(grouped(), offsets=ints(37, 0, 83, 70, 66))
    assert given.what.startswith("offsets[1] = 0 is less than offsets[0] = 37: ")
    assert given.hint == "offsets made of lengths are [0, *np.cumsum(lengths)]"
    first, last = OFFSETS
    length = refused(copies(first, add(first, last)), offsets=ints(0, 9, -3, 60, 60))
    assert (length.what, length.hint) == ("offsets[2] = -3 is negative", "")


def passes(ir, **arrays):
    check = compile_checks(ir)
    assert check is not None
    check.run({name: arrays[name] for name in check.reads})


@pytest.mark.parametrize(
    ("offsets", "what"),
    [
        (
            (0, 10, 50, 40, 256),
            "offsets[3] = 40 is less than offsets[2] = 50: "
            "ranges [offsets[g], offsets[g + 1]) must not decrease",
        ),
        ((0, 10, 50, 60, 300), "offsets[4] = 300 is past the 256 rows of x"),
        ((-3, 10, 50, 60, 256), "offsets[0] = -3 is negative"),
        ((0, -1, 50, 60, 256), "offsets[1] = -1 is negative"),
    ],
)
def test_offsets(offsets, what):
    assert message(grouped(), offsets=ints(*offsets)) == what


@pytest.mark.parametrize("offsets", [(0, 0, 0, 0, 0), (0, 256, 256, 256, 256), (7, 7, 9, 9, 200)])
def test_degenerate_offsets_are_fine(offsets):
    passes(grouped(), offsets=ints(*offsets))


def test_wide_offsets_are_compared_as_they_are():
    offsets = np.array([0, 1, 2, 2**31 + 7, 2**31 + 8], np.int64)
    assert message(grouped(), offsets=offsets).startswith("offsets[3] = 2147483655 is past")


def test_unsigned_offsets_do_not_wrap():
    offsets = np.array([0, 10, 50, 40, 256], np.uint32)
    assert message(grouped(), offsets=offsets).startswith("offsets[3] = 40 is less than")


def test_an_extent_over_max_extent():
    ir = with_extent(grouped(), "t", 100)
    what = message(ir, offsets=ints(0, 100, 150, 251, 256))
    assert what == "group 2 of offsets holds 101 rows, more than max_extent = 100"


def test_a_negative_length():
    what = message(starts_and_lengths(), starts=ints(0, 10, 20, 30), ends=ints(5, 5, -2, 5))
    assert what == "ends[2] = -2 is negative"


def test_start_and_length_past_the_end():
    what = message(starts_and_lengths(), starts=ints(0, 10, 20, 250), ends=ints(5, 5, 5, 7))
    assert what == "starts[3] + ends[3] = 257 is past the 256 rows of x"


def test_offsets_as_start_and_length():
    """start = offsets[g]; for t in hl.tile(offsets[g + 1] - start): ... x[start + t.index]"""
    first, last = OFFSETS
    moved = Along("t", first)
    value = Load("x", (moved, *floats("x", "t", slice(0, 8)).index[1:]), Type(("t", 8), "float32"))
    d = Draft(x=(ROWS, 8), y=(4, ROWS, 8), offsets=(5,))
    inner = store("y", g, "t", slice(0, 8), value=value)
    ir = d.kernel(d.grid("g", 0, 4, d.tile("t", 0, sub(last, first), inner)))
    passes(ir, offsets=ints(0, 3, 3, 200, 256))
    assert message(ir, offsets=ints(0, 3, 2, 200, 256)).startswith("offsets[2] = 2 is less than")
    assert (
        message(ir, offsets=ints(0, 3, 3, 200, 257)) == "offsets[4] = 257 is past the 256 rows of x"
    )


def test_sums_of_offsets_do_not_wrap():
    starts, ends = ints(0, 10, 20, 2**31 - 1), ints(5, 5, 5, 7)
    what = message(starts_and_lengths(), starts=starts, ends=ends)
    assert what == "starts[3] + ends[3] = 2147483654 is past the 256 rows of x"


def test_a_range_of_two_tensors_that_ends_before_it_begins():
    what = message(starts_and_ends(), starts=ints(0, 9, 9, 9), ends=ints(9, 9, 5, 9))
    assert what == (
        "ends[2] = 5 is less than starts[2] = 9: "
        "ranges [starts[g], ends[g]) must not end before they begin"
    )


def test_what_to_write_where_a_range_or_an_index_means_none():
    said = refused(starts_and_ends(), starts=ints(0, 9, 9, 9), ends=ints(9, 9, 5, 9)).hint
    assert said == "where such a range means none, end it at hl.maximum(starts[g], ends[g])"
    idx = np.zeros(64, np.int32)
    idx[3] = -1
    assert refused(gathered(*OFFSETS), offsets=ints(0, 5, 9), idx=idx).hint == (
        "where it means none, leave it out by a mask of idx[t] >= 0: "
        "hl.load(..., mask=..., other=0), hl.store(..., mask=...)"
    )
    said = refused(permuted(), perm=ints(3, -1, 0, 1)).hint
    assert said == "where it means none, write it in an `if`: if perm[g] >= 0: ..."
    # where an empty range at the end begins
    said = refused(permuted(), perm=ints(3, 256, 0, 1)).hint
    assert said == "where it means none, write it in an `if`: if perm[g] < 256: ..."
    # one that is larger, and offsets that fall, never mean none: they are mistakes
    assert not refused(permuted(), perm=ints(3, 257, 0, 1)).hint
    idx[3] = 256
    said = refused(gathered(*OFFSETS), offsets=ints(0, 5, 4), idx=idx).hint
    assert said == "offsets made of lengths are [0, *np.cumsum(lengths)]"


def test_lengths_from_zero():
    ir = copies(0, load("ends", g))
    assert message(ir, ends=ints(3, 4, -5, 6)) == "ends[2] = -5 is negative"
    assert message(ir, ends=ints(3, 4, 5, 257)) == "ends[3] = 257 is past the 256 rows of x"


def test_a_start_past_a_fixed_end():
    what = message(copies(load("starts", g), ROWS), starts=ints(0, 1, 2, 300))
    assert what == "starts[3] = 300 is past the end of its range, 256"


def test_computed_ranges_may_be_empty_in_any_way():
    ir = copies(add(load("offsets", g), 1), load("offsets", add(g, 1)))
    passes(ir, offsets=ints(0, 0, 0, 256, 256))
    what = message(ir, offsets=ints(0, 0, 0, 257, 257))
    assert what == "offsets[3] = 257 is past the 256 rows of x"


def test_arms_that_depend_on_a_tile_are_left_out():
    """Causal: the end of the inner loop is min(offsets[g + 1], tq.end)."""
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(5,))
    inner = d.tile(
        "tk",
        op("maximum", load("offsets", g), sub(begin("tq"), 16)),
        op("minimum", load("offsets", add(g, 1)), end("tq")),
        store("y", "tk", slice(0, 8), value=floats("x", "tk", slice(0, 8))),
    )
    ir = d.kernel(d.grid("g", 0, 4, d.tile("tq", *OFFSETS, inner)))
    passes(ir, offsets=ints(0, 3, 3, 200, 256))
    assert message(ir, offsets=ints(0, 3, 2, 200, 256)).startswith("offsets[2] = 2 is less than")


def test_rows_that_a_loop_up_to_a_tile_picks():
    @tile.kernel
    def kernel(x, ids):
        y = hl.zeros([24, 8], dtype=hl.float32)
        for tq in hl.tile(24):
            acc = hl.zeros([tq, 8], dtype=hl.float32)
            for tk in hl.tile(tq.end):
                before = hl.where(tk.index[None, :] <= tq.index[:, None], 1.0, 0.0)
                acc = hl.dot(before, x[ids[tk], :], acc=acc)
            y[tq, :] = acc
        return y

    x, ids = np.ones((9, 8), np.float32), np.zeros(24, np.int32)
    ids[23] = 9
    for call in (kernel, kernel.reference):
        with pytest.raises(RaggedValueError, match=r"ids\[23\] = 9 is too large|reads x at 9 of"):
            call(x, ids)


def earlier(x, ids, begin: hl.constexpr):
    """Sums of what the rows of all tiles before pick."""
    y = hl.zeros([27, 8], dtype=hl.float32)
    for tq in hl.tile(begin, begin + 24, block_size=8):
        acc = hl.zeros([8], dtype=hl.float32)
        for tk in hl.tile(begin, tq.begin, max_extent=24):
            acc = acc + x[ids[tk], :].sum(0)
        y[tq, :] = acc[None, :] + hl.zeros([tq, 8], dtype=hl.float32)
    return y


def test_rows_that_tiles_before_one_pick():
    """Of three tiles that the author cut none comes to what the last one has."""
    kernel, x = tile.kernel(earlier), np.ones((9, 8), np.float32)
    for first, row in itertools.product((0, 3), range(27)):
        ids = np.zeros(27, np.int32)
        ids[row] = 9
        # TPUs cut tiles where memory is, and refuse those of this kernel that begin at 3
        for call in (kernel.reference, *([] if first else [kernel])):
            if first <= row < first + 16:
                with pytest.raises(RaggedValueError, match=r"\] = 9 is too|reads x at 9 of"):
                    call(x, ids, first)
            else:
                call(x, ids, first)


def in_long_tiles(x, ids):
    """Every row with four before it, in tiles that are never of one row."""
    y, block = hl.zeros([24, 8], dtype=hl.float32), hl.register_block_size(8, 16)
    for tq in hl.tile(24, block_size=block):
        acc = hl.zeros([tq, 8], dtype=hl.float32)
        for tk in hl.tile(hl.maximum(4, tq.begin - 4), tq.end):
            distance = tq.index[:, None] - tk.index[None, :]
            near = hl.where((distance >= 0) & (distance <= 4), 1.0, 0.0)
            acc = hl.dot(near, x[ids[tk], :], acc=acc)
        y[tq, :] = acc
    return y


def test_rows_that_a_loop_along_with_long_tiles_picks():
    kernel, x = tile.kernel(in_long_tiles), np.ones((9, 8), np.float32)
    for row in range(24):
        ids = np.zeros(24, np.int32)
        ids[row] = 9
        for call in (kernel, kernel.reference):
            if row >= 4:
                with pytest.raises(RaggedValueError, match=r"\] = 9 is too|reads x at 9 of"):
                    call(x, ids)
            else:
                call(x, ids)


def in_a_window(x, ids, offsets):
    """Of every row the rows that two before it and it itself pick, within its group."""
    y = hl.zeros([24, 8], dtype=hl.float32)
    for b in hl.grid(2):
        for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=24):
            acc = hl.zeros([tq, 8], dtype=hl.float32)
            last = hl.minimum(offsets[b + 1], tq.end)
            for tk in hl.tile(hl.maximum(offsets[b], tq.begin - 2), last, max_extent=24):
                distance = tq.index[:, None] - tk.index[None, :]
                near = hl.where((distance >= 0) & (distance <= 2), 1.0, 0.0)
                acc = hl.dot(near, x[ids[tk], :], acc=acc)
            y[tq, :] = acc
    return y


def test_rows_that_a_loop_along_with_a_tile_picks():
    """Neither the first nor the last tile of a group has the rows between them."""
    kernel = tile.kernel(in_a_window)  # anew, for planted bugs
    x, offsets = np.ones((9, 8), np.float32), np.array([2, 14, 23])
    for row in (0, 2, 7, 13, 18, 22, 23):
        ids = np.zeros(24, np.int32)
        ids[row] = 9
        for call in (kernel, kernel.reference):
            if 2 <= row < 23:
                with pytest.raises(RaggedValueError, match=r"\] = 9 is too|reads x at 9 of"):
                    call(x, ids, offsets)
            else:
                call(x, ids, offsets)


def test_a_place_in_several_ranges_is_looked_at_once():
    low, high = np.array([0, 0, 1, 7, 5, 3]), np.array([1, 2, 3, 6, 9, 4])
    others = [np.array([0, 0, 0, 1, 1, 1])]
    for shuffled in (np.arange(6), np.array([5, 2, 0, 4, 1, 3])):
        begins = points._behind(low[shuffled], high[shuffled], [o[shuffled] for o in others])
        found = [
            (group, at)
            for group, begin, end in zip(others[0][shuffled], begins, high[shuffled])
            for at in range(begin, end)
        ]
        assert sorted(found) == [(0, 0), (0, 1), (0, 2), *((1, at) for at in (3, 5, 6, 7, 8))]


def test_a_named_bound_is_shown_as_what_it_is():
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(5,))
    loop = d.tile(
        "t",
        Var("first", INT),
        load("offsets", add(g, 1)),
        store("y", "t", slice(0, 8), value=floats("x", "t", slice(0, 8))),
    )
    ir = d.kernel(d.grid("g", 0, 4, let("first", load("offsets", g)), loop))
    assert message(ir, offsets=ints(-1, 1, 2, 3, 4)) == "offsets[0] = -1 is negative"


def measured(x, lens, tokens):
    """As many numbers as the greatest length says, of rows in which any token is over 1."""
    B, L = x.shape
    y = hl.zeros([B], dtype=hl.float32)
    for b in hl.grid(B):
        last = hl.where(tokens[b, :] == 0, hl.arange(3) * 4, 0).amax(0)
        acc = hl.zeros([], dtype=hl.float32)
        if (tokens[b, :] > 1).any():
            for t in hl.tile(lens[:, 0].sum() + last, max_extent=L):
                acc = acc + x[b, t].sum()
        y[b] = acc
    return y


def test_ranges_that_whole_rows_measure():
    kernel, x = tile.kernel(measured), np.ones((4, 20), np.float32)
    lens = ints((3, 9), (4, 90), (0, 0))
    tokens = ints((1, 1, 1), (2, 1, 1), (2, 0, 1), (1, 1, 0))
    np.testing.assert_array_equal(kernel(x, lens, tokens), [0, 7, 11, 0])
    lens[2, 0] = 6
    np.testing.assert_array_equal(kernel(x, lens, tokens), [0, 13, 17, 0])
    tokens[3] = (0, 1, 0)  # so far no row goes without a token over 1
    np.testing.assert_array_equal(kernel(x, lens, tokens), [0, 13, 17, 0])
    tokens[3, 0] = 3
    with pytest.raises(RaggedValueError) as caught:
        kernel(x, lens, tokens)
    assert caught.value.what == (
        "sum(lens[0:3, 0], axis=0) + max(where(tokens[3, 0:3] == 0, "
        "arange(3) * 4, 0), axis=0) = 21 is past the 20 columns of x"
    )


def test_a_range_that_whole_rows_measure_may_be_empty_in_any_way():
    @tile.kernel
    def kernel(x, mask):
        B, L = x.shape
        y = hl.zeros([B], dtype=hl.float32)
        for b in hl.grid(B):
            first = hl.where(mask[b, :], hl.arange(L), L).amin(0)
            last = hl.where(mask[b, :], hl.arange(L) + 1, 0).amax(0)
            acc = hl.zeros([], dtype=hl.float32)
            for t in hl.tile(hl.clamp(first, 0, L), hl.clamp(last, 0, L), max_extent=L):
                acc = acc + x[b, t].sum()
            y[b] = acc
        return y

    mask = np.zeros((3, 20), bool)
    mask[0, [4, 11]] = mask[2, 19] = True
    np.testing.assert_array_equal(kernel(np.ones((3, 20), np.float32), mask), [8, 0, 1])


def test_one_ragged_range_without_groups():
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), n=(1,))
    ir = d.kernel(
        d.tile(
            "t", 0, load("n", 0), store("y", "t", slice(0, 8), value=floats("x", "t", slice(0, 8)))
        )
    )
    assert message(ir, n=ints(300)) == "n[0] = 300 is past the 256 rows of x"
    what = message(with_extent(ir, "t", 64), n=ints(65))
    assert what == "the range [0, n[0]) holds 65 rows, more than max_extent = 64"


@tile.kernel
def moved_up_to_a_tile(x, begins, lengths, causal: hl.constexpr):
    """Sums of rows that begin where memory says, up to a length or a tile's end."""
    y = hl.zeros([2, 24], dtype=hl.float32)
    for s in hl.grid(2):
        for tq in hl.tile(24):
            acc = hl.zeros([tq], dtype=hl.float32)
            first = hl.maximum(0, tq.begin - 4) if causal else 0
            for tk in hl.tile(first, hl.minimum(lengths[s], tq.end), max_extent=24):
                seen = tk.index[None, :] <= tq.index[:, None]
                if causal:
                    seen = seen & (tk.index[None, :] + 4 >= tq.index[:, None])
                row = x[begins[s] + tk.index, :].sum(1)
                acc = acc + hl.where(seen, row[None, :], 0.0).sum(1)
            y[s, tq] = acc
    return y


def test_a_moved_range_that_a_tile_cuts():
    """Proofs take it to lie in x, as memory says both: what a tile cuts off is left out."""
    kernel = tile.kernel(inspect.unwrap(moved_up_to_a_tile))
    x, config = np.ones((20, 8), np.float32), tile.Config(blocks={"tq": 8, "tk": 8})
    for causal, run in itertools.product(
        (False, True), (partial(kernel, config=config), kernel.reference)
    ):
        found = run(x, ints(0, 9), ints(20, 11), causal)
        assert np.isfinite(found).all() and found[1, 10] == (40 if causal else 88)
        for begins, lengths in ((0, 9), (12, 12)), ((0, 21), (12, 0)), ((-1, 0), (4, 12)):
            with pytest.raises(RaggedValueError, match=r"is past the 20|is negative|is before"):
                run(x, ints(*begins), ints(*lengths), causal)


@tile.kernel
def from_a_computed_row(x, begins, counts):
    """Sums of rows of a window, which is computed of what memory says and cut by tiles."""
    y = hl.zeros([24], dtype=hl.float32)
    for tq in hl.tile(24):
        acc = hl.zeros([tq], dtype=hl.float32)
        first = hl.maximum(begins[0] + 1, tq.begin - 3)
        for tk in hl.tile(first, hl.minimum(begins[0] + 1 + counts[0], tq.end)):
            distance = tq.index[:, None] - tk.index[None, :]
            acc = acc + hl.where((distance >= 0) & (distance < 4), x[tk][None, :], 0.0).sum(1)
        y[tq] = acc
    return y


def test_a_computed_range_that_a_tile_cuts():
    """Tiles end at row 24, and x has 20: only where the window does is it outside."""
    kernel, x = tile.kernel(inspect.unwrap(from_a_computed_row)), np.ones(20, np.float32)
    for run in (kernel, kernel.reference):
        assert run(x, ints(0), ints(19)).sum() == 4 * 19
        assert run(x, ints(40), ints(19)).sum() == 0
        for before, count in ((0, 20), (19, 1), (-2, 3)):
            with pytest.raises(RaggedValueError, match=r"is past the 20|is negative|x at 20"):
                run(x, ints(before), ints(count))


def test_an_offset_read_from_a_tensor():
    """x[starts[g] + t] for t in a fixed range."""
    moved = Along("t", load("starts", g))
    value = Load("x", (moved, *floats("x", "t", slice(0, 8)).index[1:]), Type(("t", 8), "float32"))
    d = Draft(x=(ROWS, 8), y=(4, 16, 8), starts=(4,))
    ir = d.kernel(
        d.grid("g", 0, 4, d.tile("t", 0, 16, store("y", g, "t", slice(0, 8), value=value)))
    )
    passes(ir, starts=ints(0, 240, 7, 7))
    what = message(ir, starts=ints(0, 240, 241, 7))
    assert what == "starts[2] + 16 = 257 is past the 256 rows of x"
    assert message(ir, starts=ints(0, 240, -1, 7)) == "starts[2] = -1 is negative"


def test_an_end_that_is_a_number():
    """No number is said to be itself."""
    d = Draft(x=(16, 8), y=(16, 8), n=(1,))
    kept = store("y", "t", slice(0, 8), value=floats("x", "t", slice(0, 8)))
    ir = d.kernel(d.tile("t", load("n", 0), 20, kept))
    assert message(ir, n=ints(3)) == "20 is past the 16 rows of x"
    assert message(ir, n=ints(30)) == "n[0] = 30 is past the end of its range, 20"


# ---------------------------------------------------------------- indices


def permuted(mask=None, value=None):
    picked = floats("x", load("perm", g), slice(0, 8))
    d = Draft(x=(ROWS, 8), y=(4, 8), perm=(4,))
    value = picked if value is None else value(picked)
    return d.kernel(d.grid("g", 0, 4, store("y", g, slice(0, 8), value=value, mask=mask)))


def test_an_index_read_from_a_tensor():
    passes(permuted(), perm=ints(3, 255, 0, 1))
    what = message(permuted(), perm=ints(3, 255, 256, 1))
    assert what == "perm[2] = 256 is too large: it picks one of the 256 rows of x"
    what = message(permuted(), perm=ints(3, -1, 0, 1))
    assert what == "perm[1] = -1 is negative: it picks one of the 256 rows of x"


def under_an_if():
    """if perm[g] >= 0: x[perm[g]] is loaded there, or stored to."""
    wanted = op("ge", load("perm", g), 0, dtype="bool")
    d = Draft(x=(4, 8), y=(ROWS, 8), perm=(4,))
    value, place = floats("x", g, slice(0, 8)), load("perm", g)
    stored = d.grid("g", 0, 4, store("y", place, slice(0, 8), value=value, mask=wanted))
    return permuted(value=lambda v: replace(v, mask=wanted, other=0.0)), d.kernel(stored)


def test_an_index_that_an_if_skips_is_not_an_error():
    for ir in under_an_if():
        passes(ir, perm=ints(3, -9, 0, -1))


def test_an_index_that_an_if_does_not_skip_is_one():
    for ir in under_an_if():
        what = message(ir, perm=ints(3, -9, 256, 1))
        assert what.startswith("perm[2] = 256 is too large: it picks one of the 256 rows of ")


def test_a_position_under_a_condition_that_memory_decides_later_is_left_out():
    """if y[g, 0] > 0, where y is what the kernel writes"""
    written = op("gt", load("marks", g), 0, dtype="bool")
    d = Draft(x=(ROWS, 8), y=(4, 8), perm=(4,), marks=(4,))
    value = replace(floats("x", load("perm", g), slice(0, 8)), mask=written, other=0.0)
    ir = d.kernel(d.grid("g", 0, 4, store("y", g, slice(0, 8), value=value, mask=written)))
    tensors = tuple(replace(t, mutated=True) if t.name == "marks" else t for t in ir.tensors)
    assert compile_checks(replace(ir, tensors=tensors)) is None


def test_a_select_does_not_excuse_an_index():
    """Both arms are read, as in the reference: a mask of the load leaves it out."""
    wanted = op("ge", load("perm", g), 0, dtype="bool")
    seen = op("gt", index("t"), 2, dtype="bool", shape=(8,))
    for condition in (wanted, seen):
        ir = permuted(value=lambda v, c=condition: op("where", c, v, Const(0.0, F32), shape=(8,)))
        assert message(ir, perm=ints(3, -1, 0, 1)).startswith("perm[1] = -1 is negative")


def test_what_a_loop_carries_is_read():
    d = Draft(x=(ROWS,), y=(1,), perm=(1,), n=(1,))
    first, acc, out = floats("x", load("perm", 0)), Var("acc", F32), Var("out", F32)
    loop = d.grid("g", 0, load("n", 0))
    carried = replace(loop, carries=(Carry("acc", first, acc, "out", "acc", loop.loc),))
    ir = d.kernel(carried, store("y", 0, value=out))
    assert message(ir, perm=ints(-1), n=ints(0)).startswith("perm[0] = -1 is negative")


def test_a_select_does_not_excuse_a_range():
    """if perm[g] > 0: acc += x[t], where only the sum is selected"""
    c = op("gt", load("perm", g), 0, dtype="bool")
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(3,), perm=(2,))
    picked = op("where", c, floats("x", "t", slice(0, 8)), Const(0.0, F32), shape=("t", 8))
    body = store("y", 0, slice(0, 8), value=op("sum", picked, shape=(8,), axis=0))
    ir = d.kernel(d.grid("g", 0, 2, d.tile("t", *OFFSETS, body)))
    what = message(ir, offsets=ints(0, 3, 257), perm=ints(0, 0))
    assert what == "offsets[2] = 257 is past the 256 rows of x"


def test_a_value_that_nothing_uses_is_read_all_the_same():
    value = let("v", floats("x", load("perm", g), slice(0, 8)))
    d = Draft(x=(ROWS, 8), y=(4, 8), perm=(4,))
    ir = d.kernel(d.grid("g", 0, 4, value, store("y", g, slice(0, 8), value=Const(0.0, F32))))
    assert message(ir, perm=ints(0, -1, 0, 0)).startswith("perm[1] = -1 is negative")


def edges(condition, at=2):
    """if condition: y[t + at] = ..., in tiles of groups"""
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(3,))
    moved = Along("t", Const(at, INT))
    value = floats("x", "t", slice(0, 8))
    inner = store("y", moved, slice(0, 8), value=value, mask=condition)
    return d.kernel(d.grid("g", 0, 2, d.tile("t", *OFFSETS, inner)))


def test_a_condition_on_where_a_tile_is():
    early = edges(op("lt", begin("t"), 1000, dtype="bool"))
    passes(early, offsets=ints(0, 3, 254))
    what = message(early, offsets=ints(0, 3, 255))
    assert what == "2 + 254 = 256 is too large: it picks one of the 256 rows of y"
    never = edges(op("gt", begin("t"), 1000, dtype="bool"))
    passes(never, offsets=ints(0, 3, 256))
    last = edges(op("ge", end("t"), load("offsets", add(g, 1)), dtype="bool"))
    passes(last, offsets=ints(0, 0, 254))
    assert "256 is too large" in message(last, offsets=ints(0, 0, 255))
    first = edges(op("le", begin("t"), load("offsets", g), dtype="bool"))
    passes(first, offsets=ints(0, 0, 255))
    assert "256 is too large" in message(first, offsets=ints(0, 254, 256))


def test_a_range_that_nothing_reaches():
    """The place of every range is in a loop of another one, which is empty."""
    d = Draft(x=(ROWS, 8), y=(ROWS, ROWS, 8), offsets=(3,), n=(1,))
    inner = store("y", Along("u", load("n", 0)), "t", slice(0, 8), value=Const(0.0, F32))
    loops = d.grid("g", 0, 2, d.tile("t", *OFFSETS, inner))
    ir = d.kernel(d.tile("u", 0, 4, loops))
    passes(ir, offsets=ints(7, 7, 7), n=ints(-1))
    assert message(ir, offsets=ints(7, 7, 8), n=ints(-1)) == "n[0] = -1 is negative"


def test_a_store_through_an_index():
    d = Draft(x=(4, 8), y=(ROWS, 8), perm=(4,))
    value = floats("x", g, slice(0, 8))
    ir = d.kernel(d.grid("g", 0, 4, store("y", load("perm", g), slice(0, 8), value=value)))
    what = message(ir, perm=ints(3, 300, 0, 1))
    assert what == "perm[1] = 300 is too large: it picks one of the 256 rows of y"


def gathered(*bounds):
    rows = Gather(load("idx", "t"))
    value = Load("x", (rows, *floats("x", "t", slice(0, 8)).index[1:]), Type(("t", 8), "float32"))
    d = Draft(x=(ROWS, 8), y=(64, 8), idx=(64,), offsets=(3,))
    return d.kernel(
        d.grid("g", 0, 2, d.tile("t", *bounds, store("y", "t", slice(0, 8), value=value)))
    )


def test_a_gather_is_checked_where_it_reads():
    ir, idx = gathered(*OFFSETS), np.zeros(64, np.int32)
    idx[[9, 50]] = 256, -1
    passes(ir, offsets=ints(0, 5, 9), idx=idx)
    what = message(ir, offsets=ints(0, 5, 10), idx=idx)
    assert what == "idx[9] = 256 is too large: it picks one of the 256 rows of x"
    what = message(ir, offsets=ints(10, 20, 60), idx=idx)
    assert what == "idx[50] = -1 is negative: it picks one of the 256 rows of x"


def test_an_index_in_a_loop_that_does_not_run():
    """Experts of empty groups may hold anything."""
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(5,), perm=(4,))
    value = op("add", floats("x", "t", slice(0, 8)), floats("x", load("perm", g), slice(0, 8)))
    ir = d.kernel(
        d.grid("g", 0, 4, d.tile("t", *OFFSETS, store("y", "t", slice(0, 8), value=value)))
    )
    passes(ir, offsets=ints(0, 5, 5, 9, 9), perm=ints(0, -1, 1, -1))
    what = message(ir, offsets=ints(0, 5, 6, 9, 9), perm=ints(0, -1, 1, -1))
    assert what.startswith("perm[1] = -1 is negative")


def test_an_index_in_two_loops_of_which_one_does_not_run():
    """The pages of sequences without queries may be anything."""
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(4,), pages=(3, 3), n=(3,))
    value = op("add", floats("x", "t", slice(0, 8)), floats("x", load("pages", g, h), slice(0, 8)))
    inner = d.grid("h", 0, load("n", g), store("y", "t", slice(0, 8), value=value))
    ir = d.kernel(d.grid("g", 0, 3, d.tile("t", *OFFSETS, inner)))
    pages = np.array([[0, 255, -1], [999, 999, 999], [7, 999, 2]], np.int32)
    passes(ir, offsets=ints(0, 5, 5, 9), n=ints(2, 3, 1), pages=pages)
    what = message(ir, offsets=ints(0, 5, 5, 9), n=ints(2, 3, 2), pages=pages)
    assert what == "pages[2, 1] = 999 is too large: it picks one of the 256 rows of x"


def cut_by_tiles(block=None):
    """x[perm[g]] is read in a loop that ends where a tile does."""
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), offsets=(3,), n=(2,), perm=(2,))
    inner = store("y", "t", slice(0, 8), value=floats("x", load("perm", g), slice(0, 8)))
    cut = d.tile("u", load("n", g), op("minimum", load("offsets", add(g, 1)), end("t")), inner)
    ir = d.kernel(d.grid("g", 0, 2, d.tile("t", *OFFSETS, cut)))
    axes = tuple(replace(a, block=block) if a.name == "t" else a for a in ir.axes)
    return replace(ir, axes=axes)


def test_an_index_in_a_loop_that_ends_where_a_tile_does():
    """Whether it runs for one of the tiles, of one position at the least, decides."""
    ir, perm = cut_by_tiles(), ints(0, 999)
    passes(ir, offsets=ints(0, 5, 5), n=ints(0, 0), perm=perm)
    passes(ir, offsets=ints(0, 5, 9), n=ints(0, 9), perm=perm)
    what = message(ir, offsets=ints(0, 5, 9), n=ints(0, 8), perm=perm)
    assert what == "perm[1] = 999 is too large: it picks one of the 256 rows of x"
    ir = cut_by_tiles(block=16)
    passes(ir, offsets=ints(0, 5, 9), n=ints(0, 9), perm=perm)
    assert message(ir, offsets=ints(0, 5, 9), n=ints(0, 8), perm=perm) == what


def test_page_tables():
    d = Draft(x=(ROWS, 8), y=(2, 3, 8), pages=(2, 3), n=(2,))
    value = floats("x", load("pages", g, h), slice(0, 8))
    ir = d.kernel(
        d.grid("g", 0, 2, d.grid("h", 0, load("n", g), store("y", g, h, slice(0, 8), value=value)))
    )
    pages = np.array([[0, 255, -1], [1, 999, 2]], np.int32)
    passes(ir, n=ints(2, 1), pages=pages)
    what = message(ir, n=ints(2, 2), pages=pages)
    assert what == "pages[1, 1] = 999 is too large: it picks one of the 256 rows of x"
    what = message(ir, n=ints(2, 4), pages=np.zeros((2, 3), np.int32))
    assert what == "n[1] = 4 is past the 3 positions (dimension 1) of y"


def test_a_loop_under_an_if_is_checked_where_it_runs():
    """`if ends[g] > 0:` around a loop makes its end a select."""
    first, last = OFFSETS
    runs = op("gt", load("ends", g), 0, dtype="bool")
    ir = copies(first, op("where", runs, last, first))
    bad = ints(0, 50, 40, 60, 60)
    passes(ir, offsets=bad, ends=ints(1, 0, 1, 1))
    what = message(ir, offsets=bad, ends=ints(1, 1, 1, 1))
    assert what == (
        "offsets[2] = 40 is less than offsets[1] = 50: "
        "ranges [offsets[g], offsets[g + 1]) must not decrease"
    )


@pytest.mark.parametrize("place", ["an index", "an offset", "a range"])
def test_what_no_loop_comes_to_may_be_anything(place):
    """Numbers that are the same at every place are looked at where there is a place."""
    first, row = load("perm", 0), slice(0, 8)
    moved = Load("x", (Along("t", first), Span(0, 8)), Type(("t", 8), "float32"))
    d = Draft(x=(ROWS, 8), y=(ROWS, 8), n=(), perm=(1,))
    body = {
        "an index": store("y", g, row, value=floats("x", first, row)),
        "an offset": d.tile("t", 0, 4, store("y", "t", row, value=moved)),
        "a range": d.tile("t", first, 4, store("y", "t", row, value=floats("x", "t", row))),
    }[place]
    runs = op("gt", load("n"), 0, dtype="bool")
    ir = d.kernel(d.grid("g", 0, op("where", runs, 1, 0), body))
    passes(ir, n=np.array(0, np.int32), perm=ints(-1))
    what = message(ir, n=np.array(1, np.int32), perm=ints(-1))
    assert what.startswith("perm[0] = -1 is negative")


def test_offsets_that_proofs_take_to_be_sorted_are():
    """Also where only a part of a range, its length or a multiple is asked for: it may be empty."""
    first, last = OFFSETS
    length, runs = sub(last, first), op("gt", load("ends", g), 0, dtype="bool")
    twice = mul(first, 2), mul(last, 2)
    ways = (add(first, 1), last), (0, length), (0, op("where", runs, length, 0)), twice
    for bounds in ways:
        ir = copies(*bounds)
        facts = analyze(ir)
        assert facts.sorted == ("offsets",)
        check = compile_checks(ir, facts)
        given = {"offsets": ints(0, 10, 10, 50, 60), "ends": ints(1, 1, 1, 1)}
        check.run(given)
        with pytest.raises(RaggedValueError) as caught:
            check.run({**given, "offsets": ints(0, 50, 40, 60, 60)})
        assert caught.value.what == (
            "offsets[2] = 40 is less than offsets[1] = 50: "
            "ranges [offsets[g], offsets[g + 1]) must not decrease"
        )
        if bounds == ways[2]:
            skipped = {"offsets": ints(70, 10, 40, 50, 60), "ends": ints(0, 1, 1, 1)}
            check.run(skipped)


def test_kernels_without_ragged_data_have_no_check():
    assert compile_checks(copies(0, ROWS)) is None


def test_values_that_the_kernel_writes_are_not_looked_at():
    ir = grouped()
    tensors = tuple(replace(t, mutated=True) if t.name == "offsets" else t for t in ir.tensors)
    assert compile_checks(replace(ir, tensors=tensors)) is None


def test_only_the_tensors_that_are_needed_are_read():
    assert compile_checks(grouped()).reads == ("offsets",)
    assert compile_checks(gathered(*OFFSETS)).reads == ("idx", "offsets")


def test_positions_along_a_tile_can_be_computed_on():
    """x[idx[t] + t] gathers by an expression."""
    rows = Gather(op("add", load("idx", "t"), index("t")))
    value = Load("x", (rows, *floats("x", "t", slice(0, 8)).index[1:]), Type(("t", 8), "float32"))
    d = Draft(x=(ROWS, 8), y=(64, 8), idx=(64,))
    ir = d.kernel(d.tile("t", 0, 64, store("y", "t", slice(0, 8), value=value)))
    idx = np.zeros(64, np.int32)
    idx[63] = 200
    what = message(ir, idx=idx)
    assert what == "idx[63] + 63 = 263 is too large: it picks one of the 256 rows of x"


@functools.cache
def _grouped_check(extent):
    return compile_checks(with_extent(grouped(), "t", extent))


@given(
    st.lists(st.integers(-2, ROWS + 2), min_size=5, max_size=5),
    st.sampled_from([1, 2, 7, 63, 64, 100, ROWS - 1, ROWS]),
)
def test_offsets_pass_exactly_when_every_range_is_one(offsets, extent):
    spans = np.diff(offsets)
    ranges = min(offsets) >= 0 and max(offsets) <= ROWS and spans.min() >= 0
    check = _grouped_check(extent)
    try:
        check.run({"offsets": ints(*offsets)})
        passed = True
    except RaggedValueError:
        passed = False
    assert passed == (ranges and spans.max() <= extent)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_planted_bug_is_caught(broken, monkeypatch):
    monkeypatch.setattr(broken.owner, broken.name, broken.wrong)
    with pytest.raises((Exception, pytest.fail.Exception)):
        globals()[broken.test]()


@tile.kernel
def behind(rows: hl.constexpr):
    """Reads no tensor, so that nothing that a call is given says whether rows are there."""
    y = hl.zeros([rows], dtype=hl.float32)
    for k in hl.grid(2):
        for t in hl.tile(4):
            y[k * 4 + t.index] = 1.0
    return y


@pytest.mark.parametrize("run", [behind, behind.reference], ids=["call", "reference"])
def test_what_reads_no_tensor_is_checked(run):
    np.testing.assert_array_equal(run(8), np.ones(8, np.float32))
    for _ in range(2):  # the second call asks again
        with pytest.raises(tile.RaggedValueError, match="is past the 7 elements of y"):
            run(7)


@tile.kernel
def tiles_of_tiles(x, offsets):
    """The greatest of each group, of which every tile is gone through in tiles of its own."""
    y = hl.zeros([2], dtype=hl.float32)
    for s in hl.grid(2):
        most = -9.0
        for t in hl.tile(offsets[s], offsets[s + 1], max_extent=40):
            for part in hl.tile(t.begin, t.end):
                most = hl.maximum(most, x[part].amax(0))
        y[s] = most
    return y


def test_tiles_of_a_tile_are_rows_of_its_range():
    x = np.arange(40, dtype=np.float32)
    for run in (tile.kernel(inspect.unwrap(tiles_of_tiles)), tiles_of_tiles.reference):
        np.testing.assert_array_equal(run(x, ints(0, 0, 40)), [-9, 39])
        for wrong in ((0, 20, 41), (41, 50, 50)):
            with pytest.raises(tile.RaggedValueError, match="is past the 40 elements of x"):
                run(x, ints(*wrong))
