"""Columns of rows that become those of heads: what they mean, also in blocks of groups."""

from __future__ import annotations

import random

import pytest

import tilelang as tile
from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.folded import HEADS, folded
from tests.fuzzing.program import Load, Pick, Program, parts
from tests.fuzzing.small import grouped
from tests.fuzzing.trial import try_kernel
from tests.fuzzing.weighed import weighed


def drawn(seed: int) -> Program | None:
    """A kernel over groups with such columns, if this seed gives one."""
    rng = random.Random(seed)
    made = folded((grouped if seed % 2 else weighed)(rng), rng)
    return made if made is not None and means_something(made) else None


def test_columns_are_those_of_heads():
    found = [made for seed in range(40) if (made := drawn(seed)) is not None]
    assert len(found) > 10
    for program in found:
        loads = [p for p in parts(program.body) if isinstance(p, Load)]
        assert all(Pick(HEADS) in load.index for load in loads if Pick("c") in load.index)
        assert program.axis(HEADS).kind == "full"


def test_random_kernels_have_some():
    assert any("folded" in compose(seed).changes for seed in range(300))


def in_blocks(seed: int) -> str:
    """What comes of it in blocks of groups."""
    program, rng = drawn(seed), random.Random(seed)
    if program is None or all(a.name != "g" for a in program.axes):
        return "none"
    tiles = [a.name for a in program.axes if a.kind == "tile"]
    config = tile.Config({**dict.fromkeys(tiles, 16), "g": rng.choice((2, 3, 8))})
    return try_kernel(program, config, range(2)).kind


@pytest.mark.thorough  # minutes: few of 200 programs have such blocks
def test_blocks_of_groups_of_heads():
    found = [in_blocks(seed) for seed in range(200)]
    assert {*found} <= {"ok", "refused", "none"} and found.count("ok") > 2
