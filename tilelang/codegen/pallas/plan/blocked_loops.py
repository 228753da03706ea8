"""blocked, tiles: the kernel in which a loop over single indices has a block of them."""

from __future__ import annotations

from functools import partial

from tilelang.codegen.pallas.passes.block_groups import block_groups
from tilelang.codegen.pallas.passes.group_boxes import boxed, group_boxes
from tilelang.codegen.pallas.passes.index_tiles import index_tiles, picks_rows
from tilelang.codegen.pallas.passes.several_turns import several_turns
from tilelang.codegen.pallas.passes.sum_tiles import sum_tiles
from tilelang.codegen.pallas.passes.turns_in_tiles import turns_in_tiles
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule, attempted


def blocked(problem: Problem, asked: tuple[str, int], config: Config) -> Problem:
    """The kernel with a block of iterations of an `hl.grid` loop."""
    name, block = asked
    if problem.fact(name).kind == "ordered":
        made = attempted(lambda: tiles(problem, name, block))
        return made if isinstance(made, Problem) else several_turns(problem, name, block)
    if config.windows == "exact":
        raise Refused(
            Rule.CONFIG,
            f"windows='exact' with a block of {name}: tiles hold many groups",
            problem.ir.loc,
            "leave one of the two out",
        )
    if boxed(problem, name):
        return group_boxes(problem, name, block)
    if not any(name in fact.depends for fact in problem.facts.axes):
        return index_tiles(problem, name, block)
    return block_groups(problem, name, block)


def tiles(problem: Problem, name: str, block: int | None = None) -> Problem:
    """The kernel with tiles of rows that a loop takes, adds, or goes through, one by one."""
    if problem.fact(name).kind != "ordered":
        return index_tiles(problem, name, block)
    if picks_rows(problem, name):
        sums = attempted(partial(sum_tiles, problem, name, block))
        if isinstance(sums, Problem):
            return sums
    return turns_in_tiles(problem, name, block)
