"""wide_operands: Mosaic has positions of maxima, and tests for NaN, of float32 alone."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import needs_libtpu

OFFSETS = np.array([0, 3, 3, 40, 49], np.int32)
RANGES = list(itertools.pairwise(OFFSETS))
RNG = np.random.default_rng(0)


@tile.kernel
def bests(x, offsets):
    """Where the largest number of a row is, how many are NaN, and whether all are finite."""
    T = x.shape[0]
    at, odd = (hl.full([T], -1, dtype=hl.int32) for _ in range(2))
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            at[t] = x[t, :].argmax(1)
            odd[t] = hl.isnan(x[t, :]).to(hl.int32).sum(1)
    return at, odd


@tile.kernel
def unsigned(n, offsets):
    """The sum, the least and the largest of each group."""
    G, D = offsets.shape[0] - 1, n.shape[1]
    total, least, most = (hl.zeros([G, D], dtype=hl.uint32) for _ in range(3))
    for g in hl.grid(G):
        sums, high = (hl.zeros([D], dtype=hl.uint32) for _ in range(2))
        low = hl.full([D], 4294967295, dtype=hl.uint32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            sums = sums + n[t, :].sum(0)
            low = hl.minimum(low, n[t, :].amin(0))
            high = hl.maximum(high, n[t, :].amax(0))
        total[g, :] = sums
        least[g, :] = low
        most[g, :] = high
    return total, least, most


@tile.kernel
def some_and_all(flags, offsets):
    G, D = offsets.shape[0] - 1, flags.shape[1]
    some, every = (hl.zeros([G, D], dtype=hl.int32) for _ in range(2))
    for g in hl.grid(G):
        a, b = hl.zeros([D], dtype=hl.int32), hl.full([D], 1, dtype=hl.int32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            a = hl.maximum(a, flags[t, :].any(0).to(hl.int32))
            b = hl.minimum(b, flags[t, :].all(0).to(hl.int32))
        some[g, :] = a
        every[g, :] = b
    return some, every


def rows():
    x = RNG.integers(-9, 9, (49, 20)).astype(ml_dtypes.bfloat16)
    x[:, 7] = x.max(1)
    return x


def counted(numbers):
    found = [numbers[b:e].astype(np.int64) for b, e in RANGES]
    sums = [part.sum(0) % 2**32 for part in found]
    least = [part.min(0, initial=2**32 - 1) for part in found]
    return sums, least, [part.max(0, initial=0) for part in found]


NUMBERS = RNG.integers(0, 2**32, (49, 20), dtype=np.uint32)
FLAGS = RNG.random((49, 20)) < 0.4
FLAGS[0:3, 4] = True
X = rows()
CASES = {
    "bests": (bests, X, (X.argmax(1), np.zeros(49))),
    "unsigned": (unsigned, NUMBERS, counted(NUMBERS)),
    "some and all": (
        some_and_all,
        FLAGS,
        ([FLAGS[b:e].any(0) for b, e in RANGES], [FLAGS[b:e].all(0) for b, e in RANGES]),
    ),
}


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
@pytest.mark.parametrize("name", CASES)
def test_they_are_what_they_were(name, target) -> None:
    kernel, array, right = CASES[name]
    config = tile.Config({"t": 8}) if target == "cpu" else None
    made = kernel(array, OFFSETS, config=config, target=target)
    for one, other in zip(made, right, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_libtpu
@pytest.mark.parametrize("name", CASES)
def test_they_compile(name) -> None:
    kernel, array, _ = CASES[name]
    kernel.compile(array, OFFSETS, target="tpu:v5e")
