"""What is made of a whole tile, stored where the tile is, and not computed: said by explain."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.analysis import stores

X = np.arange(120, dtype=np.float32).reshape(40, 3)
TITLE = "made of single tiles, so that another block may give another result"


def less_mean(x):
    """Another loop in the same tiles reads it again, and may set it right."""
    y = hl.empty(x.shape, dtype=x.dtype)
    block = hl.register_block_size(x.shape[0])
    for t in hl.tile(x.shape[0], block_size=block):
        mean = x[t, :].mean(0)
        y[t, :] = x[t, :] - mean[None, :]
    for tn in hl.tile(x.shape[0], block_size=block):
        y[tn, :] = y[tn, :] * 2.0
    return y


def less_carried(x):
    """What a tile subtracts is that of all before it, and so is what it adds."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        greatest = x[t, :].amax(0)
        y[t, :] = hl.exp(x[t, :] - greatest[None, :]) * hl.exp(greatest)[None, :]
    return y


def parts(x):
    y = hl.zeros([x.shape[0], x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t.id, :] = x[t, :].amax(0)
    return y


def rows(x):
    y = hl.empty([x.shape[0]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t, :].sum(1)
    return y


def tiles_of_eight(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=8):
        y[t, :] = x[t, :] - x[t, :].mean(0)[None, :]
    return y


def carried(x):
    y = hl.empty([1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            acc = acc + x[t, :].sum(0)
        y[g, :] = acc
    return y


def explained(fn) -> list[str]:
    """The lines of explain that tell of it."""
    text = tile.kernel(fn).explain(X, target="tpu:v6e").split("\n\n")
    return next((part.splitlines()[1:] for part in text if part.startswith(TITLE)), [])


@pytest.mark.parametrize(
    ("fn", "line", "statement"),
    [
        (less_mean, 22, "y[t, :] = x[t, :] - mean[None, :]"),
        (parts, 40, "y[t.id, :] = x[t, :].amax(0)"),
    ],
    ids=["less_mean", "parts"],
)
def test_what_one_tile_is_folded_to_is_said(fn, line, statement):
    assert explained(fn) == [f"  line {line}, of a tile of t: {statement}"]
    assert "y: folds single tiles of t" in str(tile.kernel(fn).lower(X).facts)


@pytest.mark.parametrize("fn", [rows, tiles_of_eight, carried, less_carried])
def test_what_goes_by_no_block_is_not(fn):
    assert explained(fn) == []


def test_the_result_is_what_is_said():
    """Two blocks, two results: that of a kernel in the list, and of none that is not."""
    results = [tile.kernel(less_mean).reference(X, blocks={"block": n}) for n in (8, 40)]
    assert not np.allclose(*results)
    same = [tile.kernel(rows).reference(X, blocks={"t": n}) for n in (8, 40)]
    np.testing.assert_allclose(*same)


def test_planted_folds_that_nobody_sees(monkeypatch):
    monkeypatch.setattr(stores, "folds_over", lambda expr: iter(()))
    with pytest.raises(AssertionError):
        test_what_one_tile_is_folded_to_is_said(less_mean, 22, "y[t, :] = x[t, :] - mean[None, :]")
