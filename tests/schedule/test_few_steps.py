"""Launches of few or of small steps: what those cost besides their work decides on defaults.

Times in words are those of libtpu 0.0.42.1's final schedules, executed; no TPU was used.
"""

from __future__ import annotations

from functools import partial

import pytest

import tilelang as tile
from examples.dense.rope import rope
from examples.jagged.jagged_to_padded import jagged_to_padded
from tests.subjects import SUBJECTS
from tilelang.codegen.pallas.plan.estimate import rank, seconds

BOXES = tile.spec((32768, 512), "bfloat16"), tile.spec((2049,), "int32"), 32
ONE_BOX = tile.Config({"t": 32}, loop_type="fori_loop")


def estimated() -> float:
    """Microseconds of 2,048 steps that write 32 KiB each: 479 by v5e's schedule."""
    plan = jagged_to_padded.lower(*BOXES, target="tpu:v5e", config=ONE_BOX).plan
    guess, _ = rank.judged(plan)
    assert guess is not None
    return guess.seconds * 1e6


def test_small_writes_are_waited_for():
    assert 0.75 < estimated() / 479.4 < 1.25


def test_a_write_that_lands_at_once_is_found(monkeypatch):
    monkeypatch.setattr(seconds, "_piped", partial(_landed, seconds._piped))
    assert estimated() / 479.4 < 0.6


def _landed(piped, compute, copied, chip, ahead, lands):
    return piped(compute, copied, chip, ahead, False)


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_short_groups_move_together(chip):
    """189.3 us on a v5e, where a step for each box takes 479.4."""
    chosen = jagged_to_padded.default_config(*BOXES, target=f"tpu:{chip}")
    assert dict(chosen.blocks) == {"b": 64, "t": 2048}


def test_few_steps_run_all_iterations_of_a_loop():
    """3.5 us in one step, 4.4 in three."""
    (odd,) = (s.cases[2] for s in SUBJECTS if s.name == "rope")
    chosen = rope.default_config(*odd, target="tpu:v6e")
    assert chosen.within == ("h",)
    assert "  a step for each h: " in rope.explain(*odd, target="tpu:v6e")


def test_half_a_block_of_the_best_is_planned_where_steps_run_heads():
    """18.3 us, where 256 queries take 20.5: a resized plan is estimated at 27.6 and 22.9."""
    (subject,) = (s for s in SUBJECTS if s.name == "grouped_query_attention")
    chosen = subject.kernel.default_config(*subject.cases[2], target="tpu:v6e")
    assert dict(chosen.blocks) == {"tk": 256, "tq": 128}
    assert chosen.within == ("h",)


def test_arrays_that_never_move_cost_no_step_anything():
    """6.2 us with whole arrays in one step, where steps of a table take 6.5."""
    (subject,) = (s for s in SUBJECTS if s.name == "weight_only_grouped_gemm")
    chosen = subject.kernel.default_config(*subject.cases[0], target="tpu:v6e")
    assert chosen.loop_type == "fori_loop"


def test_half_the_boxes_move_while_others_come():
    """2.85 us, where all of them in one step take 3.39."""
    (subject,) = (s for s in SUBJECTS if s.name == "jagged_to_padded")
    chosen = jagged_to_padded.default_config(*subject.cases[0], target="tpu:v6e")
    assert dict(chosen.blocks) == {"b": 4, "t": 512}
