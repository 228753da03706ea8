"""drop_implied_masks: weights of masked scores need no mask of their own."""

from __future__ import annotations

import math

from tests.passes.becomes import becomes, loops, on_chain, stays
from tests.schedule.written import Writing, add, full, total
from tilelang.ir import KernelIR
from tilelang.language import build
from tilelang.language.shapes import expand_dims
from tilelang.passes.drop_implied_masks import drop_implied_masks
from tilelang.passes.fill_pads import fill_pads

WHOLE = slice(None)


def filled(ir: KernelIR) -> KernelIR:
    return on_chain(lambda levels, leaf: fill_pads(levels, leaf, {"t"}))(ir)


DROPPED = on_chain(drop_implied_masks)


def weights(peak: bool = True) -> KernelIR:
    """The sum of exp(x - m) over columns; m is a maximum of x, or else a number."""
    k = Writing()
    k.input("x", 8, 50)
    k.output("y", 8)
    with k.grid("g", 0, 1):
        with k.tile("t", 0, 50):
            acc = k.carried("acc", full((8,), 0.0))
            m = k.carried("m", full((8,), -math.inf))
            s = k.let("s", k.load("x", WHOLE, "t"))
            seen = build.binary("maximum", m, build.reduce("max", s, 1, False, None), None)
            top = k.let("top", seen if peak else build.binary("maximum", m, 1.5, None))
            p = k.let(
                "p",
                build.unary("exp", build.binary("sub", s, expand_dims(top, 1, None), None), None),
            )
            k.becomes(acc, add(acc, total(p, 1)))
            k.becomes(m, top if peak else seen)
        k.store("y", WHOLE, value=k.after("acc", acc))
    return k.ir()


def test_a_weight_of_a_masked_score_is_zero_anyway():
    becomes(
        filled(weights()),
        DROPPED,
        """
        for g in grid(1):
            for t in tile(50) carrying acc_in = full([8], float32, value=0.0), m_in = full([8], float32, value=-inf):
                s: float32[8, t] = where(in_range(axis=t), x[0:8, t], -inf)
                top: float32[8] = maximum(m_in, max(s, axis=1))
                p: float32[8, t] = where(in_range(axis=t), exp(s - expand_dims(top, axis=1)), 0.0)
                acc_new: float32[8] = acc_in + sum(p, axis=1)
                m_new: float32[8] = top
                next acc_in = acc_new
                next m_in = m_new
            after acc_out = acc_in
            after m_out = m_in
            y[0:8] = acc_out
        """,
        """
        for g in grid(1):
            for t in tile(50) carrying acc_in = full([8], float32, value=0.0), m_in = full([8], float32, value=-inf):
                s: float32[8, t] = where(in_range(axis=t), x[0:8, t], -inf)
                top: float32[8] = maximum(m_in, max(s, axis=1))
                p: float32[8, t] = exp(s - expand_dims(top, axis=1))
                acc_new: float32[8] = acc_in + sum(p, axis=1)
                m_new: float32[8] = top
                next acc_in = acc_new
                next m_in = m_new
            after acc_out = acc_in
            after m_out = m_in
            y[0:8] = acc_out
        """,
    )


def test_what_is_subtracted_must_be_a_maximum():
    ir = filled(weights(peak=False))
    assert "p: float32[8, t] = where(" in loops(ir)
    stays(ir, DROPPED)


def test_without_masks_nothing_changes():
    stays(weights(), DROPPED)
    assert loops(DROPPED(weights())) != loops(DROPPED(filled(weights())))


def test_along_rows_too():
    k = Writing()
    k.input("x", 50, 8)
    k.output("y", 8)
    with k.grid("g", 0, 1):
        with k.tile("t", 0, 50):
            acc = k.carried("acc", full((8,), 0.0))
            m = k.carried("m", full((8,), -math.inf))
            s = k.let("s", k.load("x", "t", WHOLE))
            top = k.let(
                "top", build.binary("maximum", m, build.reduce("max", s, 0, False, None), None)
            )
            far = build.binary("sub", s, expand_dims(top, 0, None), None)
            k.becomes(acc, add(acc, total(build.unary("exp", far, None), 0)))
            k.becomes(m, top)
        k.store("y", WHOLE, value=k.after("acc", acc))
    masked = filled(k.ir())
    sums = "sum(where(expand_dims(in_range(axis=t), axis=1), exp(s - "
    assert sums in loops(masked)
    assert sums not in loops(DROPPED(masked))
    assert "sum(exp(s - " in loops(DROPPED(masked))
