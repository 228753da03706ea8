"""Carries that go by the number of tiles, as numbers show it: refused, and no other."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_attention_backward import backward_q
from tests.analysis.test_folds import S, carried
from tilelang.analysis import cuts, drawn
from tilelang.errors import ParseError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((40, 3)).astype(np.float32)
IDS = np.sort(RNG.integers(0, 4, 40)).astype(np.int32)


def softmax(fold):
    """Online softmax, of which `fold` says what acc is next."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            m = hl.full([x.shape[1]], float("-inf"), dtype=hl.float32)
            total = acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                rows = x[tm, :]
                highest = hl.maximum(m, rows.amax(0))
                alpha = hl.exp(m - highest)
                p = hl.exp(rows - highest)
                total = total * alpha + p.sum(0)
                acc = fold(acc, alpha, p * rows, highest)
                m = highest
            y[g, :] = acc / total
        return y

    return kernel


def weighted(acc, alpha, rows, highest):
    return acc * alpha + rows.sum(0)


def turned(acc, alpha, rows, highest):
    return 2.0 - acc * alpha


def greatest(acc, alpha, rows, highest):
    return acc * alpha + rows.amax(0)


def shifted(acc, alpha, rows, highest):
    return acc * alpha + rows.sum(0) + 0.25


def halved(acc, alpha, rows, highest):
    return (acc * alpha + rows.sum(0)) * 0.5


def unscaled(acc, alpha, rows, highest):
    return acc + rows.sum(0)


@pytest.mark.parametrize("fold", [turned, greatest, shifted, halved, unscaled])
def test_what_an_online_softmax_must_not_do_once_for_every_tile(fold):
    with pytest.raises(ParseError) as caught:
        softmax(fold).source(X)
    assert caught.value.what == (
        "acc is changed once for every tile of tm: the result would depend on the block of tm"
    )
    assert "acc = fold(acc, alpha, p * rows, highest)" in str(caught.value)


def test_what_the_last_tile_made_though_it_goes_by_another_carry():
    with pytest.raises(ParseError, match="acc is what the last tile of tm made"):
        softmax(lambda acc, alpha, rows, highest: rows.sum(0)).source(X)


def test_what_other_carries_say_of_all_tiles_is_no_fold():
    """The maximum is that of all tiles so far, and so is what is computed of it."""
    p = np.exp(X - X.max(0))
    kernel = softmax(lambda acc, alpha, rows, highest: hl.exp(highest))
    holds(kernel, np.exp(X.max(0)) / p.sum(0), X)


def test_an_online_softmax():
    p = np.exp(X - X.max(0))
    holds(softmax(weighted), (p * X).sum(0) / p.sum(0), X)


def holds(kernel, want, *args):
    """The kernel gives this row, whatever its block."""
    for block in (8, 24, 64):
        made = kernel(*args, config=tile.Config({"tm": block}))
        np.testing.assert_allclose(made[0], want, rtol=1e-5, atol=1e-5)


def logsumexp(acc, rows, s, tm):
    return hl.log(hl.exp(acc) + hl.exp(rows).sum(0))


def norm(acc, rows, s, tm):
    return hl.sqrt(acc * acc + (rows * rows).sum(0))


def reciprocal(acc, rows, s, tm):
    return rows.sum(0) / (acc + 2.0)


def squared(acc, rows, s, tm):
    return acc * acc + rows.sum(0)


@pytest.mark.parametrize(
    ("step", "start", "want"),
    [
        (logsumexp, float("-inf"), np.log(np.exp(X).sum(0))),
        (norm, 0.0, np.sqrt((X * X).sum(0))),
    ],
    ids=["logsumexp", "norm"],
)
def test_what_is_taken_apart_and_put_together_again(step, start, want):
    holds(carried(step, start), want, X, S)


@pytest.mark.parametrize("step", [reciprocal, squared])
def test_one_carry_that_is_changed_beside_its_fold(step):
    with pytest.raises(ParseError, match="acc is changed once for every tile of tm"):
        carried(step).source(X, S)


def test_a_mean_and_a_variance_that_are_kept_up_to_date():
    """Chan, Golub and LeVeque's update: three carries, each of which goes by the others."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            mean = squares = hl.zeros([x.shape[1]], dtype=hl.float32)
            count = 0.0
            for tm in hl.tile(x.shape[0]):
                n = hl.full([tm], 1.0, dtype=hl.float32).sum(0)
                own = x[tm, :].sum(0) / n
                apart = own - mean
                squares = (
                    squares
                    + ((x[tm, :] - own[None, :]) * (x[tm, :] - own[None, :])).sum(0)
                    + apart * apart * (count * n / (count + n))
                )
                mean = mean + apart * (n / (count + n))
                count = count + n
            y[g, :] = squares / count
        return y

    holds(kernel, X.var(0), X)


def test_a_sum_that_carries_what_it_lost():
    """Kahan's: that what was lost differs by how the loop is cut is a rounding."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            total = lost = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                part = x[tm, :].sum(0) - lost
                more = total + part
                lost = (more - total) - part
                total = more
            y[g, :] = total
        return y

    holds(kernel, X.sum(0), X)


def test_a_reference_that_the_result_does_not_know():
    """A softmax around what drifts with the tiles: carries go by the cut, what is stored not."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            m = total = acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                rows = x[tm, :]
                above = m * 0.5 + rows.amax(0) + total * 0.125
                alpha = hl.exp(m - above)
                p = hl.exp(rows - above)
                total = total * alpha + p.sum(0)
                acc = acc * alpha + (p * rows).sum(0)
                m = above
            y[g, :] = acc / total
        return y

    p = np.exp(X - X.max(0))
    holds(kernel, (p * X).sum(0) / p.sum(0), X)


def test_a_choice_that_ids_in_order_make_right():
    """The rows of the last id, since ids do not fall: what an author knows, a kernel may use."""

    @tile.kernel
    def kernel(x, ids):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            last = hl.full([], -1, dtype=hl.int32)
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                new = ids[tm].amax(0)
                rows = hl.where((ids[tm] == new)[:, None], x[tm, :], 0.0)
                acc = hl.where(new == last, acc, 0.0) + rows.sum(0)
                last = hl.maximum(last, new)
            y[g, :] = acc
        return y

    holds(kernel, X[IDS[-1] == IDS].sum(0), X, IDS)


def test_loops_inside_and_around():
    """Pages of rows: the carry goes through a loop over pages and one over their rows."""

    def pages(fold):
        @tile.kernel
        def kernel(x, table):
            y = hl.empty([2, x.shape[1]], dtype=hl.float32)
            for g in hl.grid(2):
                m = hl.full([x.shape[1]], float("-inf"), dtype=hl.float32)
                total = hl.zeros([x.shape[1]], dtype=hl.float32)
                for p in hl.grid(2):
                    for tm in hl.tile(5):
                        rows = x[table[g, p] * 5 + tm.index, :]
                        highest = hl.maximum(m, rows.amax(0))
                        total = fold(total * hl.exp(m - highest), hl.exp(rows - highest))
                        m = highest
                y[g, :] = m + hl.log(total)
            return y

        return kernel

    table = np.array([[3, 1], [0, 7]], np.int32)
    rows = [np.concatenate([X[5 * p : 5 * p + 5] for p in pair]) for pair in table]
    made = pages(lambda old, p: old + p.sum(0))(X, table)
    np.testing.assert_allclose(made, [np.log(np.exp(r).sum(0)) for r in rows], rtol=1e-5)
    with pytest.raises(ParseError, match="total is changed once for every tile of tm"):
        pages(lambda old, p: old + p.amin(0)).source(X, table)


def stored_before(fold):
    """A fold of rows that the kernel has stored."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for tn in hl.tile(x.shape[0]):
            x[tn, :] = x[tn, :] * 2.0
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                acc = fold(acc, x[tm, :])
            y[g, :] = acc
        return y

    return kernel


def last(acc, rows):
    return rows.sum(0)


def test_a_sum_of_what_the_kernel_stored_before():
    made = stored_before(lambda acc, rows: acc + rows.sum(0))(X.copy())
    np.testing.assert_allclose(made[0], 2.0 * X.sum(0), rtol=1e-5)


def of_many_turns(fold):
    """A fold of rows that a loop makes of more turns than are computed where tiles count them."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                rows = x[tm, :]
                for _ in hl.grid(tm.begin, tm.begin + 80):
                    rows = rows * 0.5 + x[0, 0]
                acc = fold(acc, rows)
            y[g, :] = acc
        return y

    return kernel


@pytest.mark.parametrize("fold", [last, lambda acc, rows: acc + rows.amax(0)])
def test_what_the_form_shows_needs_no_numbers(fold):
    with pytest.raises(ParseError, match="the result would depend on the block of tm"):
        of_many_turns(fold).source(X)


def of_so_many(rows):
    """What every tile makes of its rows, of which there are so many."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(rows):
                upto = hl.where(tm.index[:, None] >= tm.index[None, :], 1.0, 0.0)
                acc = acc + hl.dot(upto, x[tm, :]).sum(0)
            y[g, :] = acc
        return y

    return kernel


@pytest.mark.parametrize("rows", [2, 3, 40])
def test_ranges_of_few_rows_are_cut_too(rows):
    with pytest.raises(ParseError, match="the result would depend on the block of tm"):
        of_so_many(rows).source(X)


def test_one_row_is_one_tile():
    np.testing.assert_allclose(of_so_many(1)(X)[0], X[0], rtol=1e-6)


def left_behind(where):
    """A part of what is carried is stored by every tile, before or after it is complete."""

    @tile.kernel
    def kernel(x):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            m = hl.full([x.shape[1]], float("-inf"), dtype=hl.float32)
            total = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                highest = hl.maximum(m, x[tm, :].amax(0))
                total = total * hl.exp(m - highest)
                if where == "before":
                    y[g, :] = total
                if where == "before, if" and (x[0, 0] + 9.0 > 0.0):
                    y[g, :] = total
                total = total + hl.exp(x[tm, :] - highest).sum(0)
                m = highest
                if where == "after":
                    y[g, :] = total
        return y

    return kernel


def test_what_the_last_tile_stores_of_a_carry():
    holds(left_behind("after"), np.exp(X - X.max(0)).sum(0), X)
    with pytest.raises(ParseError, match="every tile of tm stores to the same elements of y"):
        left_behind("before, if").source(X)
    with pytest.raises(ParseError) as caught:
        left_behind("before").source(X)
    assert caught.value.what == (
        "every tile of tm stores to the same elements of y, and another value: the result would "
        "depend on the block of tm"
    )
    assert caught.value.hint == (
        "store what the loop of tm carries after it, or fix the tiles: hl.tile(..., block_size=...)"
    )


@pytest.mark.parametrize("least", [1, 5, 500])
def test_a_condition_that_memory_decides(least):
    """A weight that only some calls leave out, by a number that may be small or large."""

    @tile.kernel
    def kernel(x, n):
        y = hl.empty([1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(1):
            m = hl.full([x.shape[1]], float("-inf"), dtype=hl.float32)
            total = hl.zeros([x.shape[1]], dtype=hl.float32)
            for tm in hl.tile(x.shape[0]):
                highest = hl.maximum(m, x[tm, :].amax(0))
                if n[()] < least:
                    total = total * hl.exp(m - highest)
                total = total + hl.exp(x[tm, :] - highest).sum(0)
                m = highest
            y[g, :] = total
        return y

    with pytest.raises(ParseError, match="total is changed once for every tile of tm"):
        kernel.source(X, np.array(0, np.int32))


def in_two_loops(value, other=None):
    """Rows that one loop stores, and what another one makes of them."""

    @tile.kernel
    def kernel(x):
        rows = hl.zeros(x.shape, dtype=hl.float32)
        y = hl.empty(x.shape, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            rows[t, :] = value(x[t, :], t)
        for tn in hl.tile(x.shape[0]):
            y[tn, :] = rows[tn, :] * 2.0 if other is None else other(rows[tn, :], tn)
        return y

    return kernel


BY_THE_TILE = {
    "mean": lambda rows, t: rows - rows.mean(0)[None, :],
    "place": lambda rows, t: rows * (t.index - t.begin)[:, None],
    "length": lambda rows, t: rows * (t.end - t.begin),
    "number": lambda rows, t: rows + t.count,
}


@pytest.mark.parametrize("value", BY_THE_TILE.values(), ids=BY_THE_TILE)
def test_what_another_loop_reads_of_single_tiles(value):
    with pytest.raises(ParseError) as caught:
        in_two_loops(value).source(X)
    assert caught.value.what == (
        "rows at one position of t goes by which others are in its tile: the result would depend "
        "on the block of t"
    )
    assert "rows[t, :] = value(x[t, :], t)" in str(caught.value)


@pytest.mark.parametrize("value", BY_THE_TILE.values(), ids=BY_THE_TILE)
def test_what_another_loop_makes_of_tiles_of_rows_that_were_stored(value):
    with pytest.raises(ParseError, match="y at one position of tn goes by which others are in its"):
        in_two_loops(lambda rows, t: rows + 1.0, value).source(X)


def test_what_a_condition_on_a_tile_leaves_to_another_loop():
    """Both loops store to the rows, so that the one does not know what was there before."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros(x.shape, dtype=hl.float32)
        for tn in hl.tile(x.shape[0]):
            y[tn, :] = x[tn, :]
        for t in hl.tile(x.shape[0]):
            if t.end - t.begin < 20:
                y[t, :] = hl.zeros([t, x.shape[1]], dtype=hl.float32)
        return y

    with pytest.raises(ParseError, match="y at one position of t goes by which others are in its"):
        kernel.source(X)


def test_how_many_tiles_there_are():
    @tile.kernel
    def kernel(x):
        n = hl.zeros([1], dtype=hl.int32)
        y = hl.empty(x.shape, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            n[0] = t.count
        for tn in hl.tile(x.shape[0]):
            y[tn, :] = x[tn, :] * n[0]
        return y

    with pytest.raises(ParseError, match="every tile of t stores to the same elements of n"):
        kernel.source(X)


def test_what_a_loop_in_the_same_tiles_sets_right():
    """A running sum: each tile by itself, and then what the tiles before it make."""

    @tile.kernel
    def kernel(x):
        rows = hl.zeros(x.shape, dtype=hl.float32)
        y = hl.empty(x.shape, dtype=hl.float32)
        block = hl.register_block_size(64)
        for t in hl.tile(x.shape[0], block_size=block):
            upto = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
            rows[t, :] = hl.dot(upto, x[t, :])
        before = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tn in hl.tile(x.shape[0], block_size=block):
            y[tn, :] = rows[tn, :] + before[None, :]
            before = before + x[tn, :].sum(0)
        return y

    for block in (8, 24, 64):
        made = kernel(X, config=tile.Config({"block": block}))
        np.testing.assert_allclose(made, np.cumsum(X, 0), rtol=1e-4, atol=1e-4)


def by_sign(value, columns):
    """What goes by the sign of a sum over a tile, of a row or added up."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros(x.shape, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            y[t, :] = value(x[t, :])
        return y

    return kernel, np.ones((40, columns), np.float32)


SIGNS = {
    "where": lambda rows: hl.where(rows.sum(0) > 0, rows, -rows),
    "mean": lambda rows: hl.where(rows.mean() > 0, rows, 0.0),
    "greatest": lambda rows: rows * (rows.amax(0) < 0.0).to(hl.float32),
}
FOLDED = {
    "relu": lambda acc, rows: acc + hl.maximum(rows.sum(0), 0.0),
    "size": lambda acc, rows: acc + hl.abs(rows.sum(0)),
    "not below 0": lambda acc, rows: hl.maximum(acc + rows.sum(0), 0.0),
}


@pytest.mark.parametrize("columns", [1, 4, 64])
@pytest.mark.parametrize("value", SIGNS.values(), ids=SIGNS)
def test_what_goes_by_the_sign_of_a_tile(value, columns):
    kernel, x = by_sign(value, columns)
    with pytest.raises(ParseError, match="y at one position of t goes by which others are in its"):
        kernel.source(x)


@pytest.mark.parametrize("fold", FOLDED.values(), ids=FOLDED)
def test_a_carry_that_goes_by_the_sign_of_a_tile(fold):
    with pytest.raises(ParseError, match="acc is changed once for every tile of tm"):
        carried(lambda acc, rows, s, tm: fold(acc, rows), 0.0).source(X, S)


def test_planted_numbers_of_one_sign(monkeypatch):
    monkeypatch.setattr(drawn, "SIGNS", ())
    kernel, x = by_sign(SIGNS["mean"], 4)
    kernel.source(x)


def test_planted_memory_of_which_nothing_is_known(monkeypatch):
    """As where all that another loop stores could set anything right."""
    everything = frozenset({"rows", "y"})
    monkeypatch.setattr(cuts, "_shared", lambda *given: everything)
    mean = BY_THE_TILE["mean"]
    for values in ((mean,), (lambda rows, t: rows, mean)):
        in_two_loops(*values).source(X)


@pytest.mark.parametrize("rows", [38, 100])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_numbers_that_cancel_are_no_difference(rows, dtype):
    """Of numbers of both signs exp makes 1e9: in float32 sums differ by more than what is left."""
    values, saved = tile.spec((4, rows, 64), dtype), tile.spec((4, rows), "float32")
    given = (*[values] * 4, saved, values, tile.spec((4,), "int32"))
    assert tile.kernel(backward_q.__wrapped__).lower(*given).facts.folds == ()
