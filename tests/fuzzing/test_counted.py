"""Tiles of open blocks that are counted: drawn, cut as a config cuts them, and refused."""

from __future__ import annotations

import numpy as np

import tilelang as tile
from tests.fuzzing.campaign import BAD, Plan, explore
from tests.fuzzing.compose import compose
from tests.fuzzing.counted import cut, open_numbers
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import (
    Axis,
    If,
    Load,
    Loop,
    Pick,
    Program,
    Reduce,
    Store,
    Tensor,
    Term,
    parts,
)
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, try_kernel
from tilelang.codegen.pallas.plan import blocks
from tilelang.runtime import launch

# y[t.id + 1] = the sum of a tile of x, if s < 1
PARTS = Program(
    axes=(Axis("t", "tile", 40),),
    tensors=(
        Tensor("x", (40,), "float32", "input"),
        Tensor("s", (), "int32", "index", limit=2),
        Tensor("y", (4,), "float32", "output", 0.0),
    ),
    body=(
        Loop(
            "t",
            (
                If(
                    Term("", "s"),
                    1,
                    (
                        Store(
                            "y",
                            (Pick("t", number=True, shift=1),),
                            Reduce("sum", "t", Load("x", (Pick("t"),))),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
SEEDS = range(6)


def of(block: int) -> tile.Config:
    return tile.Config({"t": block})


def test_the_text_and_the_meaning() -> None:
    assert "            y[t.id + 1] = x[t].sum(0)" in source(PARTS)
    x = np.ones(40)
    found = evaluate(cut(PARTS, {"t": 16}), {"x": x, "s": np.asarray(0)}).results["y"]
    np.testing.assert_array_equal(found, [0, 16, 16, 8])
    assert open_numbers(PARTS) == {"t"} and not open_numbers(cut(PARTS, {"t": 16}))


def test_blocks_that_make_more_tiles_are_refused() -> None:
    assert [try_kernel(PARTS, of(b), SEEDS) for b in (16, 32)] == [OK, OK]
    assert try_kernel(PARTS, None, SEEDS) == OK
    found = try_kernel(PARTS, of(8), SEEDS)
    assert found.kind == "refused" and "up to 5 tiles of t" in found.detail


def test_planted_blocks_that_nobody_looks_at(monkeypatch) -> None:
    """First the plan's, then those of the call: five tiles in four places, in silence."""
    monkeypatch.setattr(blocks, "check_numbers", lambda facts, found: None)
    assert try_kernel(PARTS, of(8), SEEDS) == OK  # which refuses what leaves y
    compiled = launch.compile_checks
    monkeypatch.setattr(launch, "compile_checks", lambda ir, facts, _: compiled(ir, facts))
    assert try_kernel(PARTS, of(8), SEEDS).kind == "accepted"


def test_they_are_drawn() -> None:
    programs = [p for s in range(812110, 812210) if open_numbers(p := compose(s).program)]
    assert len(programs) >= 3
    assert any(isinstance(part, If) for p in programs for part in parts(p.body))
    assert any(a.length for p in programs for a in p.axes)


def test_a_share_of_them_is_right() -> None:
    trials = [t for seed in (812117,) for t in explore(seed, Plan(configs=1, trials=0))]
    assert [str(t) for t in trials if t.outcome.kind in BAD] == []
    assert sum(t.cases for t in trials) > 0
