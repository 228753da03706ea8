"""wide_carries: loops of TPUs carry values of 32 bits, or vectors of bfloat16."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, stays
from tilelang.codegen.pallas.passes.wide_carries import wide_carries

OFFSETS = np.array([0, 3, 3, 40, 49], np.int32)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((49,), np.float32)
S = RNG.integers(-9, 9, (49,)).astype(ml_dtypes.bfloat16)


@tile.kernel
def seen(x, s, offsets):
    """Whether a number of each group is large, and the largest of other numbers."""
    G = offsets.shape[0] - 1
    some, most = hl.zeros([G], dtype=hl.bool_), hl.zeros([G], dtype=s.dtype)
    for g in hl.grid(G):
        found, high = False, hl.full([], -100, dtype=s.dtype)
        for i in hl.grid(offsets[g], offsets[g + 1]):
            found = found | (x[i] > 1)
            high = hl.maximum(high, s[i])
        some[g] = found
        most[g] = high
    return some, most


@tile.kernel
def columns_seen(x, offsets):
    """Which columns of each group are positive somewhere."""
    G = offsets.shape[0] - 1
    some = hl.zeros([G, x.shape[1]], dtype=hl.bool_)
    for g in hl.grid(G):
        found = hl.zeros([x.shape[1]], dtype=hl.bool_)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            found = found | (x[t, :] > 0).any(0)
        some[g, :] = found
    return some


@tile.kernel
def largest(x, offsets):
    """Of bfloat16 vectors: they are carried as they are."""
    G = offsets.shape[0] - 1
    y = hl.zeros([G, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(G):
        high = hl.zeros([x.shape[1]], dtype=x.dtype)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            high = hl.maximum(high, x[t, :].amax(0))
        y[g, :] = high
    return y


def test_bools_are_integers_and_numbers_are_wide() -> None:
    ir, _ = parsed(seen, (X, S, OFFSETS))
    becomes(
        ir,
        wide_carries,
        """
        for g in grid(4):
            high: bfloat16[] = full([], bfloat16, value=-100.0)
            for i in grid(offsets[g], offsets[g + 1], max_extent=49) carrying found = False, high_1 = high:
                found_1: bool[] = found or x[i] > 1.0
                high_2: bfloat16[] = maximum(high_1, s[i])
                next found = found_1
                next high_1 = high_2
            after found_2 = found
            after high_3 = high_1
            some[g] = found_2
            most[g] = high_3
        """,
        """
        for g in grid(4):
            high: bfloat16[] = full([], bfloat16, value=-100.0)
            for i in grid(offsets[g], offsets[g + 1], max_extent=49) carrying found = 0, high_1 = cast(high, float32):
                found_1: bool[] = found != 0 or x[i] > 1.0
                high_2: bfloat16[] = maximum(cast(high_1, bfloat16), s[i])
                next found = cast(found_1, int32)
                next high_1 = cast(high_2, float32)
            after found_2 = found
            after high_3 = high_1
            some[g] = found_2 != 0
            most[g] = cast(high_3, bfloat16)
        """,
    )


def test_vectors_of_bfloat16_stay() -> None:
    ir, _ = parsed(largest, (tile.spec((49, 20), "bfloat16"), OFFSETS))
    stays(ir, wide_carries)


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_they_are_what_they_were(target) -> None:
    parts = [slice(a, b) for a, b in itertools.pairwise(OFFSETS)]
    some, most = again(seen)(X, S, OFFSETS, target=target)
    assert np.asarray(some).tolist() == [bool((X[p] > 1).any()) for p in parts]
    assert np.asarray(most).tolist() == [max([-100, *S[p].tolist()]) for p in parts]
    rows = RNG.standard_normal((49, 20), np.float32) - 2
    found = np.asarray(again(columns_seen)(rows, OFFSETS, target=target))
    assert found.dtype == bool and found.any() and not found.all()
    np.testing.assert_array_equal(found, [(rows[p] > 0).any(0) for p in parts])


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
@pytest.mark.parametrize("steps", [None, "table"])
def test_they_compile(target, steps) -> None:
    """Inside of a step, and over steps."""
    compiled(seen, X, S, OFFSETS, target=target)
    config = None if steps is None else tile.Config({"t": 32}, loop_type="outer_pipeline")
    rows = tile.spec((4096, 200), "float32")
    compiled(columns_seen, rows, OFFSETS, target=target, config=config)
