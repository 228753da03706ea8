"""Stores at positions that are read from memory: any block may be stored to again and again."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

LOOP_TYPES = (None, "grid", "outer_pipeline", "fori_loop")


@tile.kernel
def scattered(x, index):
    """The last row of every index stays."""
    y = hl.zeros([20, x.shape[1]], dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        y[index[m], :] = x[m, :]
    return y


@tile.kernel
def scatter_added(x, index):
    y = hl.zeros([20, x.shape[1]], dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        y[index[m], :] += x[m, :]
    return y


@tile.kernel
def scattered_tiles(x, index):
    """A position among others, and tiles of the rows."""
    y = hl.full([20, 3, x.shape[1]], 7, dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        for t in hl.tile(x.shape[1]):
            y[index[m], 1, t] = x[m, t] * 2
    return y


@tile.kernel
def scattered_ranges(x, index, offsets):
    """Parts of rows: what another group stored to the same row stays."""
    y = hl.zeros([20, x.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[index[g], t] = x[t, :].sum(1)
    return y


def drawn(seed: int, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (rows, 300)).astype(np.float32)  # sums are exact in any order
    return x, rng.integers(0, 20, rows).astype(np.int32)


def by_hand(name: str, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    y = np.zeros((20, x.shape[1]))
    match name:
        case "scattered":
            y[index] = x  # NumPy keeps the last one, too
        case "scatter_added":
            np.add.at(y, index, x)
        case _:
            y = np.full((20, 3, x.shape[1]), 7.0)
            y[index, 1] = x * 2
    return y


@pytest.mark.parametrize("loop_type", LOOP_TYPES)
@pytest.mark.parametrize("kernel", [scattered, scatter_added, scattered_tiles], ids=str)
def test_rows(kernel: tile.Kernel, loop_type: str | None) -> None:
    for seed in range(3):
        x, index = drawn(seed)
        result = kernel(x, index, config=tile.Config(loop_type=loop_type))
        np.testing.assert_array_equal(result, by_hand(kernel.__name__, x, index))


@pytest.mark.parametrize("form", [{}, {"steps": "rectangle"}, {"loop_type": "fori_loop"}], ids=str)
def test_parts_of_rows(form: dict[str, str]) -> None:
    x, config = drawn(0)[0], tile.Config({"t": 8}, **form)
    for offsets in ([0, 7, 7, 20, 30], [0, 30, 30, 30, 30], [3, 9, 9, 9, 25]):
        for index in ([4, 4, 4, 4], [19, 0, 19, 0], [1, 2, 3, 4]):
            arguments = x, np.array(index, np.int32), np.array(offsets, np.int32)
            result = scattered_ranges(*arguments, config=config)
            np.testing.assert_array_equal(result, scattered_ranges.reference(*arguments))
