"""Steps inside have a body without masks: where, what is left of it, and that numbers stay."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from examples.dense.cross_entropy import cross_entropy
from examples.dense.flash_attention import flash_attention
from examples.jagged.jagged_attention import jagged_attention
from tilelang import ir
from tilelang.codegen.pallas.plan import cut
from tilelang.codegen.pallas.plan.body.interior import BOOL, tightest, with_interior
from tilelang.codegen.pallas.plan.types import Clear, Launch, Plan
from tilelang.ir import integers

T, D = 128, 8
KINDS = ("below", "above", "moved", "apart", "both")
CUTS = np.array([0, 31, 31, 111, 128], np.int32)


@tile.kernel
def near(x, keys, offsets, kind: hl.constexpr):
    """Keys that a query sees, by their distance."""
    y = hl.zeros([T, D], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc = hl.zeros([tm, D], dtype=hl.float32)
            best = hl.zeros([tm], dtype=hl.float32)
            for tk in hl.tile(offsets[g], offsets[g + 1]):
                scores = hl.dot(x[tm, :], keys[tk, :].T)
                best = hl.maximum(best, scores.amax(-1))
                row, column = tm.index[:, None], tk.index[None, :]
                if kind == "below":
                    scores = hl.where(row >= column, scores, 0.0)
                if kind == "above":
                    scores = hl.where(row < column, scores, 0.0)
                if kind == "moved":
                    scores = hl.where(column + 40 > row, scores, 0.0)
                if kind == "apart":
                    scores = hl.where(row - column <= 40, scores, 0.0)
                if kind == "both":
                    scores = hl.where((row >= column) & (row - column < 40), scores, 0.0)
                acc = acc + hl.dot(scores, keys[tk, :])
            y[tm, :] = acc + best[:, None]
    return y


rng = np.random.default_rng(0)
X, KEYS = (rng.integers(-2, 3, (T, D)).astype(np.float32) for _ in range(2))
APART = np.arange(T)[:, None] - np.arange(T)
SEEN = {
    "below": APART >= 0,
    "above": APART < 0,
    "moved": APART < 40,
    "apart": APART <= 40,
    "both": (APART >= 0) & (APART < 40),
}


def by_hand(kind: str, cuts: np.ndarray) -> np.ndarray:
    group = np.searchsorted(cuts, np.arange(T), side="right")
    same = group[:, None] == group
    scores = X @ KEYS.T
    y = np.where(same & SEEN[kind], scores, 0) @ KEYS
    return y + np.where(same, scores, 0).max(1)[:, None]


def everywhere(problem: object, plan: Plan) -> Plan:
    """Such bodies wherever they are legal, whatever they cost."""
    return replace(plan, launches=tuple(map(of_all_sections, plan.launches)))


def of_all_sections(launch: Launch) -> Launch:
    for section in launch.sections:
        launch = with_interior(launch, section) or launch
    return launch


def clear(plan: Plan) -> list[Clear]:
    conditions = (c for a in plan.launches for s in a.sections for c in s.conditions)
    return [c for c in conditions if isinstance(c, Clear)]


def compare(kind: str, interpret: object = None, **form: object) -> None:
    chosen = tile.Config({"tm": 16, "tk": 16}, **form)
    with mock.patch.object(cut, "with_interiors", everywhere):
        kernel = tile.kernel(near.__wrapped__, interpret=interpret)
        specs = (tile.spec((T, D), "float32"),) * 2
        assert clear(kernel.lower(*specs, tile.spec((5,), "int32"), kind, config=chosen).plan)
        for cuts in (CUTS, CUTS[[0, 0, 0, 0, 4]]):
            found = kernel(X, KEYS, cuts, kind, config=chosen)
            np.testing.assert_array_equal(np.asarray(found), by_hand(kind, cuts))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers(kind: str) -> None:
    compare(kind)


@pytest.mark.parametrize("kind", ["moved", "both"])
def test_the_same_numbers_in_pieces(kind: str) -> None:
    compare(kind, pieces=8)


@pytest.mark.parametrize("form", [{"loop_type": "worklist"}, {"steps": "rectangle"}], ids=str)
def test_the_same_numbers_in_other_forms(form: dict[str, str]) -> None:
    compare("both", **form)


@pytest.mark.thorough
@pytest.mark.parametrize("form", [{}, {"loop_type": "worklist"}, {"pieces": 8}], ids=str)
def test_in_the_strict_interpreter(form: dict[str, Any]) -> None:
    """Memory is NaN until it is written, and copies that race are found."""
    races = pytest.importorskip("jax._src.pallas.mosaic.interpret.interpret_pallas_call")
    try:
        compare("both", pltpu.InterpretParams(detect_races=True), **form)
        assert not races.races.races_found
    finally:
        pltpu.reset_tpu_interpret_mode_state()


def bodies(kernel: tile.Kernel, *arguments: object) -> tuple[str, str, str]:
    """The condition of steps inside, their body, and that of the others."""
    source = str(kernel.source(*arguments, target="tpu:v6e"))
    _, *sections = source.split("@pl.when(")
    inside, edge = (s for s in sections if re.match("[^()]* [<>]=? ", s))
    return inside.partition(")\n")[0], inside, edge


def test_the_diagonal_of_attention() -> None:
    large = tile.spec((1, 2, 4096, 128), "bfloat16")
    condition, inside, edge = bodies(flash_attention, large, large, large, True)
    assert condition == "tk * 1024 + 1023 <= tq * 1024"
    assert edge.startswith("tk * 1024 + 1023 > tq * 1024)")
    assert "jnp.where(" in edge and "jnp.where(" not in inside and "_index" not in inside
    assert "    scores = scores\n" not in inside
    said = flash_attention.explain(large, large, large, True, target="tpu:v6e")
    assert "  no mask in steps where tk * 1024 + 1023 <= tq * 1024" in str(said)


@tile.kernel
def stepped(x, offsets):
    """Several masks of each row, by where its group begins."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t, tf in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[1]]):
            v = x[t, tf].to(hl.float32)
            for i in hl.static_range(6):
                v = hl.where((t.index - i >= offsets[g])[:, None], hl.exp(v), v * 2)
            y[t, tf] = v
    return y


def test_of_limits_that_differ_by_constants_the_tightest_is_asked() -> None:
    arguments = tile.spec((16384, 2048), "bfloat16"), tile.spec((33,), "int32")
    inside, edge = clear(stepped.lower(*arguments, target="tpu:v6e").plan)
    assert (inside.clear, edge.clear) == (True, False)
    limits = "offsets[g] <= t * 64 - 5 & offsets[g] <= t * 64 & t * 64 + 63 < offsets[g + 1]"
    assert str(inside).startswith(f"no mask in steps where {limits}: ")
    said = stepped.explain(*arguments, target="tpu:v6e")
    assert f"  {inside}" in str(said)


@pytest.mark.parametrize(
    ("low", "high", "says_most"),
    [((0, 3), (0, 0), 1), ((2, 1), (0, 0), 0), ((0, 0), (5, 4), 1), ((1, 4), (1, 4), 0)],
)
def test_the_tightest_of_two(low, high, says_most) -> None:
    """a + low <= b + high: both hold where that one does, and not the other way round."""
    a, b = ir.GridIndex("a"), ir.GridIndex("b")
    limits = [
        ir.Apply(
            "le", (integers.add(a, integers.const(one)), integers.add(b, integers.const(two))), BOOL
        )
        for one, two in zip(low, high, strict=True)
    ]
    assert tightest(limits) == (limits[says_most],)


def test_what_memory_holds_is_compared_in_both_bodies() -> None:
    logits, labels = tile.spec((8192, 128_256), "bfloat16"), tile.spec((8192,), "int32")
    condition, inside, edge = bodies(cross_entropy, logits, labels)
    assert condition.endswith("< 128256")
    assert "jnp.where(here, row, 0.0)" in inside and "tv_mask" not in inside
    assert "jnp.where(here & tv_mask, row, 0.0)" in edge


def test_short_ranges_are_not_worth_a_branch() -> None:
    rows = tile.spec((2, 8192, 128), "bfloat16")
    offsets = tile.spec((17,), "int32")
    kernel = tile.kernel(jagged_attention.__wrapped__)  # planned anew, also where bugs are planted
    lowered = kernel.lower(rows, rows, rows, offsets, True, target="tpu:v6e")
    assert clear(lowered.plan) == []
