"""Rows that no range covers, which the kernel clears itself."""

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
ROWS, WIDTH = 75, 40


@tile.kernel
def line(x, offsets):
    """One dimension: nothing but the mask holds a row back."""
    y = hl.full([x.shape[0]], 7.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t, 0] + 1.0
    return y


@tile.kernel
def two(x, offsets):
    """Two outputs of two launches, the rows of one of which are its last dimension."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    z = hl.full([x.shape[1], x.shape[0]], -1.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] * 2.0
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            z[:, t] = x[t, :].T
    return y, z


@tile.kernel
def heads(x, offsets):
    """Three dimensions, cut in the middle; a sum of the same launch is filled by nothing."""
    y = hl.zeros([2, x.shape[0], x.shape[1]], dtype=x.dtype)
    total = hl.empty([2, offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for h, g in hl.grid([2, offsets.shape[0] - 1]):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc += x[t, :].sum(0)
        total[h, g, :] = acc
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[h, t, :] = x[t, :] - acc[None, :]
    return y, total


@tile.kernel
def read_later(x, offsets):
    """What one launch stores and clears, the next one reads: all of it."""
    z, y = hl.full(x.shape, 5.0, dtype=x.dtype), hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            z[t, :] = x[t, :] * 2.0
    for t in hl.tile(x.shape[0]):
        y[t, :] = z[t, :] + 1.0
    return y


@tile.kernel
def halves(x, offsets):
    """Joined values, whose parts are stored one by one."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v = x[t, :]
            y[t, :] = hl.cat([v[:, 8:], -v[:, :8]], 1)
    return y


@tile.kernel
def row_by_row(x, offsets):
    """Rows one by one, whose columns are cut."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for c in hl.tile(x.shape[1]):
            for r in hl.grid(offsets[g], offsets[g + 1]):
                y[r, c] = x[r, c] * 2.0
    return y


def expected(kernel, x, ranges):
    """What the kernel returns, as its docstring's author would write it in NumPy."""
    y, z = np.zeros_like(x), np.full((WIDTH, ROWS), -1.0, x.dtype)
    flat, centred = np.full(ROWS, 7.0, x.dtype), np.zeros((2, *x.shape), x.dtype)
    turned = np.zeros_like(x)
    total = np.zeros((2, len(ranges), WIDTH), x.dtype)
    later = np.full_like(x, 6.0)
    for g, (begin, end) in enumerate(ranges):
        rows = slice(begin, max(end, begin))
        flat[rows], y[rows], z[:, rows] = x[rows, 0] + 1.0, x[rows] * 2.0, x[rows].T
        total[:, g], later[rows] = x[rows].sum(0), x[rows] * 2.0 + 1.0
        turned[rows] = np.concatenate([x[rows, 8:], -x[rows, :8]], 1)
        centred[:, rows] = x[rows] - x[rows].sum(0)
    one = {line: flat, read_later: later, halves: turned, row_by_row: y}
    return {two: [y, z], heads: [centred, total]}.get(kernel) or [one[kernel]]


LAYOUTS = (
    [0, 75], [0, 0, 75], [5, 9, 9, 30], [0, 0, 0], [75, 75], [10, 10], [1, 74], [33, 64, 65],
    [80, 90], [-5, 20, 200], [60, 10], [-9, -3], [20, 30, 25, 25],
)  # fmt: skip
KERNELS = (line, two, heads, read_later, halves, row_by_row)
CONFIGS = {
    "default": None,
    "few programs": tile.Config(persistent=3),
    "table": tile.Config(worklist="table"),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_every_row_is_written_once(kernel, config):
    if kernel is row_by_row and config == "table":
        pytest.skip("rows that run in their order are no tiles to list")
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    for offsets in LAYOUTS:
        ends = np.array(offsets, np.int32)
        lowered = kernel.lower(x, ends, target=machine.TARGET)
        assert all(b.fill is None for b in lowered.plan.buffers)
        ranges = [(max(a, 0), min(b, ROWS)) for a, b in itertools.pairwise(offsets)]
        found = machine.call(kernel, CONFIGS[config])(x, ends)
        found = found if isinstance(found, list | tuple) else [found]
        for y, exact in zip(found, expected(kernel, x, ranges), strict=True):
            np.testing.assert_allclose(np.asarray(y), exact, atol=1e-4, err_msg=str(offsets))
