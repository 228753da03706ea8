"""Views whose dimensions do not lie in one row: permuted, then reshaped."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.gpu import machine

if machine.LACKS:
    pytest.skip(machine.LACKS, allow_module_level=True)

pytestmark = machine.MARKS
OFFSETS = np.int32([0, 0, 7, 30, 30, 41])


@tile.kernel
def turned_line(x):
    """A line of columns, in tiles that begin anywhere in a column."""
    v = x.T.reshape(-1)
    y = hl.zeros([v.shape[0]], dtype=x.dtype)
    for t in hl.tile(v.shape[0]):
        y[t] = v[t] + 1.0
    return y


@tile.kernel
def heads_beside(q, w):
    """Heads of [heads, rows, columns] side by side, as the keys of a product."""
    v = q.permute(1, 0, 2).reshape(q.shape[1], q.shape[0] * q.shape[2])
    y = hl.zeros([v.shape[0], w.shape[1]], dtype=hl.float32)
    for t, n in hl.tile([v.shape[0], w.shape[1]]):
        acc = hl.zeros([t, n], dtype=hl.float32)
        for k in hl.tile(v.shape[1]):
            acc = hl.dot(v[t, k], w[k, n], acc=acc)
        y[t, n] = acc
    return y


@tile.kernel
def ragged_line(x, offsets):
    """Ranges of a line that is turned, one after the other; what is behind them is not read."""
    v = x.T.reshape(-1)
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc += v[t].to(hl.float32).sum(0)
        y[g] = acc
    return y


@tile.kernel
def picked_rows(x, rows):
    """Rows that memory names, of pairs of dimensions that lie apart."""
    v = x.permute(1, 0, 2).reshape(x.shape[0] * x.shape[1], x.shape[2])
    y = hl.zeros([rows.shape[0], x.shape[2]], dtype=x.dtype)
    for t in hl.tile(rows.shape[0]):
        y[t, :] = v[rows[t], :]
    return y


@tile.kernel
def one_row(x, at):
    """A row whose number is read: what is outside is kept inside."""
    v = x.permute(1, 0, 2).reshape(x.shape[0] * x.shape[1], x.shape[2])
    y = hl.zeros([at.shape[0], x.shape[2]], dtype=x.dtype)
    for i in hl.grid(at.shape[0]):
        y[i, :] = v[at[i], :] + v[3, :]
    return y


@tile.kernel
def stored_heads(x, offsets):
    """Columns that are stored to as heads, of rows of groups."""
    y = hl.full([x.shape[0], x.shape[1] * x.shape[2]], -1.0, dtype=x.dtype)
    v = y.reshape(x.shape).permute(1, 0, 2)
    for h, g in hl.grid([x.shape[1], offsets.shape[0] - 1]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v[h, t, :] = x[t, h, :] * 2.0
    return y


def there(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def twice_in_heads(x, offsets):
    rows = np.full((x.shape[0], x.shape[1] * x.shape[2]), -1, x.dtype)
    rows[: offsets[-1]] = 2 * x.reshape(x.shape[0], -1)[: offsets[-1]]
    return rows


TILES = {
    stored_heads: "t",
    turned_line: "t",
    heads_beside: "tnk",
    ragged_line: "t",
    picked_rows: "t",
    one_row: "",
}
CASES = {
    "a line": (turned_line, (there(13, 20),), lambda x: x.T.reshape(-1) + 1),
    "heads": (
        heads_beside,
        (there(3, 21, 24), there(72, 40)),
        lambda q, w: q.transpose(1, 0, 2).reshape(21, 72) @ w,
    ),
    "ranges": (
        ragged_line,
        (there(6, 7), OFFSETS),
        lambda x, o: [x.T.reshape(-1)[a:b].sum() for a, b in itertools.pairwise(o)],
    ),
    "heads that are stored to": (stored_heads, (there(43, 3, 6), OFFSETS), twice_in_heads),
    "rows that are picked": (
        picked_rows,
        (there(5, 4, 6), np.int32([0, 19, 7, 7, 12])),
        lambda x, rows: x.transpose(1, 0, 2).reshape(20, 6)[rows],
    ),
    "rows by number": (
        one_row,
        (there(5, 4, 6), np.int32([0, 19, 40, -3])),
        lambda x, at: (lambda v: v[np.clip(at, 0, 19)] + v[3])(x.transpose(1, 0, 2).reshape(20, 6)),
    ),
}


@pytest.mark.parametrize("blocks", [None, 4, 16], ids=["default", "tiles of 4", "tiles of 16"])
@pytest.mark.parametrize("case", CASES)
def test_views_of_several_runs(case, blocks):
    kernel, args, exact = CASES[case]
    config = tile.Config(dict.fromkeys(TILES[kernel], blocks)) if blocks and TILES[kernel] else None
    found = np.asarray(machine.call(kernel, config)(*args))
    np.testing.assert_allclose(found, exact(*args), rtol=1e-5, atol=1e-5)
