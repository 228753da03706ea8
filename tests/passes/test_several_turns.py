"""several_turns: an ordered loop whose turns are several of what they were."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.codegen.test_several_turns import summed
from tests.derivatives import parsed
from tests.passes.becomes import becomes
from tilelang.codegen.pallas.passes.several_turns import several_turns
from tilelang.ir.verify import verify
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused

PAGES = tile.spec((6, 4, 8), "float32"), tile.spec((3, 5), "int32"), tile.spec((3,), "int32")


@tile.kernel
def softmax_sums(x, table, lengths):
    """The sum that the softmax of what the rows of its pages sum to divides by."""
    B, most = table.shape
    y = hl.zeros([B, 1], dtype=hl.float32)
    for b in hl.grid(B):
        m = hl.full([1], -math.inf, dtype=hl.float32)
        total = hl.zeros([1], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            scores = x[table[b, p], :, :].sum(-1)[None, :]
            m_new = hl.maximum(m, scores.amax(-1))
            weights = hl.exp(scores - m_new[:, None])
            total = total * hl.exp(m - m_new) + weights.sum(-1)
            m = m_new
        y[b, :] = total
    return y


@tile.kernel
def stored(x, table, lengths):
    B, most = table.shape
    y = hl.zeros([B, most, x.shape[2]], dtype=hl.float32)
    for b in hl.grid(B):
        acc = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(most):
            acc = acc + x[table[b, p], :, :].sum(0)
            y[b, p, :] = acc
    return y


@tile.kernel
def rows_elsewhere(x, lengths):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    for _ in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for p in hl.grid(lengths.shape[0]):
            for t in hl.tile(8):
                acc = acc + x[t + lengths[p], :].sum(0)
        y[:] = acc
    return y


def of(kernel: tile.Kernel, *arguments: Any, name: str = "p", count: int = 2) -> Any:
    """The kernel as written, and the pass over it."""
    ir, facts = parsed(kernel, arguments)
    return ir, lambda ir: several_turns(Problem(ir, facts), name, count).ir


def test_a_turn_that_may_not_be_there_is_not_taken() -> None:
    becomes(
        *of(summed, *PAGES),
        """
        for b in grid(3):
            acc: float32[8] = full([8], float32, value=0.0)
            for p in grid(0, lengths[b], max_extent=5) carrying acc_1 = acc:
                acc_2: float32[8] = acc_1 + sum(x[table[b, p], 0:4, 0:8], axis=0)
                next acc_1 = acc_2
            after acc_3 = acc_1
            y[b, 0:8] = acc_3
        """,
        """
        for b in grid(3):
            acc: float32[8] = full([8], float32, value=0.0)
            for p in grid(0, (lengths[b] + 1) // 2, max_extent=3) carrying acc_1 = acc:
                live: bool[] = p * 2 + 1 < lengths[b] and p * 2 + 1 < 5
                acc_2_1: float32[8] = acc_1 + sum(x[table[b, p * 2], 0:4, 0:8], axis=0)
                acc_1_1: float32[8] = acc_2_1
                acc_2_2: float32[8] = acc_1_1 + sum(x[table[b, p * 2 + 1], 0:4, 0:8], axis=0)
                acc_1_2: float32[8] = where(live, acc_2_2, acc_1_1)
                next acc_1 = acc_1_2
            after acc_3 = acc_1
            y[b, 0:8] = acc_3
        """,
    )


def test_a_running_maximum_is_taken_once() -> None:
    becomes(
        *of(softmax_sums, *PAGES),
        """
        for b in grid(3):
            m: float32[1] = full([1], float32, value=-inf)
            total: float32[1] = full([1], float32, value=0.0)
            for p in grid(0, lengths[b], max_extent=5) carrying total_1 = total, m_1 = m:
                scores: float32[1, 4] = expand_dims(sum(x[table[b, p], 0:4, 0:8], axis=1), axis=0)
                m_new: float32[1] = maximum(m_1, max(scores, axis=1))
                weights: float32[1, 4] = exp(scores - expand_dims(m_new, axis=1))
                total_2: float32[1] = total_1 * exp(m_1 - m_new) + sum(weights, axis=1)
                next total_1 = total_2
                next m_1 = m_new
            after total_3 = total_1
            after m_2 = m_1
            y[b, 0:1] = total_3
        """,
        """
        for b in grid(3):
            m: float32[1] = full([1], float32, value=-inf)
            total: float32[1] = full([1], float32, value=0.0)
            for p in grid(0, (lengths[b] + 1) // 2, max_extent=3) carrying total_1 = total, m_1 = m:
                live: bool[] = p * 2 + 1 < lengths[b] and p * 2 + 1 < 5
                scores_1: float32[1, 4] = expand_dims(sum(x[table[b, p * 2], 0:4, 0:8], axis=1), axis=0)
                scores_2: float32[1, 4] = where(live, expand_dims(sum(x[table[b, p * 2 + 1], 0:4, 0:8], axis=1), axis=0), -inf)
                scores_3: float32[1, 4] = maximum(scores_1, scores_2)
                m_new_1: float32[1] = maximum(m_1, max(scores_3, axis=1))
                weights_1: float32[1, 4] = exp(scores_1 - expand_dims(m_new_1, axis=1))
                weights_2: float32[1, 4] = exp(scores_2 - expand_dims(m_new_1, axis=1))
                terms: float32[1, 4] = weights_1 + weights_2
                total_1_1: float32[1] = total_1 * exp(m_1 - m_new_1) + sum(terms, axis=1)
                next total_1 = total_1_1
                next m_1 = m_new_1
            after total_3 = total_1
            after m_2 = m_1
            y[b, 0:1] = total_3
        """,
    )


@pytest.mark.parametrize("count", [1, 3, 5, 8])
def test_any_number_of_turns_is_a_kernel(count) -> None:
    for kernel in (summed, softmax_sums):
        ir, run = of(kernel, *PAGES, count=count)
        assert str(verify(run(ir))).count("x[table[b,") == count


@pytest.mark.parametrize(
    ("kernel", "arguments", "why"),
    [
        (stored, PAGES, "p cannot have a block: there is a store to y in it"),
        (
            rows_elsewhere, (tile.spec((40, 8), "float32"), PAGES[2]),
            "p cannot have a block: there is a loop in it",
        ),
    ],
)  # fmt: skip
def test_loops_that_do_more_are_refused(kernel, arguments, why) -> None:
    ir, run = of(kernel, *arguments)
    with pytest.raises(Refused) as caught:
        run(ir)
    assert caught.value.refusal.what == why
