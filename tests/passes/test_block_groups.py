"""block_groups: a loop over groups becomes one over blocks of them."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

import tilelang as tile
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_mean import jagged_mean
from tests.passes.becomes import becomes
from tilelang.codegen.pallas.passes.block_groups import block_groups
from tilelang.codegen.pallas.plan.estimate.offsets import spread, typical
from tilelang.ir.verify import verify
from tilelang.schedule.problem import Problem

BEFORE = """
for g in grid(40):
    begin: int32[] = offsets[g]
    end: int32[] = offsets[g + 1]
    for tf in tile(8):
        total: float32[tf] = full([tf], float32, value=0.0)
        for tm in tile(begin, end, max_extent=64) carrying total_1 = total:
            total_2: float32[tf] = total_1 + sum(x[tm, tf], axis=0)
            next total_1 = total_2
        after total_3 = total_1
        count: int32[] = maximum(end - begin, 1)
        y[g, tf] = total_3 / cast(count, float32)
"""
NAMES = {
    "FIRST": "offsets_spans[g.id]",
    "STOP": "offsets_spans[g.id + 3]",
    "SPREAD": "broadcast(total, [g, tf])",
    "MEMBER": "expand_dims(tm.index, axis=0) >= expand_dims(offsets_begin[g], axis=1) and "
    "expand_dims(tm.index, axis=0) < expand_dims(offsets_end[g], axis=1)",
}


def problem(rows: int = 64, groups: int = 40) -> Problem:
    arguments = tile.spec((rows, 8), "float32"), tile.spec((groups + 1,), "int32")
    lowered = jagged_mean.lower(*arguments)
    return Problem(lowered.ir, lowered.facts)


def test_what_a_group_has_one_of_gets_a_dimension_of_groups():
    found = problem()
    after = """
        for g in tile(40, block=16):
            begin: int32[g] = offsets_begin[g]
            end: int32[g] = offsets_end[g]
            for tf in tile(8):
                total: float32[tf] = full([tf], float32, value=0.0)
                for tm in tile(FIRST, STOP, max_extent=64) carrying total_1 = SPREAD:
                    total_2: float32[g, tf] = total_1 + group_sum(MEMBER, x[tm, tf])
                    next total_1 = total_2
                after total_3 = total_1
                count: int32[g] = maximum(end - begin, 1)
                y[g, tf] = total_3 / expand_dims(cast(count, float32), axis=1)
    """
    becomes(
        found.ir,
        lambda _: block_groups(found, "g", 16).ir,
        BEFORE,
        reduce(lambda text, name: text.replace(name, NAMES[name]), NAMES, after),
    )


def test_what_a_row_uses_of_its_group_is_looked_up():
    arguments = tile.spec((64, 8), "float32"), tile.spec((8,), "float32")
    lowered = jagged_layer_norm.lower(*arguments, arguments[1], tile.spec((41,), "int32"))
    text = str(verify(block_groups(Problem(lowered.ir, lowered.facts), "g", 16).ir))
    member = "tm_1.index, axis=1) >= expand_dims(offsets_begin[g], axis=0) and expand_dims("
    assert (
        f"centred: float32[tm_1, 8] = x[tm_1, 0:8] - expand_dims(sum(where(expand_dims({member}"
        in text
    )
    assert "next total = total_1\n    after total_2 = total\n    mean: float32[g] =" in text


def test_the_table_has_room_for_blocks_that_all_span_everything_while_it_is_small():
    small, large = (block_groups(problem(rows, 4096), "g", 16) for rows in (512, 65536))
    assert (small.fact("tm").rises, large.fact("tm").rises) == ((), ("g",))
    assert small.facts.stays_inside(small.axis("tm").end.index[0].expr, 512)


@pytest.mark.parametrize("block", [16, 40, 64])
def test_typical_spans_are_those_of_typical_offsets(block):
    found = problem()
    spans = typical(block_groups(found, "g", block))["offsets_spans"]
    blocks = -(-40 // block)
    assert len(spans) == 2 * blocks and spans[0] == 0 and spans[-1] == 64
    assert np.isin(spans, spread(64, 40)).all()
    assert (spans[1:blocks] == spans[blocks:-1]).all()
