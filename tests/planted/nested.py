"""Bugs planted in the step tables of ranges inside of ranges; a program of theirs must notice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilelang.analysis import axes
from tilelang.codegen.pallas.plan.steps import worklist
from tilelang.codegen.pallas.plan.steps.moves import Order
from tilelang.codegen.pallas.plan.windows import outputs
from tilelang.schedule.problem import Problem


@dataclass(frozen=True)
class Broken:
    """One wrong function in the place of a right one, and the program and form that show it."""

    what: str
    owner: Any
    name: str
    wrong: Any
    program: str
    form: dict[str, str]
    stale: bool = False  # it shows where a window that was stored is not read again

    def __str__(self) -> str:
        return self.what


_seen = Order.seen


def _through_others(order, window, rising=False):
    """`Order.seen`, which takes rising over rising for rising."""
    more = {n: (c for b in a.rises for c in order.axes[b].rises) for n, a in order.axes.items()}
    axes = {n: replace(a, rises=(*a.rises, *more[n])) for n, a in order.axes.items()}
    return replace(_seen(order, window, rising), axes=axes)


BROKEN = (
    Broken(
        "unused rows of the list ask for tiles", worklist, "_spare",
        lambda table, columns, axes: columns > 1,
        "some_groups", {"loop_type": "worklist"},
    ),
    Broken(
        "unused rows of the list ask for every index of a grid", worklist, "_spare",
        lambda table, columns, axes: False,
        "moved_over_groups", {"loop_type": "worklist"}, stale=True,
    ),
    Broken(
        "max_extent taken for a bound of positions", Problem, "shift",
        lambda problem, axis: next((u.offset for u in problem.uses(axis)), None),
        "positions_alone", {},
    ),
    Broken(
        "ranges that rise with a tile said to rise with its group", Order, "seen",
        _through_others, "fall_with_groups", {"loop_type": "outer_pipeline"},
    ),
    Broken(
        "index ranges of a loop that cuts no array forgotten", axes, "depends",
        lambda name, known: (), "tile_in_tile", {"loop_type": "outer_pipeline"},
    ),
    Broken(
        "a step for an empty range asked of the loop inside of it alone", outputs,
        "_needs_stand_in",
        lambda order, axis, effects: effects.get(axis, False) and not order.axes[axis].nonempty,
        "tile_in_tile_of_groups", {},
    ),
    Broken(
        "tiles that count from their range said to rise over all ranges", Problem, "rises",
        lambda problem, axis: problem.fact(axis).rises, "added_alone", {"loop_type": "worklist"},
    ),
)  # fmt: skip
