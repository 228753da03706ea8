"""A single position stored beside a part of the same dimension: they are parts of one block."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def row_and_largest(x):
    M, N = x.shape
    y = hl.zeros([M, N + 1])
    for t in hl.tile(M):
        y[t, 0:N] = x[t, :]
        y[t, N] = x[t, :].amax(1)
    return y


@tile.kernel
def sums_and_total(x, offsets):
    N = x.shape[1]
    y = hl.zeros([offsets.shape[0] - 1, N + 1])
    for g in hl.grid(offsets.shape[0] - 1):
        sums, total = hl.zeros([N]), 0.0
        for t in hl.tile(offsets[g], offsets[g + 1]):
            sums += x[t, :].sum(0)
            total += x[t, :].sum()
        y[g, 0:N] = sums
        y[g, N] = total
    return y


@tile.kernel
def added_sums(x, offsets):
    N = x.shape[1]
    y = hl.zeros([offsets.shape[0] - 1, N + 1])
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[g, 1 : N + 1] += x[t, :].sum(0)
            y[g, 0] += x[t, :].sum()
    return y


@tile.kernel
def whole_numbers(x, offsets):
    y = hl.full([offsets.shape[0] - 1, 4], -1, dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        y[g, 0] = offsets[g]
        y[g, 1:3] = hl.full([2], 5, dtype=hl.int32)
        y[g, 3] = y[g, 0] + 1
    return y


@tile.kernel
def planes(x):
    """Of two dimensions the nest has positions and parts."""
    y = hl.zeros([4, x.shape[0], 3])
    for t in hl.tile(x.shape[0]):
        y[0, t, 0] = x[t, 0]
        y[0, t, 1:3] = x[t, 1:3]
        y[1:4, t, 1:3] = x[t, 0:2][None, :, :] * 2.0
    return y


@tile.kernel
def boxes(x):
    """Corners and areas, of which one is read again."""
    y = hl.zeros([x.shape[0], 5])
    for t in hl.tile(x.shape[0]):
        y[t, 0:4] = x[t, 0:4]
        y[t, 4] = (y[t, 2] - y[t, 0]) * (y[t, 3] - y[t, 1])
    return y


@tile.kernel
def some_totals(x, offsets):
    """Where a number of memory says so; the others keep what is stored before."""
    y = hl.zeros([12, x.shape[1]])
    for g in hl.grid(offsets.shape[0] - 1):
        sums = hl.zeros([x.shape[1]])
        for t in hl.tile(offsets[g], offsets[g + 1]):
            sums += x[t, :].sum(0)
        y[2 * g + 3, :] = sums
        hl.store(y, [2 * g + 3, 0], sums.sum(0), mask=offsets[g] >= 7)
    return y


X = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 20, 39], np.int32)
SUMS = np.stack([X[a:b].sum(0) for a, b in pairwise(OFFSETS)])


WHOLE = np.stack([OFFSETS[:-1], *2 * [np.full(4, 5)], OFFSETS[:-1] + 1], 1)
PLANES = np.zeros((4, 40, 3), np.float32)
PLANES[0], PLANES[1:, :, 1:] = X[:, 0:3], 2 * X[:, 0:2]
AREAS = (X[:, 2] - X[:, 0]) * (X[:, 3] - X[:, 1])
BOXES = np.concatenate([X[:, 0:4], AREAS[:, None]], 1)

SOME = np.zeros((12, 16), np.float32)
SOME[3:10:2] = SUMS
SOME[5:10:2, 0] = SUMS[1:].sum(1)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
@pytest.mark.parametrize(
    ("kernel", "given", "want"),
    [
        (row_and_largest, (X,), np.concatenate([X, X.max(1, keepdims=True)], 1)),
        (sums_and_total, (X, OFFSETS), np.concatenate([SUMS, SUMS.sum(1, keepdims=True)], 1)),
        (added_sums, (X, OFFSETS), np.concatenate([SUMS.sum(1, keepdims=True), SUMS], 1)),
        (whole_numbers, (X, OFFSETS), WHOLE),
        (planes, (X,), PLANES),
        (boxes, (X,), BOXES),
        (some_totals, (X, OFFSETS), SOME),
    ],
    ids=["tiles", "groups", "added", "whole numbers", "planes", "read again", "masked"],
)
def test_a_single_position_beside_a_part(
    kernel: tile.Kernel, given: tuple[np.ndarray, ...], want: np.ndarray, target: str | None
) -> None:
    np.testing.assert_allclose(kernel(*given, target=target), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kernel.reference(*given), want, rtol=1e-4, atol=1e-5)
