"""check_left_over(problem, axes): loops do nothing at positions that outputs have no place for.

    for t in hl.tile(offsets[g], offsets[g + 1]):
        if t.index < 30: y[t] = x[t + 8]           tiles are blocks of y, which ends at 30
        total = total + x[t + 8]                   and this is about all of them

Where memory holds the begin of a range it is cut to what the output has room for, whatever a mask
says.  Of others it is known where they end at most, and there are tiles as far as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilelang.errors import Loc
from tilelang.ir import Along, Loop, every_loop, every_store
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .types import AxisPlan


def check_left_over(problem: Problem, axes: Mapping[str, AxisPlan]) -> None:
    """Refused if positions would be left out that a loop does something else with."""
    loops = {loop.axis: loop for loop in every_loop(problem.ir.body)}
    for axis in axes.values():
        uses = problem.uses(axis.name) if axis.tiles_array and axis.tiles is None else ()
        if not uses or not all(use.loose for use in uses):
            continue
        if problem.end(axis.name) is not None:  # there are as many tiles as the range may have
            continue
        for what, loc in _besides(loops[axis.name], uses[0].offset):
            raise Refused(
                Rule.FORM,
                f"the loop over {axis.user} goes on where {uses[0].tensor} has no place, which a "
                f"mask or an if leaves out there, and {what}",
                loc,
                f"store to {uses[0].tensor} in a loop of its own, or make it as long as that loop",
            )


def _besides(loop: Loop, offset: object) -> Iterator[tuple[str, Loc | None]]:
    """What a loop does besides storing at an offset of its tiles."""
    yield from ((f"carries {carry.called}", loop.loc) for carry in loop.carries)
    for store in every_store(loop.body):
        along = [e.offset for e in store.index if isinstance(e, Along) and e.axis == loop.axis]
        if offset not in along:
            yield f"stores to {store.tensor}", store.loc
