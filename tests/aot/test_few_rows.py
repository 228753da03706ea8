"""Arrays of few rows lie in smaller tiles than others, of which no copy takes a part.

Evidence: libtpu, ahead of time; the numbers are those of the interpreter.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.tiers import share
from tilelang.language.dtypes import to_numpy

OFFSETS = np.array([0, 3, 3, 17], np.int32)
ROWS = (1, 2, 3, 4, 5, 8, 17)
DTYPES = ("float32", "bfloat16", "int8", "bool")
TARGETS = ("tpu:v6e", pytest.param("tpu:v5e", marks=pytest.mark.slow))


@tile.kernel
def stored(offsets, ids, x, planes):
    """y[ids[r]] = x[r] of rows of groups."""
    y = hl.zeros(planes.shape[1:], dtype=planes.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[ids[t], :] = (x[t, :] * (g + 1)).to(y.dtype)
    return y


@tile.kernel
def picked(offsets, ids, x, planes):
    """z[r] = planes[g, ids[r]] + x[r] of rows of groups."""
    z = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            z[t, :] = planes[g, ids[t], :].to(hl.float32) + x[t, :]
    return z


@tile.kernel
def behind_a_mask(offsets, ids, x, planes):
    """Rows of planes that end before the loop does: those that are read, and those stored."""
    y = hl.zeros(planes.shape, dtype=planes.dtype)
    z = hl.zeros([planes.shape[0], *x.shape], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=x.shape[0]):
            inside = (t.index < planes.shape[1])[:, None]
            rows = hl.load(planes, [g, t, slice(None)], mask=inside, other=1)
            z[g, t, :] = rows.to(hl.float32)
            hl.store(y, [g, t, slice(None)], x[t, :].to(y.dtype), mask=inside)
    return y, z


@tile.kernel
def moved(offsets, ids, x, planes):
    """z[r] = planes[g, r - offsets[g] - 1] + x[r] of rows of groups, where there is that row."""
    z = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            own = t.index - offsets[g] - 1
            inside = ((own >= 0) & (own < planes.shape[1]))[:, None]
            rows = hl.load(planes, [g, own, slice(None)], mask=inside, other=0)
            z[t, :] = rows.to(hl.float32) + x[t, :]
    return z


KERNELS = (stored, behind_a_mask, moved, picked)
PIPELINE = tile.Config(loop_type="outer_pipeline")  # which copies its blocks itself


def arguments(rows: int, dtype: str, columns: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(rows)
    ids = random.integers(0, rows, 17).astype(np.int32)
    x = random.integers(-3, 4, (17, columns)).astype(np.float32)
    planes = random.integers(-9, 9, (3, rows, columns)).astype(to_numpy(dtype))
    return OFFSETS, ids, x, planes


# Every number of rows and every type by each tier.
@pytest.mark.parametrize("case", share(product(ROWS, DTYPES), 3, ids=lambda c: f"{c[1]}-{c[0]}"))
def test_the_numbers(case: tuple[int, str]) -> None:
    """Of the plan of a TPU."""
    rows, dtype = case
    _, ids, x, planes = given = arguments(rows, dtype, 5)
    y, boxes = np.zeros(planes.shape[1:], planes.dtype), np.zeros_like(planes)
    z, shifted, rows_of = np.zeros((3, 17, 5), np.float32), x.copy(), x.copy()
    for g, (begin, end) in enumerate(pairwise(OFFSETS)):
        few, size, plane = min(rows, end - begin), end - begin, planes[g].astype(np.float32)
        boxes[g, :few] = x[:few].astype(planes.dtype)
        z[g, :size] = 1
        z[g, :few] = plane[:few]
        if size:
            shifted[begin + 1 : end][:rows] += plane[: size - 1]
        rows_of[begin:end] += plane[ids[begin:end]]
        for row in range(begin, end):
            y[ids[row]] = (x[row] * (g + 1)).astype(planes.dtype)
    found = [kernel(*given, config=PIPELINE, target="tpu:v6e") for kernel in KERNELS]
    wanted = (y, boxes, z, shifted, rows_of)
    for each, right in zip([found[0], *found[1], *found[2:]], wanted, strict=True):
        np.testing.assert_array_equal(each, right)


@needs_libtpu
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [5, 130])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 4])
def test_they_compile(rows: int, dtype: str, columns: int, target: str) -> None:
    given = arguments(rows, dtype, columns)
    for kernel in KERNELS:
        assert compiled(kernel, *given, config=PIPELINE, target=target).memory.code
