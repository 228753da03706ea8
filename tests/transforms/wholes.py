"""Kernels that take dimensions whole, by `:`, which a mesh splits all the same."""

from __future__ import annotations

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def whole_product(x, w, offsets):
    """y[r] = silu(x[r] @ w[g]) for rows r of group g."""
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.silu(hl.dot(x[t, :], w[g, :, :])).to(x.dtype)
    return y


@tile.kernel
def whole_sums(x, offsets):
    """The sum of each group's rows, all columns of them at once."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total = total + x[t, :].sum(0)
        y[g, :] = total.to(x.dtype)
    return y


@tile.kernel
def whole_norm(x, scale):
    """Rows minus their mean, over their deviation, times a scale for each column."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        row = x[t, :]
        centred = row - (row.sum(1) / x.shape[1])[:, None]
        variance = (centred * centred).sum(1) / x.shape[1]
        y[t, :] = (centred * hl.rsqrt(variance + 1e-5)[:, None] * scale[:]).to(x.dtype)
    return y


@tile.kernel
def whole_softmax(x):
    """Softmax of rows."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        row = x[t, :]
        weights = hl.exp(row - row.amax(1)[:, None])
        y[t, :] = (weights / weights.sum(1)[:, None]).to(x.dtype)
    return y


@tile.kernel
def whole_softmax_at_once(x):
    """The same in one statement, in which a sum is of what has the largest taken off."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = hl.softmax(x[t, :], 1).to(x.dtype)
    return y


@tile.kernel
def whole_argmax(x):
    """Where the largest of each row is, which is not put together of parts."""
    y = hl.empty([x.shape[0]], dtype=hl.int32)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t, :].argmax(1)
    return y
