"""Views of arguments that are stored to: behind a store they are of what is there then."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import again

X = np.arange(20 * 8, dtype=np.float32).reshape(20, 8)
INDEX = np.arange(30, dtype=np.int32) * 7 % 12


@tile.kernel
def pairs(y, x):
    """Rows are added to, then added in pairs, by a view; another one is returned."""
    v, w = y.reshape(y.shape[0] // 2, 2, y.shape[1]), y.T
    z = hl.zeros([y.shape[0] // 2, y.shape[1]], dtype=y.dtype)
    for s in hl.grid(y.shape[0] // 2):
        z[s, :] = v[s, 0, :]
    for t in hl.tile(y.shape[0]):
        y[t, :] = y[t, :] + x[t, :]
    for s in hl.grid(y.shape[0] // 2):
        z[s, :] = z[s, :] * 10 + v[s, 0, :] + v[s, 1, :]
    return z, w


@tile.kernel
def counted(y, index):
    """Numbers are stored as rows of one, and views are of those as they were given."""
    v, z = y.T, hl.zeros([20, 3], dtype=hl.float32)
    for i in hl.grid(3):
        for t in hl.tile(index.shape[0]):
            hl.atomic_add(y, [i, index[t]], 1.0)
    for s in hl.tile(20):
        z[s, :] = v[s, :] * 2
    return z, v


@pytest.mark.parametrize("block", [None, 8])
def test_views_behind_a_store(block: int | None) -> None:
    y = X % 7
    config = tile.Config({} if block is None else {"t": block})
    z, w = again(pairs)(y, X, config=config)
    wanted = X % 7 + X
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(w, wanted.T)
    np.testing.assert_array_equal(z, 10 * (X % 7)[::2] + wanted[::2] + wanted[1::2])


def test_views_of_numbers() -> None:
    y = np.arange(60, dtype=np.float32).reshape(3, 20)
    wanted = y + np.bincount(INDEX, minlength=20)
    z, v = again(counted)(y, INDEX)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(v, wanted.T)
    np.testing.assert_array_equal(z, 2 * wanted.T)
