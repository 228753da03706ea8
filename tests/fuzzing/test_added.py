"""Rows that a loop adds one by one, several of them in a step: what stands beside them counts."""

from __future__ import annotations

import random

import pytest

import tilelang as tile
from tests.fuzzing.added import added
from tests.fuzzing.compose import means_something
from tests.fuzzing.program import Axis, Number, Scalar, Update, parts
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, block_names, try_kernel
from tilelang.codegen.pallas.passes import sum_tiles

SEEDS = (1, 2, 7, 40)  # a maximum, a sum, both; a number first


def outcome(seed: int):
    """What a program does that takes eight of its rows at once."""
    program = added(random.Random(seed))
    blocks = dict.fromkeys(block_names(program), 16) | {"j": 8}
    return try_kernel(program, tile.Config(blocks), range(6))


def test_programs_mean_something_and_have_numbers_beside_rows():
    programs = [added(random.Random(seed)) for seed in range(40)]
    assert all(map(means_something, programs))
    beside = [p for p in programs if any(isinstance(u.value, Number | Scalar) for u in _updates(p))]
    assert 10 < len(beside) < 40
    ragged = [p for p in programs if any(isinstance(a, Axis) and a.offsets for a in p.axes)]
    assert 10 < len(ragged) < 40


def _updates(program):
    return [part for part in parts(program.body) if isinstance(part, Update)]


@pytest.mark.parametrize("seed", SEEDS)
def test_several_rows_at_once(seed):
    assert outcome(seed) == OK, source(added(random.Random(seed)))


def test_planted_numbers_that_count_once_for_all_rows(monkeypatch):
    """As if every row but the first had nothing beside it."""
    true = sum_tiles.binary
    monkeypatch.setattr(
        sum_tiles,
        "binary",
        lambda op, a, b, loc: b if isinstance(a, sum_tiles.ir.Const) else true(op, a, b, loc),
    )
    assert "wrong" in [outcome(seed).kind for seed in SEEDS]
