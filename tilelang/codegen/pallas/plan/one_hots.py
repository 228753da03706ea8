"""one_hots(problem, target): the problem whose computed places are picked from whole dimensions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilelang.analysis import again
from tilelang.codegen.pallas.passes.one_hot_loads import one_hot_loads
from tilelang.codegen.pallas.passes.one_hot_stores import one_hot_stores
from tilelang.codegen.pallas.target import Target
from tilelang.schedule.problem import Problem


@lru_cache(8)  # of one kernel many forms are planned, and many configs
def one_hots(problem: Problem, target: Target, gathers: str | None = None) -> Problem:
    """Stores first: an update loads what it changes where it stores it.

    Of several computed dimensions each round takes one.
    """
    before, made = None, problem.ir
    while made is not before:
        before, made = made, one_hot_loads(one_hot_stores(made, target), target, gathers)
    if made is problem.ir:
        return problem
    return replace(problem, ir=made, facts=again(made, problem.facts))
