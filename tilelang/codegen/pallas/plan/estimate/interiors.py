"""Interiors: whether a body without masks pays, for the steps of whose lanes none leaves out any.

saved by a step inside = operations of the masks
paid by every step     = a branch, behind which nothing of the body begins before it
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tilelang.codegen.pallas.chips import CHIPS
from tilelang.codegen.pallas.plan.body.interior import with_interior
from tilelang.codegen.pallas.plan.steps.conditions import Clear
from tilelang.codegen.pallas.plan.types import Launch, Plan, Section
from tilelang.codegen.pallas.target import Target
from tilelang.schedule.problem import Problem

from .costs import COSTS
from .numbers import Numbers
from .offsets import typical
from .rank import shorter
from .seconds import generation, of_launch
from .steps import listed
from .work import Core, work

# By v6e's schedules: flash attention, 60 % of whose steps are inside, takes 0.956 of the time; a
# vocabulary of 128,256 words 0.885; jagged attention of 2 % inside 1.05, of which all is branches.
# So 0.7 of the time that operations of masks take is waited for, and 50 cycles are a branch's.
BRANCH, WAITED, WORTH = 50, 0.7, 0.02


def with_interiors(problem: Problem, plan: Plan) -> Plan:
    """The plan with such bodies where they pay; the kernel is that of the plan."""
    if generation(plan.target) is None:
        return plan
    arrays = typical(problem)
    return replace(plan, launches=tuple(_each(a, plan.target, arrays) for a in plan.launches))


def _each(launch: Launch, target: Target, arrays: Numbers) -> Launch:
    for section in launch.sections:
        made = with_interior(launch, section)
        if made is not None and _pays(launch, section, made, target, arrays):
            launch = made
    return launch


def _pays(launch: Launch, section: Section, made: Launch, target: Target, arrays: Numbers) -> bool:
    """Whether a launch that waits for its work has enough less of it, and is no longer program
    than blocks may make one."""
    chip, costs = CHIPS[target.name.removeprefix("tpu:")], COSTS[target.name.removeprefix("tpu:")]
    inside = next(s for s in made.sections if s not in launch.sections)
    clear = next(c for c in inside.conditions if isinstance(c, Clear))
    core = Core({a.name: a for a in launch.axes}, chip)
    trips = defaultdict[str, float](lambda: 1.0)
    trips |= {a.name: float(a.tiles) for a in launch.axes if a.tiles is not None}
    before, after = (work(s.body, core, trips).get("alu", 0) for s in (section, inside))
    each = WAITED * costs.alu * (before - after)
    if each <= BRANCH:
        return False
    steps = listed(launch, arrays)
    runs, free = (steps.runs(c) for c in (section.conditions, (*section.conditions, clear)))
    saved = each * free.sum() - BRANCH * runs.sum()
    old, new = (of_launch(one, target, arrays) for one in (launch, made))
    enough = saved * steps.times / chip.clock >= WORTH * old.compute
    return bool(enough and old.compute > old.traffic and shorter((made,), new.length))
