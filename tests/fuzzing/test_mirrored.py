"""Loops that begin at the last position: drawn, printed, evaluated, and shrunk."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzzing.campaign import BAD, Plan, explore
from tests.fuzzing.compose import compose
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.mirrored import mirrored
from tests.fuzzing.program import Axis, Binary, Load, Loop, Pick, Program, Store, Tensor
from tests.fuzzing.shrink import candidates
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, try_kernel, try_wild
from tilelang.frontend import indexing

SEEDS = range(6)
ROWS, GROUPS = 40, 4
DRAWN = (7100005, 7100010, 7100034)

ROW = Store("y", (Pick("p"),), Binary("*", Load("x", (Pick("p"),)), Load("w", (Pick("g"),))))
PLAIN = Program(
    (Axis("g", "grid", GROUPS), Axis("p", "grid", ROWS, "offsets", "g")),
    (
        Tensor("offsets", (GROUPS + 1,), "int32", "offsets", limit=ROWS),
        Tensor("x", (ROWS,), "float32", "input"),
        Tensor("w", (GROUPS,), "float32", "input"),
        Tensor("y", (ROWS,), "float32", "output", 0.0),
    ),
    (Loop("g", (Loop("p", (ROW,)),)),),
)
MIRRORED = mirrored(PLAIN, random.Random(0))


def test_rows_of_groups_backwards():
    text = source(MIRRORED)
    head = "        for p_turn in hl.grid(offsets[g + 1] - offsets[g]):\n"
    assert f"{head}            p = offsets[g + 1] - 1 - p_turn\n" in text
    given = {"offsets": np.array([0, 0, 5, 5, 40]), "x": np.ones(40), "w": np.arange(4.0)}
    found = evaluate(MIRRORED, given, 0).results
    np.testing.assert_array_equal(found["y"], [*[1] * 5, *[3] * 35])
    assert try_kernel(MIRRORED, None, SEEDS) == OK
    assert try_wild(MIRRORED, None, SEEDS[:3]) == OK


def test_planted_a_range_that_is_too_short(monkeypatch):
    """The extent is that of what the index counts through: of less, ranges are refused."""
    bound = indexing.bound_extent
    monkeypatch.setattr(
        indexing, "bound_extent", lambda here, axis, size, masked: bound(here, axis, 9, masked)
    )
    assert try_kernel(MIRRORED, None, SEEDS).kind == "refused"


def test_smaller_programs_go_forwards():
    found = [p for p in candidates(MIRRORED) if not any(a.mirrored for a in p.axes)]
    assert any(try_kernel(p, None, [0]) == OK for p in found)


def test_they_are_drawn():
    assert all("mirrored" in compose(seed).changes for seed in DRAWN)


@pytest.mark.slow
@pytest.mark.parametrize("seed", DRAWN)
def test_a_share_of_them_is_right(seed):
    trials = explore(seed, Plan(configs=1, trials=0))
    assert [str(t) for t in trials if t.outcome.kind in BAD] == []
    assert sum(t.cases for t in trials) > 0
