"""Clamps: bounds of scalar expressions, and the terms and comparisons that they decide."""

from __future__ import annotations

import math

import pytest

from tests.schedule.written import INT, Writing, edge, planned
from tilelang.codegen.pallas.plan.clamps import Axes, at_least, at_most, both, bounds, holds, more
from tilelang.codegen.pallas.plan.physical import Lane
from tilelang.ir import Apply, Expr, GridIndex, Load, Type
from tilelang.ir.integers import add, const, mul
from tilelang.schedule.config import Config

BOOL = Type((), "bool")
MEMORY = Load("lengths", (), INT)  # any number
S = GridIndex("s")


@pytest.fixture(scope="module")
def axes() -> Axes:
    """s in [0, 4), t in tiles of 16 of 64, tm in tiles of 16 of an unknown part of 50."""
    k = Writing("axes")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 4, 64)
    k.input("z", 50, 128)
    k.output("y", 4, 64, fill=None)
    k.output("w", 50, 128)
    with k.grid("s", 0, 4), k.tile("t", 0, 64):
        k.store("y", S, "t", value=k.load("x", S, "t"))
    with k.grid("g", 0, 4), k.tile("tm", begin, end):
        k.store("w", "tm", slice(None), value=k.load("z", "tm", slice(None)))
    plan = planned(k.ir(), Config({"t": 16, "tm": 16}))
    return {axis.name: axis for launch in plan.launches for axis in launch.axes}


def compared(op: str, left: Expr, right: Expr) -> Apply:
    return Apply(op, (left, right), BOOL)


def apply(op: str, *args: Expr) -> Apply:
    return Apply(op, args, INT)


def test_bounds(axes: Axes) -> None:
    assert bounds(const(3), axes) == (3, 3)
    assert bounds(S, axes) == (0, 3)
    assert bounds(add(mul(S, 16), const(16)), axes) == (16, 64)
    assert bounds(apply("sub", S, S), axes) == (-3, 3)
    assert bounds(MEMORY, axes) == (-math.inf, math.inf)
    assert bounds(apply("minimum", MEMORY, const(8)), axes) == (-math.inf, 8)
    assert bounds(apply("maximum", MEMORY, const(8)), axes) == (8, math.inf)
    assert bounds(apply("floordiv", add(S, const(5)), const(4)), axes) == (1, 2)
    assert bounds(apply("mul", S, MEMORY), axes) == (-math.inf, math.inf)


def test_edges_of_tiles(axes: Axes) -> None:
    assert bounds(edge("t", "begin"), axes) == (0, 48)
    assert bounds(edge("t", "end"), axes) == (16, 64)
    assert bounds(edge("tm", "begin"), axes) == (0, math.inf)
    assert bounds(edge("tm", "end"), axes) == (-math.inf, 64)  # the end may be any number
    assert bounds(Lane("t"), axes) == (0, 63)


def test_terms_that_decide_nothing_go(axes: Axes) -> None:
    assert at_least(S, 0, axes) == S
    assert at_least(MEMORY, 0, axes) == apply("maximum", MEMORY, const(0))
    assert at_least(const(-3), 0, axes) == const(0)
    assert at_most(mul(S, 16), 48, axes) == mul(S, 16)
    assert at_most(mul(S, 16), 47, axes) == apply("minimum", mul(S, 16), const(47))
    assert more(apply("minimum", MEMORY, const(64)), const(0), axes) == compared(
        "gt", MEMORY, const(0)
    )
    kept = apply("minimum", MEMORY, S)
    assert more(kept, const(0), axes) == compared("gt", kept, const(0))


def test_comparisons_that_always_hold_go(axes: Axes) -> None:
    always, open_one = compared("ge", S, const(0)), compared("lt", S, const(3))
    assert holds(always, axes)
    assert not holds(open_one, axes)
    assert both([always, open_one], axes) == open_one
    assert both([always, always], axes) is None
    assert both([open_one, open_one], axes) == Apply("logical_and", (open_one, open_one), BOOL)
