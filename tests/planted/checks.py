"""Bugs planted in the checks of a call; a test of tests/runtime/test_checks.py must notice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilelang.ir import TileScalar
from tilelang.ir.integers import INT
from tilelang.runtime import checks, points, pointwise, rules
from tilelang.runtime.certain import certain
from tilelang.runtime.points import Domain, domain


@dataclass(frozen=True)
class Broken:
    """One wrong function in the place of a right one, and the test that shows it."""

    what: str
    owner: Any
    name: str
    wrong: Any
    test: str

    def __str__(self) -> str:
        return self.what


def _somewhere(*given: Any) -> Domain | None:
    """Places that are one at the least."""
    found = domain(*given)
    if found is None:
        return None
    return replace(found, empty=False, listed=lambda arrays: (found.listed(arrays)[0], 1))


BROKEN = (
    Broken(
        "what an if may skip is not looked at", checks, "certain",
        lambda ir: (r for r in certain(ir) if not r.where),
        "test_an_index_that_an_if_does_not_skip_is_one",
    ),
    Broken(
        "what an if may skip is looked at in any case", checks, "certain",
        lambda ir: (replace(r, where=frozenset()) for r in certain(ir)),
        "test_an_index_that_an_if_skips_is_not_an_error",
    ),
    Broken(
        "a mask is taken for its opposite", checks, "certain",
        lambda ir: (
            replace(r, where=frozenset((c, not holds) for c, holds in r.where)) for r in certain(ir)
        ),
        "test_an_index_that_an_if_skips_is_not_an_error",
    ),
    Broken(
        "what is carried into a loop is not looked at", checks, "certain",
        lambda ir: (r for r in certain(ir) if r.around), "test_what_a_loop_carries_is_read",
    ),
    Broken(
        "what whole rows measure is known to nobody", pointwise, "_reduced",
        lambda expr, ahead: None, "test_ranges_that_whole_rows_measure",
    ),
    Broken(
        "what whole rows measure is an offset like any", rules, "REDUCTIONS", frozenset(),
        "test_a_range_that_whole_rows_measure_may_be_empty_in_any_way",
    ),
    Broken(
        "a row is measured by its first number", pointwise, "_lanes",
        lambda start, stop, step=1: pointwise._constant(np.arange(start, start + 1)[:, None]),
        "test_ranges_that_whole_rows_measure",
    ),
    Broken(
        "no condition asks where a tile is", rules, "tested", lambda expr: frozenset(),
        "test_a_condition_on_where_a_tile_is",
    ),
    Broken(
        "no range asks where a tile is", rules, "around_tiles", lambda axis, ir: frozenset(),
        "test_an_index_in_a_loop_that_ends_where_a_tile_does",
    ),
    Broken(
        "tiles of a tile are rows of no range", rules, "whole", lambda name, ir: name,
        "test_tiles_of_a_tile_are_rows_of_its_range",
    ),
    Broken(
        "conditions keep every place", points, "_kept",
        lambda holds, wanted: lambda arrays, given, size: (given, size),
        "test_a_condition_on_where_a_tile_is",
    ),
    Broken(
        "no loop up to a tile picks rows", rules, "around_tiles", lambda axis, ir: frozenset(),
        "test_rows_that_a_loop_up_to_a_tile_picks",
    ),
    Broken(
        "the first tile and the last one stand for all", rules, "slides", lambda name, loops: False,
        "test_rows_that_a_loop_along_with_a_tile_picks",
    ),
    Broken(
        "a range that overlaps another is left out", points, "_behind",
        lambda low, high, others: high, "test_rows_that_a_loop_along_with_a_tile_picks",
    ),
    Broken(
        "tiles that the author cut are of one position", points, "_positions",
        lambda axis: 1, "test_rows_that_tiles_before_one_pick",
    ),
    Broken(
        "tiles that the author cut are not known", points, "_told",
        lambda axis, ir: axis.fixed is None,
        "test_rows_that_tiles_before_one_pick",
    ),
    Broken(
        "tiles that are never of one position are not known", points, "_grows",
        lambda expr, edge: False, "test_rows_that_a_loop_along_with_long_tiles_picks",
    ),
    Broken(
        "a computed range is asked of no tile that cuts it", rules, "around_tiles",
        lambda axis, ir: frozenset(), "test_a_computed_range_that_a_tile_cuts",
    ),
    Broken(
        "what is moved and cut by a tile is not looked at", checks, "add",
        lambda a, b: TileScalar("nothing", "begin", INT), "test_a_moved_range_that_a_tile_cuts",
    ),
    Broken(
        "a rule is asked where no loop runs", checks, "domain", _somewhere,
        "test_a_range_that_nothing_reaches",
    ),
    Broken(
        "only ranges that are read as they are show whether offsets rise", rules, "_follows",
        lambda low, high: False, "test_offsets_that_proofs_take_to_be_sorted_are",
    ),
)  # fmt: skip
