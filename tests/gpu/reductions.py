"""Kernels whose reductions are split: other ops, several at once, and where results may lie."""

from __future__ import annotations

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def extremes(x, offsets):
    """Carries of three ops, one of which begins with what memory holds; nothing is NaN by habit."""
    G, F = offsets.shape[0] - 1, x.shape[1]
    high, low, total = (hl.empty([G, F], dtype=hl.float32) for _ in range(3))
    for g in hl.grid(G):
        for tf in hl.tile(F):
            most = hl.full([tf], float("-inf"), dtype=hl.float32)
            least = hl.full([tf], 3.0, dtype=hl.float32)
            acc = x[0, tf]
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
                most = hl.maximum(most, hl.amax(x[tm, tf], 0))
                least = hl.minimum(least, hl.amin(x[tm, tf], 0))
                acc += x[tm, tf].sum(0)
            high[g, tf] = most
            low[g, tf] = least
            total[g, tf] = acc * 2.0
    return high, low, total


@tile.kernel
def numbers(x, offsets):
    """The same of integers, which have no infinity; nothing is summed in a row of its own."""
    G = offsets.shape[0] - 1
    high, total = (hl.empty([G], dtype=hl.int32) for _ in range(2))
    for g in hl.grid(G):
        most, acc = hl.full([], -2147483648, dtype=hl.int32), hl.zeros([], dtype=hl.int32)
        for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            most = hl.maximum(most, hl.amax(x[tm], 0))
            acc += x[tm].sum(0)
        high[g] = most
        total[g] = acc
    return high, total


@tile.kernel
def products(x, w):
    """A product of 3 x 20 at a time, and rows that begin behind the first one."""
    M, K = x.shape
    y = hl.zeros([M, w.shape[1]], dtype=hl.float32)
    for tm in hl.tile(2, M):
        acc = hl.zeros([tm, w.shape[1]], dtype=hl.float32)
        for tk in hl.tile(K):
            acc = hl.dot(x[tm, tk], w[tk, :], acc=acc)
        y[tm, :] = acc
    return y


@tile.kernel
def tile_sums(x, offsets):
    """A scalar per tile of columns: what is added up has no dimension of the tile."""
    G, F = offsets.shape[0] - 1, x.shape[1]
    y = hl.zeros([G, F], dtype=hl.float32)
    for g in hl.grid(G):
        for tf in hl.tile(F, block_size=8):
            acc = hl.zeros([], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
                acc += x[tm, tf].sum(1).sum(0)
            y[g, tf] = hl.zeros([tf], dtype=hl.float32) + acc
    return y


@tile.kernel
def weights(x, dy):
    """The gradient of weights that are multiplied with every row."""
    out = hl.zeros([x.shape[1]], dtype=hl.float32)
    for _ in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            acc = acc + (x[tm, :] * dy[tm, :]).sum(0)
        out[:] = acc
    return out
