"""Groups that memory puts in another order, and numbers of tables: drawn, printed, evaluated."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
from tests.fuzzing.apart import permuted, sliced
from tests.fuzzing.campaign import BAD, Plan, explore
from tests.fuzzing.compose import compose
from tests.fuzzing.inputs import case
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.parted import parted
from tests.fuzzing.program import (
    Axis,
    Binary,
    Load,
    Looked,
    Loop,
    Pick,
    Program,
    Store,
    Tensor,
    parts,
)
from tests.fuzzing.shrink import candidates
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, try_kernel, try_reference, try_wild
from tilelang.analysis import injective
from tilelang.codegen.pallas.plan.windows import outputs
from tilelang.frontend import lookup
from tilelang.language.build import binary
from tilelang.runtime import rules

SEEDS = range(6)
ROWS, GROUPS = 40, 4


def _program(store: Store, *more: Axis) -> Program:
    """y[...] = what is said of the rows of groups."""
    axes = (Axis("g", "grid", GROUPS), Axis("t", "tile", ROWS, "offsets", "g"), *more)
    tensors = (
        Tensor("offsets", (GROUPS + 1,), "int32", "offsets", limit=ROWS),
        Tensor("x", (ROWS,), "float32", "input"),
        Tensor("w", (GROUPS,), "float32", "input"),
        Tensor("y", (ROWS,), "float32", "output", 0.0),
    )
    inner = Loop(more[0].name, (store,)) if more else store
    return Program(axes, tensors, (Loop("g", (Loop("t", (inner,)),)),))


ROW = Store("y", (Pick("t"),), Binary("*", Load("x", (Pick("t"),)), Load("w", (Pick("g"),))))
PLAIN = _program(ROW)


def _made(change, program: Program, seed: int = 0) -> Program:
    found = change(program, random.Random(seed))
    assert found is not None
    return found


SLICED = _made(sliced, PLAIN)
PERMUTED = replace(
    _made(permuted, PLAIN),
    tensors=tuple(
        replace(t, shape=(GROUPS + 1,)) if t.name == "order_g" else t
        for t in _made(permuted, PLAIN).tensors
    ),
)


def test_ranges_with_a_length():
    begin = "begins_offsets[g]"
    head = f"for t in hl.tile({begin}, {begin} + counts_offsets[g], max_extent=40):"
    assert head in source(SLICED)
    arguments = {
        "begins_offsets": np.array([30, 2, 3, 0]),
        "counts_offsets": np.array([10, 3, 1, 0]),
        "x": np.arange(40.0),
        "w": np.array([1.0, 10.0, 100.0, 1000.0]),
    }
    found = evaluate(SLICED, arguments).results["y"]
    assert found[2:6].tolist() == [20.0, 300.0, 40.0, 0.0] and found[30:].sum() == 345.0
    local = tuple(replace(a, local=a.name == "t") for a in SLICED.axes)
    assert "for t in hl.tile(counts_offsets[g], max" in source(replace(SLICED, axes=local))


def test_an_order_of_groups():
    assert "    for g_turn in hl.grid(5):\n        g = order_g[g_turn]\n" in source(PERMUTED)
    arguments = {
        "order_g": np.array([3, 3, 0, 2, 0]),
        "offsets": np.array([0, 1, 2, 3, 40]),
        "x": np.ones(40),
        "w": np.arange(4.0) + 1,
    }
    found = evaluate(PERMUTED, arguments).results["y"]
    np.testing.assert_array_equal(found, [1, 0, 3, *[4] * 37])


def test_what_they_are_called_with():
    """Groups that lie apart, in any order, and ranges with rows in common; orders of all, too."""
    found = [case(SLICED, seed).arguments for seed in range(20)]
    pairs = [(a["begins_offsets"], a["begins_offsets"] + a["counts_offsets"]) for a in found]
    shared = [_covered(b, e).max() > 1 for b, e in pairs]
    assert any(shared) and not all(shared) and all((e <= ROWS).all() for _, e in pairs)
    orders = [case(_made(permuted, PLAIN), s).arguments["order_g"].tolist() for s in range(20)]
    assert any(len({*o}) == len(o) for o in orders) and any(len({*o}) < len(o) for o in orders)


def _covered(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    rows = np.arange(ROWS)
    return ((rows >= begins[:, None]) & (rows < ends[:, None])).sum(0)


DISTANCE = Looked("bias", (Pick("g"),), "t", "u", 1)
SUMMED = replace(
    _program(Store("y", (Pick("t"), Pick("u")), DISTANCE), Axis("u", "tile", ROWS, "offsets", "g")),
    tensors=(
        *PLAIN.tensors[:1],
        Tensor("bias", (GROUPS, 3), "float32", "input"),
        Tensor("y", (ROWS, ROWS), "float32", "output", 0.0),
    ),
)


def _looked(value: Looked) -> Program:
    return replace(
        SUMMED, body=_program(Store("y", (Pick("t"), Pick("u")), value), SUMMED.axes[2]).body
    )


@pytest.mark.parametrize(
    ("value", "text", "of"),
    [
        (DISTANCE, "bias[g, t.index[:, None] - u.index[None, :] + 1]", lambda t, u: t - u + 1),
        pytest.param(
            replace(DISTANCE, rows="u", columns="t"),
            "bias[g, u.index[None, :] - t.index[:, None] + 1]",
            lambda t, u: u - t + 1,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            replace(DISTANCE, how="apart", shift=0),
            "bias[g, hl.abs(t.index[:, None] - u.index[None, :])]",
            lambda t, u: abs(t - u),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_number_of_a_table(value, text, of):
    program = _looked(value)
    assert f"y[t, u] = {text}" in source(program)
    table = np.arange(12.0).reshape(4, 3)
    given = {"offsets": np.array([0, 0, 5, 5, 40]), "bias": table}
    t, u = np.indices((40, 40))
    wanted = np.zeros((40, 40))
    wanted[:5, :5] = table[1][np.clip(of(t, u), 0, 2)][:5, :5]
    wanted[5:, 5:] = table[3][np.clip(of(t, u), 0, 2)][5:, 5:]
    found = evaluate(program, given)
    np.testing.assert_array_equal(found.results["y"], wanted)
    assert found.read["bias"].any(1).tolist() == [False, True, False, True]
    assert try_kernel(program, tile.Config({"t": 16, "u": 32}), SEEDS) == OK


def test_a_number_that_positions_share():
    axes = (Axis("t", "tile", 10),)
    tensors = (Tensor("bias", (3,), "int32", "input"), Tensor("y", (10,), "float32", "output"))
    value = Looked("bias", (), "t", shift=4, how="share")
    program = Program(axes, tensors, (Loop("t", (Store("y", (Pick("t"),), value),)),))
    assert "y[t] = bias[t.index // 4].to(hl.float32)" in source(program)
    found = evaluate(program, {"bias": np.array([5, 6, 7])}).results["y"]
    np.testing.assert_array_equal(found, [5] * 4 + [6] * 4 + [7] * 2)
    assert try_kernel(program, tile.Config({"t": 8}), SEEDS) == OK


def test_they_are_right():
    for program in (SLICED, PERMUTED):
        assert try_kernel(program, None, SEEDS) == OK
        assert try_reference(program, [3], [2]) == OK
        assert try_wild(program, None, SEEDS[:3]) == OK


@pytest.mark.parametrize("program", [SLICED, PERMUTED])
def test_planted_ranges_that_nobody_proved_apart(program, monkeypatch):
    """Those of a later group begin behind those of all before, whatever memory says."""
    monkeypatch.setattr(injective, "prove", lambda low, high, facts: frozenset())
    assert try_kernel(program, tile.Config({"t": 8}), SEEDS).kind == "wrong"


def test_planted_a_table_that_is_looked_up_one_too_far(monkeypatch):
    monkeypatch.setattr(
        lookup, "binary", lambda op, a, b, loc: binary("gt" if op == "ge" else op, a, b, loc)
    )
    assert try_kernel(SUMMED, tile.Config({"t": 16, "u": 32}), SEEDS).kind == "wrong"


# ------------------------------------------------------------ drawn


def test_they_are_drawn():
    made = [compose(seed) for seed in range(6780003, 6780060)]
    for name in ("sliced", "permuted", "biased", "parted"):
        assert sum(name in m.changes for m in made) >= 2, name
    values = [p for m in made for p in parts(m.program.body) if isinstance(p, Looked)]
    assert {v.how for v in values} >= {"apart", "share"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6780008, 6780016, 6780028])
def test_a_share_of_them_is_right(seed):
    trials = explore(seed, Plan(configs=1, trials=0))
    assert [str(t) for t in trials if t.outcome.kind in BAD] == []
    assert sum(t.cases for t in trials) > 0


@pytest.mark.slow
@pytest.mark.parametrize("program", [SLICED, PERMUTED])
def test_smaller_programs_are_without_them(program):
    found = [p for p in candidates(program) if not any(a.counts or a.order for a in p.axes)]
    assert any(try_kernel(p, None, [0]) == OK for p in found)


# ------------------------------------------------------------ tiles of tiles

PARTED = _made(parted, PLAIN, 2)


def test_tiles_of_a_tile():
    """And a number of every group, also of one without rows."""
    text = source(PARTED)
    head = "        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=40):\n"
    assert f"{head}            for t_part in hl.tile(t.begin, t.end" in text
    assert "                y[t_part] = (x[t_part] * w[g])\n" in text
    assert "\n        number[g] = (g * 0.125)\n" in text
    given = {"offsets": np.array([0, 0, 5, 5, 40]), "x": np.ones(40), "w": np.arange(4.0)}
    for block in (0, 3):
        found = evaluate(PARTED, given, block).results
        np.testing.assert_array_equal(found["y"], [*[1] * 5, *[3] * 35])
        np.testing.assert_array_equal(found["number"], np.arange(4) / 8)
    assert try_kernel(PARTED, None, SEEDS) == OK
    assert try_wild(PARTED, None, SEEDS[:3]) == OK


def test_planted_a_group_without_a_step(monkeypatch):
    monkeypatch.setattr(outputs, "_needs_stand_in", lambda order, axis, effects: False)
    assert try_kernel(PARTED, tile.Config({"t": 16, "t_part": 8}), SEEDS).kind == "wrong"


def test_planted_tiles_that_no_rule_knows(monkeypatch):
    monkeypatch.setattr(rules, "whole", lambda name, ir: name)
    assert "accepted" in {try_wild(PARTED, None, [seed]).kind for seed in SEEDS}
