"""group_boxes: a loop over groups that copies rows becomes one over blocks of them."""

from __future__ import annotations

import tilelang as tile
from examples.jagged.jagged_to_padded import jagged_to_padded
from examples.jagged.padded_to_jagged import padded_to_jagged
from tests.passes.becomes import becomes
from tilelang.codegen.pallas.passes.group_boxes import group_boxes
from tilelang.schedule.problem import Problem

OFFSETS = tile.spec((41,), "int32")


def problem(kernel: tile.Kernel, *arguments: object) -> Problem:
    lowered = kernel.lower(*arguments)
    return Problem(lowered.ir, lowered.facts)


def test_rows_that_go_to_boxes():
    found = problem(jagged_to_padded, tile.spec((64, 8), "float32"), OFFSETS, 20)
    before = """
        for b in grid(40):
            begin: int32[] = offsets[b]
            end: int32[] = offsets[b + 1]
            for t in tile(0, minimum(end - begin, 20), max_extent=20):
                out[b, t, 0:8] = x[t + begin, 0:8]
    """
    after = """
        for b in tile(40, block=16):
            for t in tile(offsets_spans[b.id], offsets_spans[b.id + 3], max_extent=64):
                out[b, 0:20, 0:8] = moved_rows(x[t, 0:8], offsets_begin[b], END)
    """.replace("END", "minimum(offsets_end[b], offsets_begin[b] + 20)")
    becomes(found.ir, lambda _: group_boxes(found, "b", 16).ir, before, after)


def test_rows_that_come_from_boxes():
    found = problem(padded_to_jagged, tile.spec((40, 20, 8), "float32"), OFFSETS, 64)
    before = """
        for b in grid(40):
            begin: int32[] = offsets[b]
            for t in tile(begin, minimum(offsets[b + 1], begin + 20), max_extent=20):
                y[t, 0:8] = d[b, t + -begin, 0:8]
    """
    after = """
        for b in tile(40, block=16):
            for t in tile(offsets_spans[b.id], offsets_spans[b.id + 3], max_extent=64):
                y[t, 0:8] = moved_rows(d[b, 0:20, 0:8], offsets_begin[b], END)
    """.replace("END", "minimum(offsets_end[b], offsets_begin[b] + 20)")
    becomes(found.ir, lambda _: group_boxes(found, "b", 16).ir, before, after)


def test_ranges_stay_disjoint_where_rows_come_back_and_need_not_be_where_they_go_to_boxes():
    there = problem(jagged_to_padded, tile.spec((64, 8), "float32"), OFFSETS, 20)
    here = problem(padded_to_jagged, tile.spec((40, 20, 8), "float32"), OFFSETS, 64)
    rises = [group_boxes(found, "b", 16).fact("t").rises for found in (there, here)]
    assert rises == [(), ("b",)]
