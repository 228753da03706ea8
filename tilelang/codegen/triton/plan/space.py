"""space(problem, target) -> Candidate...: every legal config, those that are most like the default
first, or most like another that is good.

No formula says how long a GPU takes.  What is known is what a program holds: configs that fit
shared memory are given away by how many changes they are away from the default.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from tilelang.codegen.triton.target import Target
from tilelang.schedule.candidate import Candidate
from tilelang.schedule.config import BOUNDS, Config
from tilelang.schedule.problem import Problem

from . import specialized
from .search import completed, plan
from .types import Plan

LEAST, MOST = 16, 1024  # of a block: Triton multiplies 16 rows or more; the most is a guess


def space(problem: Problem, target: Target, near: Config | None = None) -> Iterator[Candidate]:
    """The default is the first, or the config that others are to be like.

    Raises PlanError where that is refused.
    """
    first = completed(problem, near or Config(), target)
    waiting, seen, planned = deque([first]), {first}, set[object]()
    while waiting:
        config = waiting.popleft()
        found = _candidate(problem, config, target, planned)
        if found is None:
            continue
        yield found
        fresh = [c for c in _neighbours(problem, config) if c not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def _candidate(
    problem: Problem, config: Config, target: Target, planned: set[object]
) -> Candidate | None:
    """None for what is refused, or is a program that was met before."""
    made = plan(problem, config, target)
    if not isinstance(made, Plan) or made.launches in planned:
        return None
    planned.add(made.launches)
    return Candidate(config, None, max((one.shared for one in made.launches), default=0))


def _neighbours(problem: Problem, config: Config) -> Iterator[Config]:
    """Configs that are one change away."""
    blocks = dict(config.blocks)
    for name, size in blocks.items():
        for other in (size // 2, size * 2):
            if LEAST <= other <= MOST:
                yield replace(config, blocks=tuple(sorted({**blocks, name: other}.items())))
    for field, now in (("warps", config.warps or 4), ("l2_group", config.l2_group or 1)):
        least, most = BOUNDS[field]
        for other in (now // 2, now * 2):
            if least <= other <= most:
                yield replace(config, **{field: other})
    for other in ((config.stages or 2) - 1, (config.stages or 2) + 1):
        if BOUNDS["stages"][0] <= other <= BOUNDS["stages"][1]:
            yield replace(config, stages=other)
    yield replace(config, persistent=not config.persistent)
    other = None if config.warp_specialize else True
    yield replace(config, warp_specialize=other, warps=specialized.WARPS, indexing=None)
    if any(fact.ragged for fact in problem.facts.axes):
        yield from (replace(config, worklist=how) for how in ("search", "table"))
