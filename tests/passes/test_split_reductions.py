"""split_reductions: a long loop that adds up, as parts that a second launch adds up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import named, parsed
from tests.passes.becomes import becomes
from tilelang import reference
from tilelang.codegen.triton.passes import split_reductions as splits
from tilelang.codegen.triton.passes.split_reductions import split_reductions
from tilelang.codegen.triton.plan.split import reduction_of
from tilelang.ir import KernelIR
from tilelang.ir.verify import verify
from tilelang.schedule.problem import Problem

X = np.random.default_rng(0).integers(-9, 9, (96, 64)).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 90, 96], np.int32)
PARTS = [slice(a, b) for a, b in itertools.pairwise(OFFSETS)]


@tile.kernel
def most_and_all(x):
    """Two carries, each with a value of its own before the loop."""
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for tf in hl.tile(x.shape[1]):
        high = hl.full([tf], -1.0, dtype=x.dtype)
        total = hl.full([tf], 3.0, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            high = hl.maximum(high, x[t, tf].amax(0))
            total = total + x[t, tf].sum(0)
        y[tf] = high + total
    return y


@tile.kernel
def least(n, offsets):
    """Of ranges that are read; 5 where they are empty."""
    G = offsets.shape[0] - 1
    y = hl.zeros([G], dtype=hl.int32)
    for g in hl.grid(G):
        low = hl.full([], 5, dtype=hl.int32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            low = hl.minimum(low, n[t].amin(0))
        y[g] = low
    return y


def split(kernel: tile.Kernel, arguments: Any, blocks: Mapping[str, int], parts: int) -> Any:
    """The kernel as written, and the pass over its only reduction."""
    ir, facts = parsed(kernel, arguments)
    found = reduction_of(Problem(ir, facts), blocks, parts)
    assert found is not None
    return ir, lambda ir: split_reductions(found, parts)


def test_every_carry_begins_with_what_changes_nothing() -> None:
    becomes(
        *split(most_and_all, (X,), {"tf": 32, "t": 8}, 4),
        """
        for tf in tile(64):
            high: float32[tf] = full([tf], float32, value=-1.0)
            total: float32[tf] = full([tf], float32, value=3.0)
            for t in tile(96) carrying high_1 = high, total_1 = total:
                high_2: float32[tf] = maximum(high_1, max(x[t, tf], axis=0))
                total_2: float32[tf] = total_1 + sum(x[t, tf], axis=0)
                next high_1 = high_2
                next total_1 = total_2
            after high_3 = high_1
            after total_3 = total_1
            y[tf] = high_3 + total_3
        """,
        """
        for part in grid(4):
            for tf in tile(64):
                high: float32[tf] = full([tf], float32, value=-1.0)
                total: float32[tf] = full([tf], float32, value=3.0)
                for t in tile(part * 24, part * 24 + 24, max_extent=24) carrying high_1 = full([tf], float32, value=-inf), total_1 = full([tf], float32, value=0.0):
                    high_2: float32[tf] = maximum(high_1, max(x[t, tf], axis=0))
                    total_2: float32[tf] = total_1 + sum(x[t, tf], axis=0)
                    next high_1 = high_2
                    next total_1 = total_2
                after high_3 = high_1
                after total_3 = total_1
                high_parts[part, tf] = high_3
                total_parts[part, tf] = total_3

        for tf_1 in tile(64, block=32):
            high_4: float32[tf_1] = full([tf_1], float32, value=-1.0)
            total_4: float32[tf_1] = full([tf_1], float32, value=3.0)
            for part_1 in grid(4) carrying high_1_1 = high_4, total_1_1 = total_4:
                next high_1_1 = maximum(high_1_1, high_parts[part_1, tf_1])
                next total_1_1 = total_1_1 + total_parts[part_1, tf_1]
            after high_3_1 = high_1_1
            after total_3_1 = total_1_1
            y[tf_1] = high_3_1 + total_3_1
        """,
    )


def test_parts_of_a_range_that_is_read_are_whole_tiles() -> None:
    ir, run = split(least, (X[:, 0].astype(np.int32), OFFSETS), {"t": 8}, 3)
    becomes(
        ir,
        run,
        """
        for g in grid(4):
            low: int32[] = full([], int32, value=5)
            for t in tile(offsets[g], offsets[g + 1], max_extent=96) carrying low_1 = low:
                low_2: int32[] = minimum(low_1, min(n[t], axis=0))
                next low_1 = low_2
            after low_3 = low_1
            y[g] = low_3
        """,
        """
        for part in grid(3):
            for g in grid(4):
                low: int32[] = full([], int32, value=5)
                t_first: int32[] = offsets[g]
                t_last: int32[] = offsets[g + 1]
                t_length: int32[] = (maximum(t_last - t_first, 0) + 23) // 24 * 8
                t_part: int32[] = maximum(t_first + part * t_length, t_first)
                for t in tile(t_part, minimum(t_part + t_length, t_last), max_extent=32) carrying low_1 = full([], int32, value=2147483647):
                    low_2: int32[] = minimum(low_1, min(n[t], axis=0))
                    next low_1 = low_2
                after low_3 = low_1
                low_parts[part, g] = low_3

        for g_1 in grid(4):
            low_4: int32[] = full([], int32, value=5)
            for part_1 in grid(3) carrying low_1_1 = low_4:
                next low_1_1 = minimum(low_1_1, low_parts[part_1, g_1])
            after low_3_1 = low_1_1
            y[g_1] = low_3_1
        """,
    )
    tensors = [(t.name, t.shape, t.role) for t in run(ir).tensors]
    assert tensors[2:] == [("low_parts", (3, 4), "output"), ("y", (4,), "output")]


def result(ir: KernelIR, arguments: Any, blocks: Mapping[str, int]) -> np.ndarray:
    """What the reference makes of a kernel."""
    return reference.evaluate(verify(ir), named(ir, arguments), blocks=blocks)["y"]


def cases() -> Any:
    n = X[:, 0].astype(np.int32)
    all_of_them = np.maximum(-1, X.max(0)) + X.sum(0) + 3
    return [
        (most_and_all, (X,), all_of_them),
        (least, (n, OFFSETS), [min([5, *n[p]]) for p in PARTS]),
    ]


@pytest.mark.parametrize("parts", [2, 3, 5, 16])
def test_values(parts) -> None:
    blocks = {"tf": 32, "t": 8}
    for kernel, arguments, right in cases():
        own = {name: b for name, b in blocks.items() if kernel is most_and_all or name == "t"}
        ir, run = split(kernel, arguments, own, parts)
        for one in (ir, run(ir)):
            np.testing.assert_array_equal(result(one, arguments, own), right)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("_neutral", lambda op, dtype: 1), ("_before", lambda loop: ())],
    ids=["every part begins with 1", "what stands before the loop is left out"],
)
def test_a_planted_bug_is_seen(monkeypatch, name, wrong) -> None:
    monkeypatch.setattr(splits, name, wrong)
    with pytest.raises(AssertionError):
        test_values(3)
