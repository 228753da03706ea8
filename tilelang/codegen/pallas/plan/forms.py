"""formed(problem, config, target) -> Form | Refusal: a way for the loops to run, and its plan.

    steps of one pipeline, where loops in a row follow each other
    loops inside of the step, over arrays that are whole there
    loops inside of the step that stream what stays in HBM
    plain loops

Each with blocks of the rule of thumb that vector memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tilelang.codegen.pallas.target import Target
from tilelang.schedule.config import Config
from tilelang.schedule.legal import check_kernel
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal, Refused, Rule, attempted
from tilelang.schedule.rows import rows_of_tiles

from . import defaults
from .blocks import multiple, sizes
from .estimate import rank
from .launch import plan_launch
from .memory import with_margin, without_blocks
from .normalised import normalised
from .physical import Inner
from .placement import place
from .small_steps import loops_of_small_steps
from .types import MODULE_NAMES, Launch, Plan
from .windows.turned import picked_last
from .windows.types import HostArray


@dataclass(frozen=True)
class Form:
    """A way for the loops to run, and the plan of it with blocks of the rule of thumb.

    problem  the kernel after its passes
    fold     whether its loops in a row become steps where they can
    """

    problem: Problem
    plan: Plan
    fold: bool

    def resized(self, blocks: Mapping[str, int]) -> Plan | Refusal:
        """The same form, planned with these blocks."""
        if tuple(sorted(blocks.items())) == self.plan.blocks:
            return self.plan
        config, target = self.plan.config, self.plan.target
        return attempted(lambda: _plan(self.problem, config, target, blocks, self.fold))


def formed(problem: Problem, config: Config, target: Target) -> Form | Refusal:
    """The form that a config asks for, or that suits the kernel best where it leaves that open."""
    return attempted(lambda: _ready(problem, config, target))


def _ready(problem: Problem, config: Config, target: Target) -> Form | Refusal:
    check_kernel(problem.ir, target, MODULE_NAMES)
    made = _after_passes(problem, target, config.gathers)
    kernel = made.ir
    ahead = any(t.view is not None and t.view.how == "take" for t in kernel.tensors)
    if config.gathers == "ahead" and not ahead:
        return Refusal(
            Rule.CONFIG,
            f"gathers='ahead', but {kernel.name} picks no rows by tiles of an index array, or it "
            "changes what it picks them from or by",
            kernel.loc,
            "leave gathers out",
        )
    found = _planned(made, config, target)
    if not ahead or config.gathers is not None or isinstance(found, Form):
        return found
    if found.rule is not Rule.KERNEL:
        return formed(problem, replace(config, gathers="inside"), target)
    return found


@lru_cache(8)  # of one kernel many forms are planned, and many configs
def _after_passes(problem: Problem, target: Target, gathers: str | None) -> Problem:
    """The kernel after all passes."""
    *_, (_, kernel) = normalised(problem, target, gathers)
    return Problem(kernel, problem.facts, rows_of_tiles(kernel))


def _planned(problem: Problem, config: Config, target: Target) -> Form | Refusal:
    """The same for a kernel that passes have made ready."""
    planned, fold = _formed(problem, config, target)
    if config.within is None and not config.pieces:
        instead = _without_copies(problem, config, target, planned)
        instead = instead or _together(problem, config, target, planned)
        planned, fold = (planned, fold) if instead is None else instead
    return planned if isinstance(planned, Refusal) else Form(problem, planned, fold)


def _without_copies(
    problem: Problem, config: Config, target: Target, planned: Plan | Refusal
) -> tuple[Plan, bool] | None:
    """The plan that runs heads within the step, where the host would have to transpose arrays.

    That reads and writes each of them once more, which costs more than the smaller blocks do:
    attention over short sequences is bound by memory.
    """
    transposed = {t.name for t in problem.ir.tensors if len(t.shape) >= 3}
    if isinstance(planned, Plan):
        transposed = {a.source for a in planned.arrays if a.permute is not None}
    loops = picked_last(problem, transposed)
    if not loops:
        return None
    instead, fold = _formed(problem, replace(config, within=loops), target)
    if not isinstance(instead, Plan) or any(a.permute is not None for a in instead.arrays):
        return None
    needs = max((with_margin(one.memory.vmem) for one in instead.launches), default=0)
    return (instead, fold) if needs <= target.vmem_physical else None


def _together(
    problem: Problem, config: Config, target: Target, planned: Plan | Refusal
) -> tuple[Plan, bool] | None:
    """The plan that runs all iterations of a loop in one step, where steps of one are small."""
    loops = loops_of_small_steps(planned) if isinstance(planned, Plan) else ()
    if not loops:
        return None
    instead, fold = _formed(problem, replace(config, within=loops), target)
    return (instead, fold) if isinstance(instead, Plan) and rank.fits(instead) else None


def _formed(problem: Problem, config: Config, target: Target) -> tuple[Plan | Refusal, bool]:
    """The plan with the loop type of the config, or with the best one that the nest allows.

    The second result says whether its loops in a row become steps where they can.

    Loops in a row become steps of one pipeline where they can.  Else they run inside the step;
    arrays that do not fit vector memory then stay where they are and stream through loops inside
    the step, and a nest whose steps cannot be folded at all still runs as plain loops there.
    """

    def tried(fold: bool = True, loop_type: str | None = config.loop_type) -> Plan | Refusal:
        return _sized(problem, replace(config, loop_type=loop_type), target, fold)

    folded = tried()
    if isinstance(folded, Refusal) and folded.rule is not Rule.FORM:
        return folded, True
    if config.loop_type is not None or config.steps is not None:
        return (folded, True) if isinstance(folded, Plan) else (tried(fold=False), False)
    if isinstance(folded, Plan) and settled(folded):
        return folded, True
    inside = tried(fold=False)
    if isinstance(inside, Plan) and settled(inside):
        return inside, False
    streamed = tried(loop_type="emit_pipeline")
    if isinstance(streamed, Plan) and (isinstance(inside, Refusal) or modest(streamed)):
        return streamed, True
    if isinstance(inside, Plan):
        return inside, False
    looped = tried(loop_type="fori_loop")
    if isinstance(looped, Plan):
        return looped, True
    return inside, False  # the form that was wanted says why not


def settled(planned: Plan) -> bool:
    """Whether no other form could do better.

    It is modest, or no step loops over blocks that lie in vector memory as a whole.
    """
    return modest(planned) or not any(
        isinstance(stmt, Inner) and launch.axis(stmt.axis).place != "within"
        for launch in planned.launches
        for section in launch.sections
        for stmt in section.body
    )


def modest(planned: Plan) -> bool:
    """Whether every launch fits the memory that a kernel gets without asking for more."""
    return all(launch.memory.limit is None for launch in planned.launches)


def _sized(problem: Problem, config: Config, target: Target, fold: bool) -> Plan | Refusal:
    """The plan with the blocks of the config, or with the largest modest ones.

    `fold`: loops in a row become steps where they can.
    """

    def planned(blocks: Mapping[str, int]) -> Plan | Refusal:
        return attempted(lambda: _plan(problem, config, target, blocks, fold))

    guess = defaults.following(problem, target, config)
    blocks = attempted(lambda: sizes(problem, config, target, guess))
    if isinstance(blocks, Refusal):
        return blocks
    if config.blocks or config.block_sizes is not None or not guess:
        return planned(blocks)
    legal = {n: multiple(problem, n, target) for n in blocks}
    legal |= defaults.least_of_author(problem, target, blocks)
    if config.within:
        legal = {n: max(need, min(defaults.ROWS_LEAST, blocks[n])) for n, need in legal.items()}
    whole = defaults.whole_products(problem, blocks, legal, target)
    if whole is not None:
        found = fitted(problem, target, planned, *whole)
        if isinstance(found, Plan) and modest(found):
            return found
    return fitted(problem, target, planned, blocks, legal)


def fitted(
    problem: Problem,
    target: Target,
    planned: Callable[[Mapping[str, int]], Plan | Refusal],
    blocks: dict[str, int],
    least: Mapping[str, int],
    enough: Callable[[Plan], bool] = modest,
) -> Plan | Refusal:
    """The plan with the largest blocks that are small enough; with the least ones if none are.

    Blocks shrink while vector memory is short: at once to the least ones, where arrays without any
    are too large.  They grow while scalar memory is short: a table of steps has a row for every
    block.
    """
    tried: list[dict[str, int]] = []
    # long ordered blocks shrink first: that only adds steps, not traffic
    ordered = {n for n in blocks if problem.fact(n).kind == "ordered"}
    together = (*problem.registered, *problem.alike)

    def smaller(blocks: dict[str, int]) -> dict[str, int] | None:
        weights = {n: 2 * b if n in ordered else b for n, b in blocks.items()}
        return defaults.shrink(blocks, least, weights, together)

    while True:
        tried.append(blocks)
        found = planned(blocks)
        if isinstance(found, Plan) and enough(found):
            return found
        needs = None if isinstance(found, Plan) else found.needs
        if isinstance(found, Plan) or (needs is not None and needs.wants == "smaller"):
            other = smaller(blocks)
            if isinstance(found, Plan) and not enough(without_blocks(found)):
                while other is not None and (less := smaller(other)) is not None:
                    other = less
        else:
            other = None if needs is None else defaults.grow(problem, blocks, needs.axes, target)
        if other is None or other in tried:
            return found
        blocks = other


def _plan(
    problem: Problem, config: Config, target: Target, blocks: Mapping[str, int], fold: bool
) -> Plan:
    kernel = problem.ir
    if config.steps is not None and not any(a.ragged for a in problem.facts.axes):
        raise Refused(
            Rule.CONFIG,
            f"steps={config.steps!r}, but no loop of {kernel.name} is ragged: there is no table",
            kernel.loc,
            "leave steps out",
        )
    launches: list[Launch] = []
    arrays: dict[HostArray, None] = {}  # in the order of the launches
    for position, loop in enumerate(problem.nests):
        placed = place(problem, config, blocks, loop, fold) if loop is not None else None
        if placed is None:
            continue
        suffix = f"_{len(launches) + 1}" if len(kernel.body) > 1 else ""
        name = f"{kernel.name}{suffix}_kernel"
        while any(t.name == name for t in kernel.tensors):
            name += "_"
        outputs = {w.array for launch in launches for w in launch.outputs}
        written = frozenset(a.source for a in arrays if a.name in outputs)
        later = frozenset(t for tensors in problem.stored[position + 1 :] for t in tensors)
        launch, hosts = plan_launch(problem, config, target, placed, name, written, later)
        launches.append(launch)
        arrays |= dict.fromkeys(hosts)
    hosts, chosen = tuple(arrays), tuple(sorted(blocks.items()))
    return Plan(problem, config, target, hosts, tuple(launches), chosen)
