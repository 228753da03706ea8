"""Bugs planted in the compiler: each makes one proof about positions or stores too generous."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilelang import analysis
from tilelang.analysis import positions, stores
from tilelang.ir import map_index
from tilelang.passes import keep_inside


@dataclass(frozen=True)
class Mutation:
    """`name` of `owner` replaced by `wrong`; `seen_by` names the check that must complain."""

    what: str
    owner: Any
    name: str
    wrong: Callable[..., Any]
    seen_by: str

    def __str__(self) -> str:
        return self.what


_inside, _limits = positions._inside, positions.limits


def _one_too_far(place, size, loops, known):
    return _inside(place, size + 1, loops, known)


def _masks_bound_ranges(ir, references):
    return _limits(ir, [replace(r, masked=False) for r in references])


def _unclamped(run, entry, size):
    return map_index(entry, run.read)


def _only_lanes(expr):
    return ()


MUTATIONS = (
    Mutation("loads are not clamped", keep_inside._Pass, "entry", _unclamped, "picked_rows"),
    Mutation(
        "stores outside are done", keep_inside._Pass, "conditions", lambda run, store: (),
        "stored_rows",
    ),
    Mutation(
        "what an `if` guards bounds the range", analysis, "limits", _masks_bound_ranges,
        "number_after",
    ),
    Mutation(
        "a loop that may not run is taken to run", positions, "nonempty", lambda axis, known: True,
        "of_every_group",
    ),
    Mutation(
        "the end is taken to lie inside", positions, "_inside", _one_too_far, "row_past_the_end"
    ),
    Mutation(
        "only the first index is looked at", positions, "_reached", lambda *_: iter((0,)),
        "one_group_too_many",
    ),
    Mutation("no tile is taken to be cut", stores, "is_cut", lambda axis: False, "column_sum"),
    Mutation("numbers of tiles are alike", stores, "of_lanes", _only_lanes, "begin_of_a_tile"),
    Mutation(
        "what tiles carry is added once", stores, "sources_of", lambda expr, defined: frozenset(),
        "carried_and_added",
    ),
    Mutation(
        "carries of inner loops hide what they add", stores, "sources",
        lambda exprs, ir, defined: iter(exprs), "through_a_name",
    ),
)  # fmt: skip
