"""Narrow arrays of few rows lie in smaller tiles than others, of which no copy takes a part.

Evidence: libtpu, ahead of time; the numbers are those of the interpreter.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tilelang.language.dtypes import to_numpy

OFFSETS = np.array([0, 3, 3, 17], np.int32)
ROWS = (1, 2, 3, 4, 5, 8, 17)
DTYPES = ("bfloat16", "int8", "bool")
TARGETS = ("tpu:v5e", pytest.param("tpu:7x", marks=pytest.mark.slow))


@tile.kernel
def stored(offsets, ids, x, like):
    """y[ids[r]] = x[r] of rows of groups, in a pipeline, which copies its blocks itself."""
    y = hl.zeros([like.shape[0], x.shape[1]], dtype=like.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[ids[t], :] = (x[t, :] * (g + 1)).to(y.dtype)
    return y


@tile.kernel
def picked(offsets, ids, x, like):
    """y[r] = table[ids[r]] of rows of groups."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = like[ids[t], :].to(hl.float32) + x[t, :]
    return y


def arguments(rows: int, dtype: str, columns: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(rows)
    ids = random.integers(0, rows, 17).astype(np.int32)
    x = random.integers(-3, 4, (17, columns)).astype(np.float32)
    return OFFSETS, ids, x, (x[random.integers(0, 17, rows)] * 2).astype(to_numpy(dtype))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_numbers(rows: int, dtype: str) -> None:
    """Of the plan of a TPU: rows with those that lie beside them."""
    _, ids, x, like = given = arguments(rows, dtype, 5)
    wanted = np.zeros(like.shape, like.dtype)
    for row in range(17):
        wanted[ids[row]] = (x[row] * (1 if row < 3 else 3)).astype(like.dtype)
    np.testing.assert_array_equal(stored(*given, target="tpu:v6e"), wanted)
    found = picked(*given, target="tpu:v6e")
    np.testing.assert_array_equal(found, like[ids].astype(np.float32) + x)


@needs_libtpu
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [1, 130])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 5, 17])
def test_they_compile(rows: int, dtype: str, columns: int, target: str) -> None:
    given = arguments(rows, dtype, columns)
    for kernel in (stored, picked):
        assert compiled(kernel, *given, target=target).memory.code
