"""Which carries are reductions."""

from __future__ import annotations

import pytest

from tests.analysis.build import F32, INT, Draft, add, carry, floats, let, mul, op, store, sub, var
from tilelang.analysis import analyze
from tilelang.ir import Const, Type

ZERO = Const(0.0, F32)
X = floats("x", "tm")
acc, best = var("acc"), var("best")
FLAG = Type((), "bool")


def fact(*body, carries):
    d = Draft(x=(64,))
    return analyze(d.kernel(d.tile("tm", 0, 64, *body, carries=carries))).axis("tm")


def step(after, *body):
    return fact(*body, carries=[carry("acc", ZERO, after)])


X0 = floats("x", 0)
POSITIVE = op("gt", X0, ZERO, dtype="bool")


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (add(acc, X0), "carries acc, a sum"),
        (add(X0, acc), "carries acc, a sum"),
        (add(add(X0, acc), X0), "carries acc, a sum"),
        (op("maximum", acc, X0), "carries acc, a maximum"),
        (op("minimum", acc, X0), "carries acc, a minimum"),
        (mul(acc, X0), "carries acc, a product"),
        (op("logical_and", acc, POSITIVE), "carries acc, a logical and"),
        (op("bitwise_or", acc, X0), "carries acc, a logical or"),
        (op("where", POSITIVE, add(acc, X0), acc), "carries acc, a sum"),
        (op("where", POSITIVE, add(acc, X0), mul(acc, X0)), "carries acc"),
        (op("where", op("gt", acc, ZERO, dtype="bool"), add(acc, X0), acc), "carries acc"),
        (add(mul(acc, X0), X0), "carries acc"),
        (add(acc, acc), "carries acc"),
        (sub(X0, acc), "carries acc"),
        (op("exp", acc), "carries acc"),
        (X0, "carries acc"),
        (acc, "carries acc"),
    ],
)
def test_one_carry(after, sentence):
    found = step(after)
    assert found.why == sentence
    assert found.kind == "ordered" and found.carries == ("acc",)


def test_through_names():
    found = step(var("next"), let("part", add(X0, X0)), let("next", add(acc, var("part"))))
    assert found.why == "carries acc, a sum"


def test_a_name_that_hides_the_carry():
    found = step(var("next"), let("part", mul(acc, X0)), let("next", add(acc, var("part"))))
    assert found.why == "carries acc"


def test_two_sums():
    carries = [carry("acc", ZERO, add(acc, X0)), carry("best", ZERO, add(best, mul(X0, X0)))]
    found = fact(carries=carries)
    assert found.why == "carries acc, best, sums"


def test_carries_of_different_ops():
    carries = [carry("acc", ZERO, add(acc, X0)), carry("best", ZERO, op("maximum", best, X0))]
    found = fact(carries=carries)
    assert found.why == "carries acc, best"


def test_a_sum_of_another_carry_is_no_reduction():
    carries = [carry("acc", ZERO, add(acc, best)), carry("best", ZERO, add(best, X0))]
    assert fact(carries=carries).why == "carries acc, best"


def nested(inner_next, inner_init=acc, after=None):
    d = Draft(x=(64,))
    inner = d.grid("h", 0, 4, carries=[carry("part", inner_init, inner_next)])
    after = var("part_out") if after is None else after
    return analyze(d.kernel(d.tile("tm", 0, 64, inner, carries=[carry("acc", ZERO, after)])))


def test_a_loop_inside_that_goes_on_with_the_sum():
    facts = nested(add(var("part"), X0))
    assert facts.axis("tm").why == "carries acc, a sum"
    assert facts.axis("h").why == "carries part, a sum"


def test_a_loop_inside_that_does_something_else():
    assert nested(mul(var("part"), X0), add(acc, X0)).axis("tm").why == "carries acc"
    assert nested(add(var("part"), acc)).axis("tm").why == "carries acc"


def test_a_sum_of_what_a_loop_inside_found():
    facts = nested(op("maximum", var("part"), X0), ZERO, add(acc, var("part_out")))
    assert facts.axis("tm").why == "carries acc, a sum"
    assert facts.axis("h").why == "carries part, a maximum"


def test_a_carry_that_an_inner_loop_started_from_is_not_forgotten():
    facts = nested(op("maximum", var("part"), X0), acc, add(acc, var("part_out")))
    assert facts.axis("tm").why == "carries acc"


def test_carry_and_store():
    d = Draft(y=(4,))
    body = store("y", 0)
    ir = d.kernel(
        d.grid("g", 0, 4, body, carries=[carry("n", Const(0, INT), add(var("n", INT), 1))])
    )
    why = analyze(ir).axis("g").why
    assert why == "carries n, a sum; the same elements of y are stored again"
