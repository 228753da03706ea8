"""Within: parallel loops of which every step runs all iterations.

    for h: (for g: (for t: A, then B))   ->   for g: (for t: (for h: A), then (for h: B))

Blocks then hold all positions that the loop indexes.  Where these are the rows of [tokens, heads,
width], a block is turned to [heads, tokens, width] in vector memory, so that each head is a matrix:
the array itself is never transposed.  What a loop carries becomes one value for every iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.physical import Select
from tilelang.errors import Loc
from tilelang.ir import At, Axis, GridIndex, integers, walk
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .types import Entry, Window

MOST = 32  # iterations: the compiled step has the code of each of them


def all_at_once(
    problem: Problem, config: Config, names: Set[str], outward: tuple[str, ...], streams: Set[str]
) -> tuple[str, ...]:
    """The axes of a nest, among `names`, that the config wants within the step.

    Raises Refused for a loop that cannot run there, and for a name that no loop has.
    """
    ir, wanted = problem.ir, config.within or ()
    grids = dict.fromkeys(a.user for a in ir.axes if a.kind == "grid")
    for name in wanted:
        if name not in grids:
            raise Refused(
                Rule.CONFIG,
                f"config wants all iterations of {name!r} within the step, but no hl.grid loop of "
                f"{ir.name} has that index",
                ir.loc,
                f"the indices of such loops are: {', '.join(grids) or 'none'}",
            )
    asked = [a for a in ir.axes if a.kind == "grid" and a.user in wanted and a.name in names]
    for axis in asked:
        _check(problem, axis, outward)
    if asked and streams:
        raise Refused(
            Rule.FORM,
            f"iterations of {asked[0].user} cannot run within a step whose inner loops are "
            "pipelines of their own",
            asked[0].loc,
            "use loop_type='outer_pipeline', or leave within out",
        )
    return tuple(a.name for a in asked)


def _check(problem: Problem, axis: Axis, outward: tuple[str, ...]) -> None:
    """Refused for a loop whose iterations cannot all run in one step."""
    after = [
        other
        for other in problem.ir.axes
        for place in (other.begin, other.end, *(u.offset for u in problem.uses(other.name)))
        if place is not None and axis.name in integers.axes(place)
    ]
    if after or axis.name not in outward:
        why = f"the range of {after[0].user} depends on it" if after else ""
        raise Refused(
            Rule.FORM,
            f"not all iterations of {axis.user} can run within one step: "
            f"{why or problem.fact(axis.name).why}",
            axis.loc,
            "only a parallel loop with constant bounds can, if no other range depends on it",
        )
    begin, end = axis.static or (0, 0)
    if end - begin > MOST:
        raise Refused(
            Rule.CONFIG,
            f"{end - begin} iterations of {axis.user} within one step are too many",
            axis.loc,
            f"the step contains the code of each of them: {MOST} are the most",
        )


def picked_last(problem: Problem, tensors: Collection[str]) -> tuple[str, ...]:
    """The loops whose index picks a position in one of the last two dimensions of a tensor."""
    entries = (e for r in problem.references if r.tensor in tensors for e in r.index[-2:])
    parts = (part for e in entries if isinstance(e, At) for part in walk(e.expr))
    picked = (problem.axis(part.axis).user for part in parts if isinstance(part, GridIndex))
    return tuple(dict.fromkeys(picked))


def takes_all(axes: Mapping[str, AxisPlan], entry: Entry) -> bool:
    """Whether a step takes all positions that an index goes through."""
    found = integers.axes(entry.expr) if isinstance(entry, At) else ()
    return any(axes[a].place == "within" for a in found if a in axes)


def turned_dim(axes: Mapping[str, AxisPlan], entries: tuple[Entry, ...]) -> int | None:
    """The dimension that a block must be turned by: heads between tokens and width, all of them."""
    shown = [d for d, e in enumerate(entries) if not isinstance(e, At) or takes_all(axes, e)]
    if len(shown) != 3 or shown[1] != len(entries) - 2:
        return None
    tokens, heads, width = (isinstance(entries[d], At) for d in shown)
    return shown[1] if heads and not tokens and not width else None


def turned(window: Window, chosen: tuple[Select, ...], loc: Loc | None) -> tuple[Select, ...]:
    """What is selected of a block, for its turned copy.

    Raises Refused if the block is an output: its copy holds nothing before it is written.
    """
    if window.output:
        raise Refused(
            Rule.FORM,
            f"{window.array} is stored and also read, for all iterations of a loop at once",
            loc,
            "leave within out of the config",
        )
    return tuple(chosen[d] for d in window.turn)
