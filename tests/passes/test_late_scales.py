"""late_scales: values that a maximum is taken of are scaled behind it, and where they are read."""

from __future__ import annotations

import math

import pytest

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, full, mul
from tilelang.codegen.triton.passes.late_scales import late_scales
from tilelang.ir import Apply, Expr, KernelIR
from tilelang.language import build

WHOLE = slice(None)


def maximum(value: Expr) -> Expr:
    return build.reduce("max", value, 1, True, None)


def softmax(scale: Expr | float = 0.5, also: str = "", seen: bool = False) -> KernelIR:
    """exp(scale x) by rows, of what is seen; `also`: who else reads the scaled values."""
    k = Writing()
    k.input("x", 64, 32)
    k.input("keep", 64, 32)
    k.output("y", 64, 32)
    with k.tile("t", 0, 64):
        scores = k.let("scores", mul(k.load("x", "t", WHOLE), scale))
        if seen:
            mask = build.binary("gt", k.load("keep", "t", WHOLE), 0.0, None)
            scores = k.let("scores_1", build.where(mask, scores, -math.inf, None))
        m = k.let("m", full(("t", 1), 0.0) if also == "no maximum" else maximum(scores))
        p = k.let("p", build.unary("exp", build.binary("sub", scores, m, None), None))
        if also == "a product":
            p = k.let("q", mul(p, scores))
        if also == "the place":
            place = Apply("argmax", (scores,), m.type, (("axis", 1), ("keepdim", True)))
            p = k.let("q", build.binary("add", p, place, None))
        k.store("y", "t", WHOLE, value=p)
    return k.ir()


def test_the_maximum_is_scaled_and_the_difference():
    becomes(
        softmax(),
        late_scales,
        """
        for t in tile(64):
            scores: float32[t, 32] = x[t, 0:32] * 0.5
            m: float32[t, 1] = max(scores, axis=1, keepdim=True)
            p: float32[t, 32] = exp(scores - m)
            y[t, 0:32] = p
        """,
        """
        for t in tile(64):
            scores: float32[t, 32] = x[t, 0:32]
            m: float32[t, 1] = max(scores, axis=1, keepdim=True) * 0.5
            p: float32[t, 32] = exp(scores * 0.5 - m)
            y[t, 0:32] = p
        """,
    )


def test_what_a_mask_leaves_is_scaled_late_too():
    becomes(
        softmax(seen=True),
        late_scales,
        """
        for t in tile(64):
            scores: float32[t, 32] = x[t, 0:32] * 0.5
            scores_1: float32[t, 32] = where(keep[t, 0:32] > 0.0, scores, -inf)
            m: float32[t, 1] = max(scores_1, axis=1, keepdim=True)
            p: float32[t, 32] = exp(scores_1 - m)
            y[t, 0:32] = p
        """,
        """
        for t in tile(64):
            scores: float32[t, 32] = x[t, 0:32]
            scores_1: float32[t, 32] = where(keep[t, 0:32] > 0.0, scores, -inf)
            m: float32[t, 1] = max(scores_1, axis=1, keepdim=True) * 0.5
            p: float32[t, 32] = exp(scores_1 * 0.5 - m)
            y[t, 0:32] = p
        """,
    )


@pytest.mark.parametrize("also", ["no maximum", "a product", "the place"])
@pytest.mark.parametrize("seen", [False, True])
def test_what_others_read_is_scaled_at_once(also, seen):
    """Two that differ may be one when they are scaled: the first greatest is another one then."""
    stays(softmax(also=also, seen=seen), late_scales)


@pytest.mark.parametrize("scale", [-0.5, 0.0, math.inf, 1e-40])
def test_a_scale_that_turns_or_loses_the_order_stays(scale):
    stays(softmax(scale), late_scales)
