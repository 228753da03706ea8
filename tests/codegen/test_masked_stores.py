"""Stores under a mask of the author's: it lies along the dimensions that it is about."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

X = np.random.default_rng(0).standard_normal((16, 16, 16)).astype(np.float32)
BLOCKS = ({}, {"t": 16}, {"t": 8})


def by_columns(x):
    """Nine rows of every column; the rows of a block are as many as the columns."""
    y = hl.full([16, 16], 3.0, dtype=hl.float32)
    for t in hl.tile(16):
        for i in hl.grid(16):
            hl.store(y, [t, i], x[i, t, 0], mask=t.index < 9)
    return y


columns = tile.kernel(by_columns)


@tile.kernel
def slabs(x):
    """Nine planes of a column: the mask has fewer dimensions than the block."""
    y = hl.full([16, 16, 16], 3.0, dtype=hl.float32)
    for t in hl.tile(16):
        for i in hl.grid(16):
            hl.store(y, [slice(None), t, i], x[:, t, i], mask=(t.index < 9)[None, :])
    return y


@tile.kernel
def both_ways(x):
    """A mask of both dimensions, and of numbers."""
    y = hl.full([16, 16, 16], 3.0, dtype=hl.float32)
    for t, u in hl.tile([16, 16]):
        for i in hl.grid(16):
            mask = (t.index[:, None] + u.index[None, :] < 12) & (i > 2)
            hl.store(y, [t, u, i], x[t, u, i], mask=mask)
    return y


@tile.kernel
def ragged_columns(x, offsets):
    """Rows of ranges, of the first nine; other rows and columns stay."""
    y = hl.full([16, 16], 3.0, dtype=hl.float32)
    for i in hl.grid(16):
        for g in hl.grid(2):
            for t in hl.tile(offsets[g], offsets[g + 1], max_extent=16):
                hl.store(y, [t, i], x[i, t, 0], mask=(t.index < 9) & (i != 4))
    return y


OFFSETS = np.array([2, 5, 14], np.int32)
AT = np.arange(16)
FIRST = AT < 9
SOME = FIRST & (AT >= 2)
CASES = (
    (columns, (X,), np.where(FIRST[:, None], X[:, :, 0].T, 3)),
    (slabs, (X,), np.where(FIRST[:, None], X, 3)),
    (both_ways, (X,), np.where((AT[:, None, None] + AT[:, None] < 12) & (AT > 2), X, 3)),
    (ragged_columns, (X, OFFSETS), np.where(SOME[:, None] & (AT != 4), X[:, :, 0].T, 3)),
)


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
@pytest.mark.parametrize(("kernel", "arguments", "right"), CASES)
def test_a_mask_lies_along_its_dimensions(kernel, arguments, right, blocks):
    np.testing.assert_array_equal(kernel.reference(*arguments), right)
    made = kernel(*arguments, config=tile.Config(blocks))
    np.testing.assert_array_equal(np.asarray(made), right)


def test_a_mask_of_rows_is_a_column():
    """The block is as long as wide: along its columns the mask would fit, too."""
    text = tile.kernel(by_columns).source(X, config=tile.Config({"t": 16}))
    assert "t_index = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0)" in text


def of_a_longer_array(x):
    """The rows of part k of x, summed up to the end of their tile; y has those of the first one."""
    y = hl.full([8], 3.0, dtype=hl.float32)
    for t in hl.tile(2):
        for k in hl.grid(2):
            acc = hl.zeros([t], dtype=hl.float32)
            for u in hl.tile(t.end):
                before = u.index[None, :] <= t.index[:, None]
                acc = acc + hl.where(before, x[k * 8 + t.index, u], 0.0).sum(1)
            hl.store(y, [k * 8 + t.index], acc, mask=k * 8 + t.index < 8)
    return y


def test_rows_of_an_array_that_is_longer_than_what_is_stored():
    """One block of y is all of it, and half of x."""
    kernel = tile.kernel(of_a_longer_array)  # planned anew, for planted bugs
    x, expected = X[:, :, 0], np.full(8, 3.0, np.float32)
    expected[:2] = x[0, 0], x[1, 0] + x[1, 1]
    for form in ({}, {"loop_type": "fori_loop"}):
        found = kernel(x, config=tile.Config({"t": 8, "u": 8}, **form))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
