"""Folds over tiles: what counts once for every tile is refused, what counts by position is not."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import ParseError, PlanError

X = np.arange(120, dtype=np.float32).reshape(40, 3)
S = np.array([2.0, 3.0, 5.0], np.float32)
FLAG = np.array(1, np.int32)


def carried(step, start=0.0):
    """A kernel that carries what `step` makes of the carry, a tile of rows and a row of numbers."""

    @tile.kernel
    def kernel(x, s):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = hl.full([x.shape[1]], start, dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                acc = step(acc, x[tm, :], s[:], tm)
            y[g, :] = acc
        return y

    return kernel


def stored(value):
    """A kernel that adds the value to an array for every tile."""

    @tile.kernel
    def kernel(x, s):
        y = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            hl.atomic_add(y, [slice(None)], value(x[tm, :], s[:], tm))
        return y

    return kernel


def once(acc, rows, s, tm):
    return acc + s


def greatest(acc, rows, s, tm):
    return acc + rows.amax(0)


def scaled_least(acc, rows, s, tm):
    return acc + rows.amin(0) * s


def largest_sum(acc, rows, s, tm):
    return hl.maximum(acc, rows.sum(0))


def doubled(acc, rows, s, tm):
    return acc * s


def chosen(acc, rows, s, tm):
    return hl.where(s > 2, acc + s, acc)


def taken_off(acc, rows, s, tm):
    return acc - s


def divided(acc, rows, s, tm):
    return (acc + rows.sum(0)) / s


def rounded(acc, rows, s, tm):
    return (acc + s).to(hl.bfloat16).to(hl.float32)


def turned(acc, rows, s, tm):
    return -acc


def taken_from(acc, rows, s, tm):
    return rows.sum(0) - acc


def twice(acc, rows, s, tm):
    return acc + acc


def halved(acc, rows, s, tm):
    return hl.sqrt(acc) + rows.sum(0)


def flipped(acc, rows, s, tm):
    return hl.where(~(acc > 0), s, acc)


def turned_at_first(acc, rows, s, tm):
    return hl.where(tm.begin == 0, s - acc, acc)


def less(acc, rows, s, tm):
    return acc - rows.sum(0) * s


def set_once(acc, rows, s, tm):
    return hl.relu(hl.abs(s))


def added(acc, rows, s, tm):
    return acc + rows.sum(0) * s


def by_position(acc, rows, s, tm):
    return acc + s * (tm.end - tm.begin)


def of_the_first(acc, rows, s, tm):
    return hl.where(tm.begin == 0, acc + s, acc)


def same_maximum(acc, rows, s, tm):
    return hl.maximum(hl.maximum(acc, s), rows.amax(0))


def ones(acc, rows, s, tm):
    return acc + hl.full(rows.shape, 1.0, dtype=hl.float32).sum(0)


def of_the_last(acc, rows, s, tm):
    return rows.sum(0) * s


def of_the_last_where_memory_says(acc, rows, s, tm):
    return hl.where(s > 0, rows.amax(0), acc)


def begin_of_the_last(acc, rows, s, tm):
    return s * tm.begin


def end_of_the_last(acc, rows, s, tm):
    return s * tm.end


def of_one_that_is_named(acc, rows, s, tm):
    return hl.where(tm.end == 40, rows.amax(0), acc)


CHANGED = (turned, taken_from, twice, halved)
LAST = (of_the_last, of_the_last_where_memory_says, begin_of_the_last, of_one_that_is_named)
REFUSED = (once, greatest, scaled_least, largest_sum, doubled, chosen, taken_off, divided, rounded)
REFUSED += CHANGED
TAKEN = {
    flipped: S,
    turned_at_first: S,
    less: -X.sum(0) * S,
    set_once: S,
    added: X.sum(0) * S,
    by_position: 40 * S,
    of_the_first: S,
    same_maximum: np.maximum(X.max(0), S),
    end_of_the_last: 40 * S,
    ones: np.full(3, 40.0),
}


@pytest.mark.parametrize("step", REFUSED, ids=lambda f: f.__name__)
def test_what_counts_once_for_every_tile(step):
    with pytest.raises(ParseError, match="once for every tile of tm"):
        carried(step, 1.0).source(X, S)


def test_what_changes_once_for_every_tile():
    """What is negated once is not what is negated twice."""
    with pytest.raises(ParseError) as caught:
        carried(turned, 1.0).source(X, S)
    assert caught.value.what == (
        "acc is changed once for every tile of tm: the result would depend on the block of tm"
    )
    assert caught.value.hint == (
        "do it once, outside of the loop of tm, or fix the tiles: hl.tile(..., block_size=...)"
    )


@pytest.mark.parametrize("step", LAST, ids=lambda f: f.__name__)
def test_what_only_the_last_tile_made(step):
    with pytest.raises(ParseError) as caught:
        carried(step).source(X, S)
    assert caught.value.what == (
        "acc is what the last tile of tm made, and none before it: the result would depend on the "
        "block of tm"
    )
    assert caught.value.hint == (
        "fold it, acc = acc + ... or hl.maximum(acc, ...), store it for each tile, or fix the "
        "tiles: hl.tile(..., block_size=...); the last position is tm.end - 1"
    )


def test_what_a_loop_inside_of_the_last_tile_made():
    @tile.kernel
    def kernel(x, s):
        y = hl.empty([1], dtype=hl.float32)
        for g in hl.grid(1):
            last = hl.zeros([], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                for c in hl.grid(x.shape[1]):
                    last = x[tm, c].sum()
            y[g] = last
        return y

    with pytest.raises(ParseError, match="last is what the last tile of tm made"):
        kernel.source(X, S)


def test_what_no_tile_reads_again_is_no_carry():
    """A name that every tile writes before it reads it, though it is older than the loop."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = part = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                part = x[tm, :].sum(0)
                acc = acc + part
            y[g, :] = acc
        return y

    np.testing.assert_allclose(kernel(X, config=tile.Config({"tm": 8}))[0], X.sum(0))


def test_the_last_position_of_a_range():
    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            last = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                last = x[tm.end - 1, :]
            y[g, :] = last
        return y

    np.testing.assert_allclose(kernel(X, config=tile.Config({"tm": 8}))[0], X[39])


def test_flags_that_flip():
    @tile.kernel
    def kernel(x):
        y = hl.empty([1], dtype=hl.bool)
        for g in hl.grid(1):
            odd = hl.full([], False, dtype=hl.bool)
            for _tm in hl.tile(x.shape[0]):
                odd = ~odd
            y[g] = odd
        return y

    with pytest.raises(ParseError, match="odd is changed once for every tile of _tm"):
        kernel.source(X)


@pytest.mark.parametrize("step", TAKEN, ids=lambda f: f.__name__)
def test_what_counts_by_position(step):
    kernel = carried(step)
    for block in (8, 16, 40):
        found = kernel(X, S, config=tile.Config({"tm": block}))
        np.testing.assert_allclose(found[0], TAKEN[step], rtol=1e-6)


@pytest.mark.parametrize(
    "value", [lambda rows, s, tm: s, lambda rows, s, tm: rows.amax(0)], ids=["same", "greatest"]
)
def test_atomic_updates(value):
    with pytest.raises(ParseError, match="once for every tile of tm"):
        stored(value).source(X, S)
    found = stored(lambda rows, s, tm: rows.sum(0) + s * (tm.end - tm.begin))(X, S)
    np.testing.assert_allclose(found, X.sum(0) + 40 * S)


def test_updates_in_place():
    @tile.kernel
    def kernel(x, s):
        y = hl.zeros([x.shape[1]], dtype=hl.float32)
        for _tm in hl.tile(x.shape[0]):
            y[:] = y[:] + s[:]
        return y

    with pytest.raises(ParseError) as caught:
        kernel.source(X, S)
    assert caught.value.what == (
        "y takes in the same value once for every tile of _tm, as a sum: the result would depend "
        "on the block of _tm"
    )
    assert "y[:] = y[:] + s[:]" in str(caught.value)
    assert caught.value.hint == (
        "do it once, outside of the loop of _tm, or for every position: times (_tm.end - _tm.begin)"
    )


def test_the_words_for_a_fold_of_other_folds():
    with pytest.raises(ParseError) as caught:
        carried(largest_sum).source(X, S)
    assert caught.value.what == (
        "acc takes in the sum of the tile once for every tile of tm, as a max: the result would "
        "depend on the block of tm"
    )
    assert caught.value.hint == "fold by one operation: a max over tiles of a max over tm"


def test_the_words_for_what_is_taken_off():
    with pytest.raises(ParseError, match=r"acc takes in the same .* as a sum"):
        carried(taken_off).source(X, S)


def test_items_of_a_tuple_are_called_as_the_author_writes_them():
    @tile.kernel
    def counted(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            state = (hl.zeros([x.shape[1]], dtype=hl.float32), 0)
            for tm in hl.tile(x.shape[0]):
                state = (state[0] + x[tm, :].sum(0), state[1] + 1)
            y[g, :] = state[0] + state[1]
        return y

    with pytest.raises(ParseError) as caught:
        counted.source(X)
    assert str(caught.value).startswith("state[1] takes in ")


def test_inner_loops():
    """What an inner loop folds is folded by the outer one, as often as its range says."""

    @tile.kernel
    def same(x, s):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for _tm in hl.tile(x.shape[0]):
                for j in hl.grid(s.shape[0]):
                    acc += s[j]
            y[g, :] = acc
        return y

    @tile.kernel
    def positions(x, s):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                for _ in hl.grid(tm.begin, tm.end):
                    acc += s[:]
            y[g, :] = acc
        return y

    with pytest.raises(ParseError, match="once for every tile of _tm"):
        same.source(X, S)
    np.testing.assert_allclose(positions(X, S)[0], 40 * S)


def test_blocks_that_the_author_wrote():
    """Their number is part of the program."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0], block_size=8):
            hl.atomic_add(y, [slice(None)], x[tm, :].amax(0))
        return y

    np.testing.assert_allclose(kernel(X), X.reshape(5, 8, 3).max(1).sum(0))

    @tile.kernel
    def last(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0], block_size=8):
                acc = x[tm, :].sum(0)
            y[g, :] = acc
        return y

    np.testing.assert_allclose(last(X)[0], X[32:].sum(0))


def test_what_is_made_of_another_element_is_made_again():
    """Every tile stores the same: that is no fold."""

    @tile.kernel
    def kernel(x, s):
        y = hl.zeros([4], dtype=hl.float32)
        for _ in hl.tile(x.shape[0]):
            for i in hl.grid(3):
                y[i + 1] = y[i] + s[i]
        return y

    np.testing.assert_allclose(kernel(X, S), [0, *np.cumsum(S[:3])], rtol=1e-6)


@tile.kernel
def flipped_bits(x, s):
    """The bits of s are flipped once for every tile."""
    y = hl.empty([1, x.shape[1]], dtype=hl.int32)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.int32)
        for _ in hl.tile(x.shape[0]):
            acc = acc ^ s[:]
        y[g, :] = acc
    return y


def test_bits_that_are_flipped_for_every_tile():
    with pytest.raises((ParseError, PlanError), match="takes in the same value once for every"):
        flipped_bits(X, S.astype(np.int32))


@pytest.mark.parametrize("time", ["once", "again"])
def test_what_is_called_while_something_is_patched_is_forgotten(monkeypatch, time):
    with pytest.raises((ParseError, PlanError), match="takes in the same value once for every"):
        flipped_bits(X, S.astype(np.int32))
    monkeypatch.setattr("tilelang.analysis.fold_facts", lambda *asked: ())
    assert flipped_bits(X, S.astype(np.int32)).shape == (1, X.shape[1])
