"""Launches of few or of small steps: what those cost besides their work decides on defaults.

Times in words are those of libtpu 0.0.42.1's final schedules, executed; no TPU was used.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import tilelang as tile
from examples.dense.rope import rope
from examples.jagged.jagged_to_padded import jagged_to_padded
from tests.frameworks import NEEDS_TORCH, torch
from tests.subjects import SUBJECTS
from tilelang.codegen.pallas.plan import search, small_steps, worth
from tilelang.codegen.pallas.plan.estimate import rank, seconds, work
from tilelang.codegen.pallas.plan.types import Plan

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
    return piped(compute, copied, replace(chip, write=0), ahead, lands)


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


def case(name: str, number: int) -> tuple[tile.Kernel, tuple[Any, ...]]:
    """A kernel that nothing is kept of, and some of its arguments: 0 small, 4 production."""
    subject = next((s for s in SUBJECTS if s.name == name), None)
    if subject is None:
        assert torch is None, f"no example is called {name}"
        pytest.skip(NEEDS_TORCH)
    return tile.Kernel(subject.kernel._fn), subject.cases[number]


def within(name: str, number: int, chip: str = "v6e") -> tuple[str, ...]:
    kernel, arguments = case(name, number)
    return kernel.default_config(*arguments, target=f"tpu:{chip}").within or ()


MANY = {
    "rope": "179.4 -> 103.2 us on v6e, 320.0 -> 197.0 on v5e",
    "dense_attention_with_lse": "1321.8 -> 1168.7 us on v6e, 2466.5 -> 2045.4 on v5e",
    "flash_attention_causal": "2466.4 -> 2206.0 us on v6e, 4716.0 -> 4064.9 on v5e",
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_many_steps_that_wait_run_all_heads(name, chip):
    assert within(name, 4, chip) == ("h",)


def test_gradients_of_many_heads_run_all_of_them():
    """4045.3 -> 3346.6 us."""
    assert within("dense_attention_backward", 4) == ("h",)


def test_that_it_is_the_only_reason_is_seen(monkeypatch):
    monkeypatch.setattr(search, "beside_each_other", lambda planned: None)
    assert [within(name, 4) for name in MANY] == [()] * len(MANY)


def test_steps_with_whole_scores_have_one_head(monkeypatch):
    """Of two times four heads 13.3 us, where all heads with 512 x 512 scores take 16.1."""
    heads = (tile.spec((8, 16, 1024, 128), "bfloat16"),) * 3
    kernel, _ = case("flash_attention_causal", 0)
    assert kernel.default_config(*heads, True, target="tpu:v6e").within is None
    monkeypatch.setattr(small_steps, "_goes_on", lambda launch: True)
    kernel, _ = case("flash_attention_causal", 0)
    assert kernel.default_config(*heads, True, target="tpu:v6e").within == ("h",)


def test_many_products_that_wait_must_gain_more(monkeypatch):
    """108.9 us, where all heads with 256 x 256 scores take 122.9."""
    assert within("dense_attention_backward", 0, "v5e") == ()
    monkeypatch.setattr(worth, "CHAINED_WORTH", worth.INSIDE_WORTH)
    assert within("dense_attention_backward", 0, "v5e") == ("h",)


def heads_of_rope() -> dict[str, int]:
    kernel, arguments = case("rope", 4)
    return dict(kernel.default_config(*arguments, target="tpu:v6e").blocks)


def test_blocks_become_smaller_as_long_as_that_is_faster(monkeypatch):
    """103.2 us with 512 positions of 32 heads, 104.0 with 256, 118.1 with 2048."""
    assert heads_of_rope() == {"t": 512}
    largest = small_steps.smaller
    monkeypatch.setattr(search, "smaller", lambda planned: [*largest(planned)][:3])
    assert heads_of_rope() != {"t": 512}


def test_that_little_makes_no_blocks_smaller_is_seen(monkeypatch):
    monkeypatch.setattr(worth, "SMALLER_WORTH", 1)
    assert heads_of_rope() == {"t": 256}


def queries(name: str, size: int, chip: str) -> int:
    kernel, arguments = case(name, size)
    return dict(kernel.default_config(*arguments, target=f"tpu:{chip}").blocks)["tq"]


FEWER = (("attention_with_lse", 0), ("jagged_attention_causal", 2), ("hstu_attention", 2))


@pytest.mark.parametrize(("name", "size"), FEWER)
def test_half_of_the_rows_alone(name, size, monkeypatch):
    """10.2 us on a v5p with 128 queries, 13.5 with 256; 12.8 and 13.8; 12.9 and 13.9."""
    assert queries(name, size, "v5p") == 128
    monkeypatch.setattr(search, "fewer_rows", lambda planned: None)
    assert queries(name, size, "v5p") == 256


def test_half_of_the_rows_must_gain_more_than_a_little(monkeypatch):
    """822 us with 256 queries of 32 heads, 983 with 128, estimated at 869 and 809."""
    assert queries("grouped_query_attention", 4, "v5p") == 256
    monkeypatch.setattr(worth, "FEWER_WORTH", 1.06)
    assert queries("grouped_query_attention", 4, "v5p") == 128


@pytest.mark.parametrize(
    ("name", "chip"), [("jagged_attention", "v5e"), ("attention_with_lse", "v6e")]
)
def test_steps_of_all_heads_take_blocks_that_gain_a_little(name, chip, monkeypatch):
    """21.9 us with 128 queries, 28.2 with 256, estimated at 27.6 and 29.8; 14.8 and 16.1."""
    assert queries(name, 0, chip) == 128
    monkeypatch.setattr(rank, "WORTH_WITHIN", 1.08)
    assert queries(name, 0, chip) == 256


def pieces() -> float:
    """The estimate of steps in pieces of rows, to 2466.4 us."""
    kernel, arguments = case("flash_attention_causal", 4)
    config = tile.Config({"tq": 1024, "tk": 1024}, within=())
    plan = kernel.lower(*arguments, target="tpu:v6e", config=config).plan
    assert isinstance(plan, Plan)
    guess, _ = rank.judged(plan)
    assert guess is not None
    return guess.seconds / 2466.4e-6


def test_pieces_hide_what_each_of_them_waits_for(monkeypatch):
    assert 0.8 < pieces() < 1.25
    monkeypatch.setattr(work, "_beside", lambda turn, alone, turns: turn)
    assert pieces() > 1.5
