"""What of training code the random kernels that are differentiated have in them."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests import partitions
from tests.fuzzing import gradients
from tests.fuzzing.gradients import drawn, try_gradient
from tests.fuzzing.inputs import case
from tests.fuzzing.meaning import DETACHED, evaluate
from tests.fuzzing.program import (
    Axis,
    Binary,
    Joined,
    Let,
    Load,
    Loop,
    Number,
    Pick,
    Position,
    Program,
    Reduce,
    Ref,
    Scalar,
    Store,
    Tensor,
    Term,
    Unary,
    Update,
    parts,
)
from tests.fuzzing.text import source
from tests.fuzzing.trained import CHANGES
from tests.fuzzing.trial import OK
from tilelang.passes.drop_detached import drop_detached
from tilelang.transforms import derive

X = Load("x", (Pick("t"),))
HELD = Program(  # y[t] = x[t] * detach(x[t] * x[t])
    (Axis("t", "tile", 5),),
    (Tensor("x", (5,), "float32", "input"), Tensor("y", (5,), "float32", "output", 0.0)),
    (
        Loop(
            "t",
            (Store("y", (Pick("t"),), Binary("*", X, Unary("stopped", Binary("*", X, X)))),),
        ),
    ),
)


WIDE = Pick("c")
SCALED = Binary("*", Load("x", (Pick("j"), WIDE)), Scalar(Term("j", "s")))
EVERY_TURN = Program(  # the largest of what each turn of a loop computes alike, beside it and in it
    (Axis("j", "grid", 2), Axis("u", "tile", 50), Axis("i", "grid", 3), Axis("c", "full", 8)),
    (
        Tensor("x", (2, 8), "float32", "input"),
        Tensor("y", (2, 50, 8), "float32", "output", 0.0),
        Tensor("s", (2,), "int32", "index", limit=5),
    ),
    (
        Loop(
            "j",
            (
                Loop(
                    "u",
                    (
                        Let("acc", ("u", "c"), Number(1.5)),
                        Loop("i", (Update("acc", "max", Binary("+", SCALED, Position("u"))),)),
                        Store("y", (Pick("j"), Pick("u"), WIDE), Ref("acc")),
                    ),
                ),
            ),
        ),
    ),
)


def test_what_is_drawn():
    found = [drawn(seed) for seed in range(990000, 990100)]
    counts = Counter(name for _, names in found for name in names)
    assert (
        set(counts) == {*CHANGES, "viewed", "guarded", "columns", "narrow"}
        and min(counts.values()) >= 2
    )
    for program, _ in found:
        ast.parse(source(program))
    values = [p for program, _ in found for p in parts(program.body)]
    assert {p.op for p in values if isinstance(p, Unary)} >= set(DETACHED)
    assert any(isinstance(p, Joined) for p in values)
    computed = [p for p in values if isinstance(p, Reduce) and p.op == "max"]
    assert any(isinstance(p.value, Binary | Unary) for p in computed)


def test_inputs_of_16_bits_and_heads_in_columns():
    """A gradient is compared in the dtype and in the shape of its argument."""
    x = Tensor("x", (5, 2, 8), "bfloat16", "input", heads=True)
    y = Tensor("y", (5, 2, 8), "float32", "output", 0.0)
    axes = Axis("t", "tile", 5), Axis("h", "grid", 2), Axis("c", "full", 8)
    index = Pick("t"), Pick("h"), Pick("c")
    square = Binary("*", Load("x", index), Load("x", index))
    body = (Loop("t", (Loop("h", (Store("y", index, square),)),)),)
    program = Program(axes, (x, y), body)
    text = source(program)
    assert "x = x.reshape(x.shape[0], 2, x.shape[1] // 2)" in text and "x[t, h, :].to(" in text
    given = case(program, 1)
    assert given.arguments["x"].shape == (5, 16) and given.results["y"].shape == (5, 2, 8)
    assert try_gradient(program, [0, 1]) == OK


def test_parts_of_one_array():
    programs = [p for p, names in map(drawn, range(990000, 990030)) if "planes" in names]
    for program in programs:
        loads = [p for p in parts(program.body) if isinstance(p, Load)]
        planes = {
            (p.tensor, n, pick.shift)
            for p in loads
            for n, pick in enumerate(p.index)
            if pick == Pick("", pick.shift)
        }
        assert len(planes) >= 2, source(program)


def test_the_meaning_of_what_is_detached():
    """It is worth what it is; in a derivative it is what it was."""
    x = np.arange(5.0)
    assert "import jax\n" in source(HELD) and "jax.lax.stop_gradient((x[t] * x[t]))" in source(HELD)
    np.testing.assert_array_equal(evaluate(HELD, {"x": x}).results["y"], x**3)
    held = evaluate(HELD, {"x": x + 1}, detached=lambda _: x**2).results["y"]
    np.testing.assert_array_equal(held, (x + 1) * x**2)


def test_a_planted_bug_is_caught(monkeypatch):
    assert try_gradient(HELD, [0, 1]) == OK
    monkeypatch.setattr(
        "tests.derivatives.derive",
        lambda ir, facts, *rest: derive(drop_detached(ir), facts, *rest),
    )
    assert try_gradient(HELD, [0, 1]).kind == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(990044, 990048))
def test_gradients_of_what_is_drawn(seed):
    """990044: a sum that is detached inside of an online softmax, and its maximum is not."""
    program, _ = drawn(seed)
    assert try_gradient(program, [1000 * seed, 1000 * seed + 1]).kind in ("ok", "refused")


def test_a_campaign_says_what_it_had(capsys, monkeypatch):
    monkeypatch.setattr(gradients, "drawn", lambda seed: (replace(HELD), ("detached",)))
    assert gradients.campaign([1]) == 0
    assert "of training code: {'detached': 1}" in capsys.readouterr().out


def test_infinite_numbers_are_no_fractions_and_no_integers():
    """The program of this seed has scores that are masked by -inf among whole numbers."""
    program, _ = drawn(990390)
    assert program.outputs and all(t.dtype == "float32" for t in program.outputs)


def test_what_every_turn_meets_again_is_not_compared():
    """XLA rounded a product in the loop otherwise than beside it: no element was the largest."""
    assert try_gradient(EVERY_TURN, [990207000, 990207001]) == OK


def test_positions_that_jump_on_both_sides_have_no_difference():
    """The positions of several largest elements change within one step in either direction."""
    assert try_gradient(drawn(990488)[0], [990488000, 990488001]) == OK


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7940065, 7960011, 7960017])
def test_gradients_that_are_as_near_as_their_dtypes_allow(seed):
    """Elements of eight bits, equal ones under cotangents of both signs, parts of small sums."""
    assert try_gradient(drawn(seed)[0], [1000 * seed, 1000 * seed + 1]) == OK


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float32"])
def test_a_gradient_is_as_exact_as_its_dtype(name):
    rng, dtype = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, name, name))
    exact = 0.05 * rng.standard_normal(4000)
    direction = rng.standard_normal(4000) + exact
    slope = float((exact * direction).sum())
    rounded = exact.astype(dtype).astype(np.float64)
    assert not gradients._unlike(rounded, dtype, direction, lambda _: (slope, 0.0))
    assert gradients._unlike(2 * rounded, dtype, direction, lambda _: (slope, 0.0))


def test_the_sum_of_parts_is_as_exact_as_its_dtype():
    """What is under the smallest normal number has an error that no factor bounds."""
    exact = np.array([0.0029, 0.0049, 0.25])
    whole = exact.astype(ml_dtypes.float8_e4m3fn)
    assert partitions._alike(exact * (1 + 1e-7), whole, "float32", 0.0)
    for wrong in (exact * [1, 1, 1.3], exact + np.array([0, 0.006, 0])):
        assert not partitions._alike(wrong, whole, "float32", 0.0)
    most = np.array([460.0])  # which is rounded to the largest number
    assert partitions._alike(most, most.astype(whole.dtype), "float32", 0.0)


def test_one_of_equal_elements_has_another_slope_on_either_side():
    """Two maxima of equal elements, whose cotangents have opposite signs: the sum has one slope."""
    maximum = Reduce("max", "c", Load("x", (Pick("t"), WIDE)))
    program = Program(
        (Axis("t", "tile", 2), Axis("c", "full", 8)),
        (
            Tensor("x", (2, 8), "float32", "input"),
            Tensor("y", (2,), "float32", "output", 0.0),
        ),
        (Loop("t", (Store("y", (Pick("t"),), maximum),)),),
    )
    direction, cotangents = np.array([[0.0, 1.0] * 4] * 2), [np.array([1.0, -1.0])]
    slope, unsure = gradients._difference(
        program, {"x": np.ones((2, 8))}, "x", direction, cotangents, gradients.STEP
    )
    assert abs(slope) < 1e-9 and abs(unsure - 2) < 0.01
