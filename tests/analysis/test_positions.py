"""Positions that certainly leave their arrays, and stores that depend on a block size, in words."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.analysis import analyze
from tilelang.frontend import parse
from tilelang.ir import TensorSpec

X = TensorSpec((6, 8), "float32")
V = TensorSpec((6,), "float32")
OFFSETS = TensorSpec((4,), "int32")


def scalar_past_the_end(v):
    """v has length 6, i + 1 reaches 6
    v[i + 1] | loop over fewer, or write it in an `if`: if i + 1 < 6: ...
    """
    y = hl.empty(v.shape, dtype=v.dtype)
    for i in hl.grid(v.shape[0]):
        y[i] = v[i + 1]
    return y


def scalar_before_the_begin(v):
    """v has length 6, i - 1 reaches -1
    v[i - 1] | loop over fewer, or write it in an `if`: if i - 1 >= 0: ...
    """
    y = hl.empty(v.shape, dtype=v.dtype)
    for i in hl.grid(v.shape[0]):
        y[i] = v[i - 1]
    return y


def longer_than_the_array(v):
    """v has length 6, i reaches 7
    v[i] | loop over fewer, or write it in an `if`: if i < 6: ...
    """
    y = hl.zeros([8], dtype=v.dtype)
    for i in hl.grid(8):
        y[i] = v[i]
    return y


def before_the_array(v):
    """v has length 6, i reaches -2
    v[i] | loop over fewer, or write it in an `if`: if i >= 0: ...
    """
    y = hl.zeros([8], dtype=v.dtype)
    for i in hl.grid(-2, 6):
        y[i + 2] = v[i]
    return y


def longer_around_ranges(x, v, offsets):
    """v has length 6, g reaches 6
    v[g] | loop over fewer, or write it in an `if`: if g < 6: ...
    """
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(7):
        for t in hl.tile(offsets[g // 3], offsets[g // 3 + 1], max_extent=6):
            y[t, :] = x[t, :] * v[g]
    return y


def row_past_the_end(x):
    """dimension 0 of x has length 6, i + 1 reaches 6
    x[i + 1, :] | loop over fewer, or write it in an `if`: if i + 1 < 6: ...
    """
    y = hl.empty(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        y[i, :] = x[i + 1, :]
    return y


def row_stored_past_the_end(x):
    """dimension 0 of y has length 6, i + 1 reaches 6
    y[i + 1, :] = x[i, :] | loop over fewer, or write it in an `if`: if i + 1 < 6: ...
    """
    y = hl.zeros(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        y[i + 1, :] = x[i, :]
    return y


def column_of_a_product(x):
    """dimension 1 of x has length 8, 3*i + j reaches 17
    x[i, i * 3 + j] | loop over fewer, or write it in an `if`: if 3*i + j < 8: ...
    """
    y = hl.zeros([6], dtype=x.dtype)
    for i in hl.grid(6):
        for j in hl.grid(3):
            y[i] = x[i, i * 3 + j]
    return y


def one_group_too_many(x, offsets):
    """offsets has length 4, g + 1 reaches 4
    offsets[g + 1] | loop over fewer, or write it in an `if`: if g + 1 < 4: ...
    """
    y = hl.zeros([4], dtype=x.dtype)
    for g in hl.grid(4):
        acc = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=6):
            acc = acc + x[t, :].sum()
        y[g] = acc
    return y


def read_in_a_select(v):
    """v has length 6, i + 1 reaches 6
    v[i + 1] | loop over fewer, or write it in an `if`: if i + 1 < 6: ...
    """
    y = hl.empty(v.shape, dtype=v.dtype)
    for i in hl.grid(v.shape[0]):
        y[i] = hl.where(i + 1 < 6, v[i + 1], 0.0)
    return y


def number_of_a_tile(x):
    """dimension 0 of y has length 2, t.id + 2 reaches 3
    y[t.id + 2, :] = x[t, :].sum(0) | loop over fewer, or write it in an `if`: if t.id + 2 < 2: ...
    """
    y = hl.zeros([2, 8], dtype=x.dtype)
    for t in hl.tile(6, block_size=3):
        y[t.id + 2, :] = x[t, :].sum(0)
    return y


WRONG = (
    (scalar_past_the_end, (V,)),
    (scalar_before_the_begin, (V,)),
    (longer_than_the_array, (V,)),
    (before_the_array, (V,)),
    (longer_around_ranges, (X, V, OFFSETS)),
    (row_past_the_end, (X,)),
    (row_stored_past_the_end, (X,)),
    (column_of_a_product, (X,)),
    (one_group_too_many, (X, OFFSETS)),
    (read_in_a_select, (V,)),
    (number_of_a_tile, (X,)),
)


def arrays(specs):
    return tuple(np.zeros(s.shape, s.dtype) for s in specs)


def refused(fn, specs, how):
    """What a kernel says of itself when it is called, or evaluated by the reference."""
    with pytest.raises(tile.ParseError) as caught:
        getattr(tile.kernel(fn), how)(*arrays(specs))
    return caught.value


@pytest.mark.parametrize(("fn", "specs"), WRONG, ids=lambda a: getattr(a, "__name__", ""))
@pytest.mark.parametrize("how", ["__call__", "reference", "explain"])
def test_a_position_that_certainly_leaves_is_refused(fn, specs, how):
    found = refused(fn, specs, how)
    what, rest = (line.strip() for line in fn.__doc__.strip().splitlines())
    place, _, hint = rest.partition(" | ")
    loc = found.loc
    assert (found.what, loc.text[loc.col : loc.end_col], found.hint) == (what, place, hint)


# ---------------------------------------------------------------- what is right stays right


def kinds(fn, *specs):
    """Of every scalar position: the length of the dimension and the kind of its fact."""
    names = fn.__code__.co_varnames
    facts = analyze(parse(fn, dict(zip(names, specs, strict=False))))
    return {(p.size, p.kind) for p in facts.positions}


def arithmetic(x):
    y = hl.zeros([6, 8], dtype=x.dtype)
    for i in hl.grid(48):
        y[i // 8, i % 8] = x[5 - i // 8, (i * 3) % 8] + x[min(i, 5), max(7 - i, 0)]
    return y


def edges_of_tiles(x):
    y = hl.zeros([6, 8], dtype=x.dtype)
    for t in hl.tile(6):
        for i in hl.grid(t.begin, t.end):
            y[i, :] = x[t.begin, :] + x[t.end - 1, :] + x[t.id, :]
    return y


def triangle(x):
    y = hl.zeros([6, 8], dtype=x.dtype)
    for i in hl.grid(6):
        for j in hl.grid(i, 6, max_extent=6):
            y[j - i, i] = x[5 + i - j, i]
    return y


def guarded(v):
    y = hl.zeros([6], dtype=v.dtype)
    for i in hl.grid(6):
        if i > 0:
            y[i - 1] = v[i - 1]
    return y


def perhaps_never(x, offsets):
    y = hl.zeros([4, 8], dtype=x.dtype)
    for g in hl.grid(3):
        for i in hl.grid(offsets[g], offsets[g + 1]):
            y[g, :] = x[i, :] + x[g + 4, :]
    return y


def test_bounds_of_index_arithmetic_are_proved():
    for fn in (arithmetic, edges_of_tiles, triangle):
        assert kinds(fn, X) == {(6, "proved"), (8, "proved")} or fn is edges_of_tiles
    assert kinds(edges_of_tiles, X) == {(6, "proved")}


def test_what_may_not_run_is_not_refused():
    assert kinds(guarded, V) == {(6, "dynamic")}
    assert kinds(perhaps_never, X, OFFSETS) == {(4, "proved"), (6, "proved"), (6, "dynamic")}


# ---------------------------------------------------------------- block sizes


def column_sum(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm, tn in hl.tile([6, 8]):
        y[tn] = x[tm, tn].sum(0)
    return y


def through_a_name(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6):
        part = x[tm, :].amax(0)
        acc = hl.zeros([8], dtype=hl.float32)
        for _ in hl.grid(2):
            acc = acc + part
        y[:] = acc
    return y


def begin_of_a_tile(x):
    y = hl.zeros([1], dtype=hl.int32)
    for tm in hl.tile(6):
        y[0] = tm.begin
    return y


def number_per_group(x, offsets):
    y = hl.zeros([3], dtype=hl.int32)
    for g in hl.grid(3):
        for tm in hl.tile(0, offsets[g], max_extent=6):
            y[g] = tm.id
    return y


def how_many(x):
    y = hl.zeros([1], dtype=hl.int32)
    for tm in hl.tile(6):
        y[0] = hl.where(tm.index >= 0, 1, 0).sum()
    return y


def product_of_tiles(x):
    y = hl.zeros([8, 8], dtype=x.dtype)
    for tm in hl.tile(6):
        y[:, :] = hl.dot(x[tm, :].T, x[tm, :])
    return y


def loop_within_a_tile(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6):
        acc = hl.zeros([8], dtype=hl.float32)
        for i in hl.grid(tm.begin, tm.end):
            acc = acc + x[i, :]
        y[:] = acc
    return y


DEPENDS = (
    (column_sum, (X,), "y[tn] = x[tm, tn].sum(0)"),
    (through_a_name, (X,), "y[:] = acc"),
    (begin_of_a_tile, (X,), "y[0] = tm.begin"),
    (number_per_group, (X, OFFSETS), "y[g] = tm.id"),
    (how_many, (X,), "y[0] = hl.where(tm.index >= 0, 1, 0).sum()"),
    (product_of_tiles, (X,), "y[:, :] = hl.dot(x[tm, :].T, x[tm, :])"),
    (loop_within_a_tile, (X,), "y[:] = acc"),
)


@pytest.mark.parametrize(("fn", "specs", "line"), DEPENDS, ids=lambda a: getattr(a, "__name__", ""))
@pytest.mark.parametrize("how", ["__call__", "reference"])
def test_a_result_that_depends_on_a_block_is_refused(fn, specs, line, how):
    found = refused(fn, specs, how)
    assert found.loc.text[found.loc.col : found.loc.end_col] == line
    assert (found.what, found.hint) == (
        "every tile of tm stores to the same elements of y, and another value: the result would "
        "depend on the block of tm",
        "carry the value over the loop, or use hl.atomic_add(y, ...)",
    )


def carried_and_added(x):
    y = hl.zeros([8], dtype=x.dtype)
    for _ in hl.grid(1):
        acc = hl.zeros([8], dtype=hl.float32)
        for tm in hl.tile(6):
            acc = acc + x[tm, :].sum(0)
            y[:] = y[:] + acc
    return y


def carried_and_added_at_once(x):
    y = hl.zeros([8], dtype=x.dtype)
    for _ in hl.grid(1):
        acc = hl.zeros([8], dtype=hl.float32)
        for tm in hl.tile(6):
            acc = acc + x[tm, :].sum(0)
            hl.atomic_add(y, [slice(None)], acc)
    return y


ADDED = ((carried_and_added, (X,)), (carried_and_added_at_once, (X,)))


@pytest.mark.parametrize(("fn", "specs"), ADDED, ids=lambda a: getattr(a, "__name__", ""))
def test_a_carry_that_every_tile_adds_is_refused(fn, specs):
    found = refused(fn, specs, "__call__")
    assert (found.what, found.hint) == (
        "every tile of tm stores to the same elements of y, and another value: the result would "
        "depend on the block of tm",
        "store what the loop of tm carries after it, or fix the tiles: "
        "hl.tile(..., block_size=...)",
    )


def carried(x):
    y = hl.zeros([8], dtype=x.dtype)
    for _ in hl.grid(1):
        acc = hl.zeros([8], dtype=hl.float32)
        for tm in hl.tile(6):
            acc = acc + x[tm, :].sum(0)
            y[:] = acc
    return y


def carried_maximum(x):
    y = hl.zeros([6], dtype=x.dtype)
    for tm in hl.tile(6):
        top = hl.full([tm], -1.0, dtype=hl.float32)
        for tn in hl.tile(8):
            top = hl.maximum(top, x[tm, tn].amax(1))
            y[tm] = top
    return y


def the_same_every_time(x):
    y = hl.zeros([8], dtype=x.dtype)
    for _tm in hl.tile(6):
        y[:] = x[2, :] * 2
    return y


def a_place_for_every_tile(x):
    y = hl.zeros([2, 8], dtype=x.dtype)
    for tm in hl.tile(6, block_size=3):
        y[tm.id, :] = x[tm, :].sum(0)
    return y


def one_tile(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6, block_size=6):
        y[:] = x[tm, :].sum(0)
    return y


def last_row(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6):
        y[:] = x[tm.end - 1, :]
    return y


def through_memory(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6):
        y[:] = y[:] + x[tm, :].sum(0)
    return y


def added(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6):
        hl.atomic_add(y, [slice(None)], x[tm, :].sum(0))
    return y


def where_it_is(x):
    y = hl.zeros([8], dtype=x.dtype)
    for tm in hl.tile(6):
        if tm.begin <= 3 and tm.end > 3:
            y[:] = hl.where((tm.index == 3)[:, None], x[tm, :], 0.0).sum(0)
    return y


RIGHT = (
    carried, carried_maximum, the_same_every_time, a_place_for_every_tile, one_tile, last_row,
    through_memory, added, where_it_is,
)  # fmt: skip


@pytest.mark.parametrize("fn", RIGHT, ids=lambda fn: fn.__name__)
def test_results_that_do_not_depend_on_blocks_stay_legal(fn):
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    kernel = tile.kernel(fn)
    tiles = {"tm", "tn"} & {*kernel.lower(x).axes}
    results = [kernel.reference(x, blocks=dict.fromkeys(tiles, size)) for size in (1, 4, 6)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
