"""running_maximum: which maximum of a loop only keeps its numbers small, and what it scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import parsed
from tilelang.codegen.pallas.passes import running_maximum as maxima
from tilelang.codegen.pallas.passes.running_maximum import RunningMaximum, running_maximum
from tilelang.ir import Loop, statements
from tilelang.ir.text import expression
from tilelang.ir.verify import verify

ROWS = tile.spec((40, 8), "float32")
Step = Callable[..., tuple[Any, Any]]


def carried(step: Step) -> tile.Kernel:
    """A kernel that carries a maximum and a sum, as `step` makes them of eight rows at a time."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros([8], dtype=hl.float32)
        for _ in hl.grid(1):
            m = hl.full([8], -math.inf, dtype=hl.float32)
            total = hl.zeros([8], dtype=hl.float32)
            for t in hl.tile(x.shape[0], block_size=8):
                m, total = step(m, total, x[t, :])
            y[:] = m + hl.log(total)
        return y

    return kernel


def softmax(m, total, rows):
    m_new = hl.maximum(m, rows.amax(0))
    weights = hl.exp(rows - m_new[None, :])
    return m_new, total * hl.exp(m - m_new) + weights.sum(0)


def the_other_way_round(m, total, rows):
    m_new = hl.maximum(rows.amax(0), m)
    weights = hl.exp(rows - m_new[None, :])
    return m_new, weights.sum(0) + hl.exp(m - m_new) * total


def guarded(m, total, rows):
    """0 for -inf: what vanishes cannot be told, what is scaled can."""
    m_new = hl.maximum(m, rows.amax(0))
    safe = hl.where(m_new == -math.inf, 0.0, m_new)
    return m_new, total * hl.exp(m - safe) + hl.exp(rows - safe[None, :]).sum(0)


def not_scaled(m, total, rows):
    m_new = hl.maximum(m, rows.amax(0))
    return m_new, total + hl.exp(rows - m_new[None, :]).sum(0)


def scaled_twice(m, total, rows):
    m_new = hl.maximum(m, rows.amax(0))
    return m_new, total * hl.exp(2.0 * (m - m_new)) + hl.exp(rows - m_new[None, :]).sum(0)


def counted(m, total, rows):
    """The largest so far is more than a scale: it is compared."""
    m_new = hl.maximum(m, rows.amax(0))
    return m_new, total + hl.where(rows >= m_new[None, :], 1.0, 0.0).sum(0)


def of_what_is_carried(m, total, rows):
    m_new = hl.maximum(m, (rows * total[None, :]).amax(0))
    return m_new, total * hl.exp(m - m_new) + hl.exp(rows - m_new[None, :]).sum(0)


def no_maximum(m, total, rows):
    m_new = hl.minimum(m, rows.amin(0))
    return m_new, total * hl.exp(m - m_new) + hl.exp(rows - m_new[None, :]).sum(0)


def found(step: Step) -> RunningMaximum | None:
    ir, _ = parsed(carried(step), (ROWS,))
    loops = (s for s in statements(verify(ir).body) if isinstance(s, Loop) and s.axis == "t")
    return running_maximum(next(loops))


@pytest.mark.parametrize(
    ("step", "scaled"),
    [
        (softmax, "total_1 * exp(m_1 - m_new)"),
        (the_other_way_round, "exp(m_1 - m_new) * total_1"),
    ],
)
def test_a_softmax_adds_what_vanishes(step, scaled) -> None:
    made = found(step)
    assert made is not None
    assert (made.carry, made.next, expression(made.value)) == ("m_1", "m_new", "max(rows, axis=0)")
    assert (made.first, made.lows) == ({"rows"}, "rows")
    (added,) = made.added
    assert (added.carry, expression(added.scaled)) == ("total_1", scaled)
    assert expression(added.term) == "sum(weights, axis=0)"


def test_a_guard_is_scaled_and_does_not_vanish() -> None:
    made = found(guarded)
    assert made is not None and (made.lows, made.added) == (None, ())


@pytest.mark.parametrize(
    "step", [not_scaled, scaled_twice, counted, of_what_is_carried, no_maximum]
)
def test_what_is_no_scale(step) -> None:
    assert found(step) is None


def test_a_proof_that_takes_all_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(maxima, "_scales", lambda *_: True)
    assert found(not_scaled) is not None
