"""A single position stored beside a part of the same dimension: what the refusal says works."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import PlanError


@tile.kernel
def row_and_largest(x):
    M, N = x.shape
    y = hl.zeros([M, N + 1])
    for t in hl.tile(M):
        y[t, 0:N] = x[t, :]
        y[t, N] = x[t, :].amax(1)
    return y


@tile.kernel
def row_and_largest_as_said(x):
    M, N = x.shape
    y = hl.zeros([M, N + 1])
    for t in hl.tile(M):
        y[t, 0:N] = x[t, :]
        y[t, N : N + 1] = x[t, :].amax(1)[:, None]
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
def sums_and_total_as_said(x, offsets):
    N = x.shape[1]
    y = hl.zeros([offsets.shape[0] - 1, N + 1])
    for g in hl.grid(offsets.shape[0] - 1):
        sums, total = hl.zeros([N]), 0.0
        for t in hl.tile(offsets[g], offsets[g + 1]):
            sums += x[t, :].sum(0)
            total += x[t, :].sum()
        y[g, 0:N] = sums
        y[g, N : N + 1] = total
    return y


X = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 20, 39], np.int32)
SUMS = np.stack([X[a:b].sum(0) for a, b in pairwise(OFFSETS)])


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
@pytest.mark.parametrize(
    ("kernel", "as_said", "given", "want"),
    [
        (
            row_and_largest,
            row_and_largest_as_said,
            (X,),
            np.concatenate([X, X.max(1, keepdims=True)], 1),
        ),
        (
            sums_and_total,
            sums_and_total_as_said,
            (X, OFFSETS),
            np.concatenate([SUMS, SUMS.sum(1, keepdims=True)], 1),
        ),
    ],
    ids=["tiles", "groups"],
)
def test_a_single_position_beside_a_part(
    kernel: tile.Kernel,
    as_said: tile.Kernel,
    given: tuple[np.ndarray, ...],
    want: np.ndarray,
    target: str | None,
) -> None:
    with pytest.raises(PlanError, match="also used at another place") as caught:
        kernel(*given, target=target)
    assert caught.value.hint == (
        "write a single position beside a part of y as a part, too: 16:17 in place of 16"
    )
    np.testing.assert_allclose(as_said(*given, target=target), want, rtol=1e-4, atol=1e-5)
