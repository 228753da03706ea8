"""What goes by tiles at large numbers alone: limits that are followed to what they are asked of."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import ParseError

RNG = np.random.default_rng(7)
X = np.abs(RNG.standard_normal((300, 4)) * 500).astype(np.float32)
IDS = np.repeat(np.arange(30), 10).astype(np.int32)


def summed(step):
    """What `step` makes of a sum so far and the rows of a tile."""

    @tile.kernel
    def kernel(x, ids):
        y = hl.zeros([1, x.shape[1]])
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]])
            for t in hl.tile(x.shape[0]):
                acc = step(acc, x[t, :], t)
            y[g, :] = acc
        return y

    return kernel


def rows(made):
    """What `made` says of the rows of a tile, which have ids."""

    @tile.kernel
    def kernel(x, ids):
        y = hl.zeros(x.shape)
        for t in hl.tile(x.shape[0]):
            y[t, :] = made(x[t, :], ids[t], t)
        return y

    return kernel


def behind(first, weight):
    """Rows from `first` of the tile on, added up in `weight`s of two positions."""

    @tile.kernel
    def kernel(x, ids):
        y = hl.zeros(x.shape)
        for t in hl.tile(x.shape[0]):
            acc = hl.zeros([t, x.shape[1]])
            for k in hl.tile(first(t), t.end, max_extent=x.shape[0]):
                near = weight(t.index[:, None], k.index[None, :])
                acc = hl.dot(hl.where(near, 1.0, 0.0), x[k, :], acc=acc)
            y[t, :] = acc
        return y

    return kernel


def turned(turns, made):
    """A loop of so many turns inside of one over tiles."""

    @tile.kernel
    def kernel(x, ids):
        y = hl.zeros([1, x.shape[1]])
        for g in hl.grid(1):
            acc = hl.zeros([x.shape[1]])
            for t in hl.tile(x.shape[0]):
                for _ in hl.grid(turns):
                    acc = acc + made(x[t, :]) * 0.125
            y[g, :] = acc
        return y

    return kernel


def multiplied(made):
    """Products that a loop over many columns sums up, and what `made` says of their rows."""

    @tile.kernel
    def kernel(x, ids):
        y = hl.zeros(x.shape)
        for t in hl.tile(x.shape[0]):
            acc = hl.zeros([t, x.shape[1]])
            for k in hl.tile(x.shape[0]):
                acc = hl.dot(x[t, :], hl.dot(x[k, :].T, x[k, :]) * 1e-6, acc=acc)
            y[t, :] = made(acc)
        return y

    return kernel


def same_chunk(t, size):
    return t.index[:, None] // size == t.index[None, :] // size


def late(t):
    """The last positions of every hundred."""
    return t.index[:, None] % 100 > 90


REFUSED = {
    "less than a thousand": summed(lambda acc, x, t: acc + hl.minimum(x.sum(0), 1000.0)),
    "between two": summed(lambda acc, x, t: acc + hl.clamp(x.sum(0), -1024.0, 1024.0)),
    "what is above": summed(lambda acc, x, t: hl.maximum(acc, x.sum(0) - 20000.0)),
    "what is above a filled one": summed(
        lambda acc, x, t: hl.maximum(acc, x.sum(0) - hl.full([4], 20000.0))
    ),
    "a part of it": summed(lambda acc, x, t: acc + hl.where(x.sum(0) * 0.001 > 1.0, x.sum(0), 0.0)),
    "a curve": summed(lambda acc, x, t: acc + hl.tanh(x.sum(0) * 0.0001)),
    "a byte": summed(lambda acc, x, t: acc + x.sum(0).to(hl.int32).to(hl.int8).to(hl.float32)),
    "every 64th": summed(lambda acc, x, t: hl.where(t.begin % 64 == 0, 0.0, acc) + x.sum(0)),
    "the third chunk": rows(lambda x, ids, t: x * hl.where(t.begin // 40 > 2, 2.0, 1.0)),
    "a chunk as far as it goes": rows(
        lambda x, ids, t: hl.dot(hl.where(same_chunk(t, 100) & late(t), 1.0, 0.0), x)
    ),
    "rows with one id": rows(
        lambda x, ids, t: hl.dot(
            hl.where((ids[:, None] == ids[None, :]) & (ids[:, None] > 20), 1.0, 0.0), x
        )
    ),
    "from before the tile": behind(
        lambda t: hl.maximum(t.begin - 200 - 17, 0), lambda q, k: k <= q
    ),
    "from the chunk": behind(lambda t: t.begin // 64 * 64, lambda q, k: k <= q),
    "twenty turns": turned(20, lambda x: hl.maximum(x.sum(0) - 1.0, 0.0)),
    "a mean of products": multiplied(lambda acc: acc - acc.mean(0)[None, :]),
}
TAKEN = {
    "rows less than a thousand": summed(lambda acc, x, t: acc + hl.minimum(x, 1000.0).sum(0)),
    "rows less than a filled thousand": summed(
        lambda acc, x, t: acc + hl.minimum(x, hl.full([4], 1000.0)[None, :]).sum(0)
    ),
    "the greatest, less a thousand": summed(lambda acc, x, t: hl.maximum(acc, x.amax(0) - 1000.0)),
    "the greatest, or one number": summed(
        lambda acc, x, t: hl.maximum(hl.maximum(acc, hl.full(acc.shape, 2.0)), x.amax(0))
    ),
    "rows of the third chunk": rows(
        lambda x, ids, t: x * hl.where(t.index[:, None] // 40 > 2, 2.0, 1.0)
    ),
    "rows of ids": rows(lambda x, ids, t: x * hl.where(ids[:, None] > 20, 2.0, 1.0)),
    "a window": behind(
        lambda t: hl.maximum(t.begin - 200 - 17, 0), lambda q, k: (k <= q) & (q - k <= 217)
    ),
    "a chunk": behind(lambda t: t.begin // 64 * 64, lambda q, k: (k <= q) & (k // 64 == q // 64)),
    "twenty turns of sums": turned(20, lambda x: x.sum(0)),
    "products less those of their row": multiplied(lambda acc: acc - acc.mean(1)[:, None]),
}


@pytest.mark.parametrize("kernel", REFUSED.values(), ids=REFUSED)
def test_what_large_numbers_show_is_refused(kernel):
    with pytest.raises(ParseError, match="the result would depend on the block of t"):
        kernel.source(X, IDS)


@pytest.mark.parametrize("kernel", TAKEN.values(), ids=TAKEN)
def test_what_is_the_same_in_all_blocks_is_taken(kernel):
    names = dict(kernel.default_config(X, IDS).blocks)
    small, large = (kernel.reference(X, IDS, blocks=dict.fromkeys(names, b)) for b in (4, 200))
    near = {"rtol": 1e-4, "atol": 1e-5 * np.abs(large).max()}
    np.testing.assert_allclose(small, large, **near)
    np.testing.assert_allclose(kernel(X, IDS), large, **near)
