"""Stores that go by what a loop stored before: drawn, evaluated, and right in every form."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzzing.campaign import BAD, Plan, explore
from tests.fuzzing.compose import compose
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import Axis, Load, Loop, Pick, Program, Store, Tensor
from tests.fuzzing.recalled import recalled
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, try_kernel
from tilelang.codegen.pallas.plan.windows import choose

SEEDS = range(4)
N = 9
DRAWN = (7200007, 7200015, 7200100)

PLAIN = Program(
    (Axis("i", "grid", N), Axis("t", "tile", 20)),
    (Tensor("x", (N, 20), "float32", "input"), Tensor("y", (N, 20), "float32", "output", 0.0)),
    (
        Loop(
            "i",
            (Loop("t", (Store("y", (Pick("i"), Pick("t")), Load("x", (Pick("i"), Pick("t")))),)),),
        ),
    ),
)
RECALLED = recalled(PLAIN, random.Random(1))


def test_each_row_goes_by_the_one_before():
    assert RECALLED is not None
    (store,) = RECALLED.body[0].body[0].body
    later = store.index[0].shift
    assert f"y[i + {later}, t] = (x[i, t] + (y[i, t] * 0.5))" in source(RECALLED)
    x = np.random.default_rng(0).standard_normal((N, 20))
    want = np.zeros((N + later, 20))
    for i in range(N):
        want[i + later] = x[i] + want[i] / 2
    found = evaluate(RECALLED, {"x": x}, 0).results["y"]  # in float32
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert try_kernel(RECALLED, None, SEEDS) == OK


def test_planted_one_block_for_each_position(monkeypatch):
    monkeypatch.setattr(choose, "several", lambda *args: frozenset())
    assert try_kernel(RECALLED, None, SEEDS).kind == "refused"


def test_they_are_drawn():
    assert all("recalled" in compose(seed).changes for seed in DRAWN)


@pytest.mark.slow
@pytest.mark.parametrize("seed", DRAWN)
def test_a_share_of_them_is_right(seed):
    trials = explore(seed, Plan(configs=1, trials=0))
    assert [str(t) for t in trials if t.outcome.kind in BAD] == []
    assert trials
