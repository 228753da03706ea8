"""What is stored at one position must not go by its tile: seen in numbers, and refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.analysis import thresholds
from tilelang.errors import ParseError

RNG = np.random.default_rng(6)
X = RNG.standard_normal((40, 4)).astype(np.float32)
OFFSETS = np.array([0, 0, 5, 6, 29, 40], np.int32)


def causal(x):
    """Attention of rows to themselves and those before."""
    scores = np.where(np.tri(len(x), dtype=bool), x @ x.T, -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True, initial=-1e9))
    return (p / p.sum(1, keepdims=True)) @ x


# ---------------------------------------------------------------- refused


def causal_without_a_mask(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        acc = hl.zeros([t, x.shape[1]], dtype=hl.float32)
        for tk in hl.tile(t.end):
            acc = acc + hl.dot(hl.dot(x[t, :], x[tk, :].T), x[tk, :])
        y[t, :] = acc
    return y


def ragged_without_a_mask(x, offsets):
    y = hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc = hl.zeros([t, x.shape[1]], dtype=hl.float32)
            for tk in hl.tile(offsets[g], t.end):
                acc = acc + hl.dot(hl.sigmoid(hl.dot(x[t, :], x[tk, :].T)), x[tk, :])
            y[t, :] = acc
    return y


def times_the_length(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * (t.end - t.begin)
    return y


def in_short_tiles(x, n):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        if t.end - t.begin < 5:
            y[t, :] = x[t, :]
    return y


def in_tiles_of_one_length(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(n[1], n[2], max_extent=x.shape[0]):
        y[t, :] = hl.where(t.end - t.begin == 128, x[t, :], 0)
    return y


def in_longer_tiles(x, n):
    """The length has a name, and the number is more than a loop of few positions has."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        length = t.end - t.begin
        if length > 100:
            y[t, :] = x[t, :]
        else:
            y[t, :] = -x[t, :]
    return y


def times_the_number(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * t.id
    return y


def less_the_mean(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] - x[t, :].mean(0)[None, :]
    return y


def in_place(x, n):
    for t in hl.tile(x.shape[0]):
        x[t, :] = x[t, :] / x[t, :].amax(0)[None, :]


def in_two_steps(x, n):
    for t in hl.tile(x.shape[0]):
        x[t, :] = x[t, :] - x[t, :].amax(0)[None, :]
        x[t, :] = x[t, :] * 2.0


def sum_so_far(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            acc = acc + x[t, :].sum(0)
            y[t, :] = x[t, :] + (acc * n[g])[None, :]
    return y


def picked_rows(x, n):
    y = hl.zeros([64, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [t.index // 2, slice(None)], x[t, :] - x[t, :].amax(0)[None, :])
    return y


def block_of_pairs(x, n):
    y = hl.zeros([x.shape[0], x.shape[0]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        for tk in hl.tile(t.begin, t.end):
            y[t, tk] = hl.dot(x[t, :], x[tk, :].T)
    return y


REFUSED = [
    causal_without_a_mask, ragged_without_a_mask, times_the_length, in_short_tiles,
    times_the_number, less_the_mean, in_place, in_two_steps, sum_so_far, picked_rows,
    block_of_pairs,
]  # fmt: skip
TENSORS = {in_place: "x", in_two_steps: "x"}


@pytest.mark.parametrize("fn", REFUSED, ids=lambda f: f.__name__)
def test_what_goes_by_the_tile_is_refused(fn):
    with pytest.raises(ParseError) as caught:
        tile.kernel(fn).source(X, OFFSETS)
    assert caught.value.what == (
        f"{TENSORS.get(fn, 'y')} at one position of t goes by which others are in its tile: the "
        "result would depend on the block of t"
    )


UPDATES = {
    "root": lambda rows: hl.sqrt(rows.sum(0)),
    "mean": lambda rows: rows.mean(0),
    "one more": lambda rows: rows.sum(0) + 1.0,
}


@pytest.mark.parametrize("value", UPDATES.values(), ids=UPDATES)
def test_what_every_tile_adds_in_one_place(value):
    @tile.kernel
    def added(x):
        y = hl.zeros([x.shape[1]], dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            hl.atomic_add(y, [slice(None)], value(x[t, :]))
        return y

    with pytest.raises(ParseError) as caught:
        added.source(X)
    assert "hl.atomic_add(y, [slice(None)], value(x[t, :]))" in str(caught.value)
    assert caught.value.what == (
        "y takes in one value for every tile of t, which is not the sum of those of its positions: "
        "the result would depend on the block of t"
    )
    assert caught.value.hint == (
        "take in the sum over t alone, and compute what is made of it, such as a root or a mean, "
        "after the loop of t; or fix the tiles: hl.tile(..., block_size=...)"
    )


@pytest.mark.parametrize("fn", [in_tiles_of_one_length, in_longer_tiles], ids=lambda f: f.__name__)
def test_tiles_as_long_as_what_they_are_compared_with_are_tried(fn, monkeypatch):
    arguments = tile.spec((300, 4), "float32"), tile.spec((4,), "int32")
    with pytest.raises(ParseError, match="at one position of t goes by which others"):
        tile.kernel(fn).source(*arguments)
    if fn is in_longer_tiles:  # no tile of 40 rows is so long
        tile.kernel(fn).source(tile.spec((40, 4), "float32"), arguments[1])
    monkeypatch.setattr(thresholds, "COMPARED", 64)
    tile.kernel(fn).source(*arguments)


def test_the_line_and_what_to_write_instead():
    with pytest.raises(ParseError) as caught:
        tile.kernel(causal_without_a_mask).source(X, OFFSETS)
    assert "y[t, :] = acc" in str(caught.value)
    assert caught.value.hint == (
        "leave out those that it must not see, hl.where(..., 0), carry what goes over several "
        "tiles, give each tile a place, [t.id], or fix the tiles: hl.tile(..., block_size=...)"
    )


@pytest.mark.parametrize("fn", [less_the_mean, times_the_length], ids=lambda f: f.__name__)
def test_a_fixed_block_is_a_constant_of_the_kernel(fn):
    """And so are bounds that leave one: no config has another."""

    def fixed(block):
        @tile.kernel
        def kernel(x):
            y = hl.empty(x.shape, dtype=x.dtype)
            own = hl.register_block_size(block, block) if block == 16 else 8
            for t in hl.tile(x.shape[0], block_size=own):
                if fn is less_the_mean:
                    y[t, :] = x[t, :] - x[t, :].mean(0)[None, :]
                else:
                    y[t, :] = x[t, :] * (t.end - t.begin)
            return y

        return kernel

    for block in (8, 16):
        tiles = [X[i : i + block] for i in range(0, 40, block)]
        made = [v - v.mean(0) if fn is less_the_mean else v * len(v) for v in tiles]
        np.testing.assert_allclose(fixed(block)(X), np.concatenate(made), rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- taken


def masked_causal(x, offsets):
    y = hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            m = hl.full([t], float("-inf"), dtype=hl.float32)
            total = hl.zeros([t], dtype=hl.float32)
            acc = hl.zeros([t, x.shape[1]], dtype=hl.float32)
            for tk in hl.tile(offsets[g], t.end):
                seen = tk.index[None, :] <= t.index[:, None]
                scores = hl.where(seen, hl.dot(x[t, :], x[tk, :].T), float("-inf"))
                highest = hl.maximum(m, scores.amax(1))
                p = hl.exp(scores - highest[:, None])
                alpha = hl.exp(m - highest)
                total = total * alpha + p.sum(1)
                acc = acc * alpha[:, None] + hl.dot(p, x[tk, :])
                m = highest
            y[t, :] = acc / total[:, None]
    return y


def running_sum(x, offsets):
    """Whatever the tile is, what it adds before the row and behind it cancels out."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            below = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
            y[t, :] = hl.dot(below, x[t, :]) + acc[None, :]
            acc = acc + x[t, :].sum(0)
    return y


def around_the_greatest(x, offsets):
    """A softmax of each row around a number that goes by the tile."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        p = hl.exp(x[t, :] - x[t, :].amax(0).amax(0))
        y[t, :] = p / p.sum(1)[:, None]
    return y


def where_any_is(x, offsets):
    """Tiles of which no row is stored leave what was there."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        if t.end > 5:
            y[t, :] = hl.where(t.index[:, None] < 5, 0.0, x[t, :])
    return y


def groups_of_a_tile(x, offsets):
    """Rows by number of their group, which rises: no tile asks more groups than it has."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        acc = hl.zeros([t, x.shape[1]], dtype=hl.float32)
        for k in hl.grid(t.begin // 3, (t.end - 1) // 3 + 1):
            acc = acc + hl.where((t.index // 3 == k)[:, None], x[t, :] * (k + 1), 0.0)
        y[t, :] = acc
    return y


def row_by_row(x, offsets):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        for i in hl.grid(t.begin, t.end):
            y[i, :] = x[i, :] * 2.0
    return y


def of_each_tile(x, offsets):
    """A place for each tile is what its author asks for."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t.begin, :] = x[t, :].sum(0)
    return y


def overwritten_later(x):
    """Tiles leave their sequence: the next one stores there, and none has rows behind the last."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(5):
        for t in hl.tile(16):
            start = 3 * g + g * (g - 1) // 2
            if t.begin < g + 3:
                y[t.index + start, :] = x[t.index + start, :] * (g + 1)
    return y


def set_right_later(x, offsets):
    """What a tile knows of a running sum; another loop adds what the tiles before it came to."""
    block = hl.register_block_size(8, 40)
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=block):
        below = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
        y[t, :] = hl.dot(below, x[t, :])
    for _g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tb in hl.tile(x.shape[0], block_size=block):
            y[tb, :] = y[tb, :] + acc[None, :]
            acc = acc + x[tb, :].sum(0)
    return y


def _groups(of):
    return np.concatenate([of(X[a:b]) for a, b in pairwise(OFFSETS)])


P = np.exp(X - X.max(1, keepdims=True))
TAKEN = {
    masked_causal: _groups(causal),
    running_sum: _groups(lambda x: x.cumsum(0)),
    around_the_greatest: P / P.sum(1, keepdims=True),
    where_any_is: np.where(np.arange(40)[:, None] < 5, 0.0, X),
    groups_of_a_tile: X * (np.arange(40) // 3 + 1)[:, None].astype(np.float32),
    row_by_row: X * 2.0,
    set_right_later: X.cumsum(0),
}  # fmt: skip


@pytest.mark.parametrize("fn", TAKEN, ids=lambda f: f.__name__)
def test_what_cancels_out_is_taken(fn):
    kernel = tile.kernel(fn)
    for block in (8, 16, 40):
        name = "block" if fn is set_right_later else "t"
        made = kernel(X.copy(), OFFSETS, config=tile.Config({name: block}))
        np.testing.assert_allclose(made, TAKEN[fn], rtol=1e-4, atol=1e-5)


def test_what_the_next_turn_of_a_loop_around_stores_over_is_taken():
    for block in (2, 8, 16):
        made = tile.kernel(overwritten_later)(X[:25], config=tile.Config({"t": block}))
        np.testing.assert_allclose(made, X[:25] * np.repeat(np.arange(1, 6), range(3, 8))[:, None])


def test_a_place_for_each_tile_is_taken():
    for block in (8, 40):
        made = tile.kernel(of_each_tile)(X, OFFSETS, config=tile.Config({"t": block}))
        np.testing.assert_allclose(made.sum(0), X.sum(0), rtol=1e-5, atol=1e-5)
