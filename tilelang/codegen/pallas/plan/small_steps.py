"""Small steps: loops whose iterations one step should run together, because it waits otherwise.

    for h in hl.grid(32): ... for p in hl.grid(0, pages): scores [16, 128] -> softmax -> product

A product of few rows, and what needs its result, take as long as the units take to answer.  One
iteration has nothing else to do meanwhile; all of them together do, as `body/by_phases` writes
them.
"""

from __future__ import annotations

import math

from .body.by_phases import waits
from .body.gathers import extents
from .physical import flat, parts_of
from .types import Launch, Plan
from .windows.turned import MOST

LARGEST = 128 * 256  # numbers in the largest value of a small step: a guess


def loops_of_small_steps(planned: Plan) -> tuple[str, ...]:
    """What the author calls the innermost parallel loop around steps that are small, and wait.

    Only of pipelines over a table: dimensions of a plain grid are what two cores share.
    """
    found = (_innermost(launch) for launch in planned.launches if _waits(launch))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _waits(launch: Launch) -> bool:
    """Whether every step is small, and some of its operations wait for a product."""
    if launch.table is None or launch.form != "pipeline":
        return False
    axes = {a.name: a for a in launch.axes}
    bodies = [tuple(flat(section.body)) for section in launch.sections]
    largest = max(
        (math.prod(extents(e.type, axes)) for body in bodies for s in body for e in parts_of(s)),
        default=0,
    )
    return largest <= LARGEST and any(map(waits, bodies))


def _innermost(launch: Launch) -> str | None:
    """The last grid dimension before the table, if it is a loop of few indices."""
    dims = [launch.axis(d.axis) for d in launch.dims if d.axis is not None]
    last = dims[-1] if dims else None
    if last is None or last.block is not None or last.kind != "parallel":
        return None
    return last.user if 1 < (last.tiles or 0) <= MOST else None
