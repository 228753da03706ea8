"""drop_implied_masks: weights of masked scores need no mask of their own."""

from __future__ import annotations

import math

from tests.passes.becomes import becomes, loops, on_chain, stays
from tests.schedule.written import Writing, add, full, total
from tilelang.ir import KernelIR
from tilelang.language import build
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
            seen = build.reduce("max", s, 1, False, None)
            top = k.let("top", build.binary("maximum", m, seen if peak else 1.5, None))
            p = k.let("p", build.unary("exp", build.binary("sub", s, build.expand_dims(top, 1, None), None), None))
            k.becomes(acc, add(acc, total(p, 1)))
            k.becomes(m, top)
        k.store("y", WHOLE, value=k.after("acc", acc))
    return k.ir()


def test_a_weight_of_a_masked_score_is_zero_anyway():
    becomes(
        filled(weights()),
        DROPPED,
        """<b1>""",
        """<a1>""",
    )


def test_what_is_subtracted_must_be_a_maximum():
    ir = filled(weights(peak=False))
    assert "p: float32[8, t] = where(" in loops(ir)
    stays(ir, DROPPED)


def test_without_masks_nothing_changes():
    stays(weights(), DROPPED)
    assert loops(DROPPED(weights())) != loops(DROPPED(filled(weights())))
