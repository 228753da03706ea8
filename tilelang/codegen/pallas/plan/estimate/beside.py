"""with_beside(problem, plan) -> Plan: whether steps have several iterations, how many, which tiles.

loops      cycles of a step with loops, as often as these turn
straight   those of its statements once, of which much is done while others wait
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilelang.codegen.pallas.plan.body.beside import HELPERS, alone, beside, sizes
from tilelang.codegen.pallas.plan.types import Launch, Plan
from tilelang.codegen.pallas.target import Target
from tilelang.ir.names import names_in
from tilelang.schedule.problem import Problem

from .numbers import Numbers
from .offsets import typical
from .seconds import generation, of_launch, together
from .steps import listed

COUNTS = (16, 8, 4, 2)  # iterations in a step: by v6e's schedules softmax takes 158, 173 and 201 us
REGISTERS = 256  # of the rows of all of them, where each is text that is compiled
WORTH = 1.1  # how much less it must take: how long ranges are is known as a mean only


def with_beside(problem: Problem, plan: Plan) -> Plan:
    """The plan with such steps where they pay."""
    taken = names_in(plan.ir) | {plan.ir.name}
    if generation(plan.target) is None or HELPERS & taken:
        return plan
    arrays = typical(problem)
    return replace(plan, launches=tuple(_each(a, plan.target, arrays) for a in plan.launches))


def _each(launch: Launch, target: Target, arrays: Numbers) -> Launch:
    near = alone(launch, target)
    if near is None:
        return launch
    counts = ((_most(near, size), size) for size in sizes(near))
    steps = listed(near, arrays)
    made = (beside(near, count, size) for count, size in counts if count)
    tried = [one for one in made if one.beside and together(one.beside, steps).any()]
    if not tried:
        return launch
    before = min(of_launch(one, target, arrays).seconds for one in (launch, near))
    found = [(of_launch(one, target, arrays).seconds, n) for n, one in enumerate(tried)]
    seconds, best = min(found, default=(before, 0))
    return tried[best] if WORTH * seconds < before else launch


def _most(launch: Launch, size: int) -> int:
    """The most iterations whose rows are few enough registers; 0: not even two."""
    widest = max(math.prod(w.shown[1:]) for w in launch.windows if w.shown)
    most = min(REGISTERS * 1024 // (size * widest), launch.dims[-1].extent or 1)
    return next((n for n in COUNTS if n <= most), 0)
