"""plan(problem, config, target) -> Plan: every choice, checked to be legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tilelang.codegen.pallas.passes.flat_scalars import flat_scalars
from tilelang.codegen.pallas.passes.gather_columns import gather_columns
from tilelang.codegen.pallas.passes.scatter_rows import scatter_rows
from tilelang.codegen.pallas.passes.separate_gathers import separate_gathers
from tilelang.codegen.pallas.plan.windows.turned import picked_last
from tilelang.codegen.pallas.target import Target
from tilelang.errors import PlanError
from tilelang.ir import KernelIR, Store, statements
from tilelang.passes.fold_empty import fold_empty
from tilelang.passes.inline_indices import inline_indices
from tilelang.passes.keep_inside import keep_inside
from tilelang.passes.mask_outside import mask_outside
from tilelang.passes.name_shared import name_shared
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal, Refused, Rule, attempted

from .blocks import multiple, sizes
from .defaults import (
    ROWS_LEAST,
    following,
    grow,
    least_registered,
    shrink,
    start_sizes,
    whole_products,
)
from .dtypes import check_dtypes
from .launch import plan_launch
from .placement import place
from .types import HostArray, Inner, Launch, Plan
from .verify import verify

MODULE_NAMES = frozenset({"jax", "jnp", "pl", "pltpu", "interpret"})

__all__ = ["Config", "Plan", "Target", "default_config", "plan"]


def plan(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    """Fills what the config leaves open with the defaults, and plans every launch.

    Raises PlanError for a kernel that no config would make legal.
    """
    planned = _planned(problem, config, target)
    return planned if isinstance(planned, Refusal) else verify(planned)


def _planned(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    _check_names(problem.ir)
    _check_stores(problem.ir)
    check_dtypes(problem.ir, target)
    *_, (_, ir) = normalised(problem, target)
    problem = Problem(ir, problem.facts)
    planned = _formed(problem, config, target)
    if config.within is not None:
        return planned
    turned = _without_copies(problem, config, target, planned)
    return planned if turned is None else turned


def normalised(problem: Problem, target: Target) -> Iterator[tuple[str, KernelIR]]:
    """The kernel after each pass, in their order.

    Lanes outside of arrays are masked and positions kept inside first, while indices are those that
    the facts speak of.  They are written out before those in scalar memory are made flat; single
    rows become scatters and gathers while loads are where the author wrote them; and gathers get
    statements of their own last, because no pass after that may write a load anywhere.
    """
    facts, ir = problem.facts, problem.ir
    passes: tuple[tuple[str, Callable[[KernelIR], KernelIR]], ...] = (
        ("mask_outside", lambda ir: mask_outside(ir, facts)),
        ("keep_inside", lambda ir: keep_inside(ir, facts)),
        ("fold_empty", fold_empty),
        ("name_shared", name_shared),
        ("inline_indices", inline_indices),
        ("flat_scalars", lambda ir: flat_scalars(ir, target)),
        ("scatter_rows", lambda ir: scatter_rows(ir, target)),
        ("gather_columns", lambda ir: gather_columns(ir, target)),
        ("separate_gathers", separate_gathers),
    )
    for name, run in passes:
        ir = run(ir)
        yield name, ir


def _without_copies(
    problem: Problem, config: Config, target: Target, planned: Plan | Refusal
) -> Plan | None:
    """The plan that runs heads within the step, where the host would have to transpose arrays.

    That reads and writes each of them once more, which costs more than the smaller blocks do:
    attention over short sequences is bound by memory.
    """
    moved = {t.name for t in problem.ir.tensors if len(t.shape) >= 3}
    if isinstance(planned, Plan):
        moved = {a.source for a in planned.arrays if a.permute is not None}
    loops = picked_last(problem, moved)
    if not loops:
        return None
    instead = _formed(problem, replace(config, within=loops), target)
    if isinstance(instead, Refusal) or any(a.permute is not None for a in instead.arrays):
        return None
    room = target.vmem_physical * 4 // 5  # what is asked for is a quarter more than is predicted
    return instead if all(one.memory.vmem <= room for one in instead.launches) else None


def _formed(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    """The plan with the loop type of the config, or with the best one that the nest allows.

    Loops in a row become steps of one pipeline where they can.  Else they run inside the step;
    arrays that do not fit vector memory then stay where they are and stream through loops inside
    the step, and a nest whose steps cannot be folded at all still runs as plain loops there.
    """

    def tried(fold: bool = True, loop_type: str | None = config.loop_type) -> Plan | Refusal:
        return _sized(problem, replace(config, loop_type=loop_type), target, fold)

    folded = tried()
    if config.loop_type is not None or config.steps is not None:
        return folded if isinstance(folded, Plan) else tried(fold=False)
    if isinstance(folded, Plan) and _settled(folded):
        return folded
    inside = tried(fold=False)
    if isinstance(inside, Plan) and _settled(inside):
        return inside
    streamed = tried(loop_type="emit_pipeline")
    if isinstance(streamed, Plan) and (isinstance(inside, Refusal) or _modest(streamed)):
        return streamed
    if isinstance(inside, Plan):
        return inside
    looped = tried(loop_type="fori_loop")
    return looped if isinstance(looped, Plan) else inside  # the form that was wanted says why not


def _settled(planned: Plan) -> bool:
    """Whether no other form could do better: it is modest, or has no loops inside the step."""
    return _modest(planned) or not _has_loops(planned)


def _has_loops(planned: Plan) -> bool:
    """Whether some step loops over blocks that lie in vector memory as a whole."""
    return any(
        isinstance(stmt, Inner) and launch.axis(stmt.axis).place != "within"
        for launch in planned.launches
        for section in launch.sections
        for stmt in section.body
    )


def _sized(problem: Problem, config: Config, target: Target, fold: bool) -> Plan | Refusal:
    """The plan with the blocks of the config, or with the largest modest ones.

    `fold`: loops in a row become steps where they can.
    """

    def planned(blocks: Mapping[str, int]) -> Plan | Refusal:
        return attempted(lambda: _plan(problem, config, target, blocks, fold))

    guess = following(problem, target, config, start_sizes(problem, target))
    if config.blocks or config.block_sizes is not None or not guess:
        return attempted(
            lambda: _plan(problem, config, target, sizes(problem, config, target, guess), fold)
        )
    blocks = sizes(problem, config, target, guess)
    legal = {n: multiple(problem, n, target) for n in blocks} | least_registered(problem, target)
    if config.within:
        legal = {n: max(need, min(ROWS_LEAST, blocks[n])) for n, need in legal.items()}
    whole = whole_products(problem, blocks, legal)
    if whole is not None:
        found = _fitted(problem, planned, *whole)
        if isinstance(found, Plan) and _modest(found):
            return found
    return _fitted(problem, planned, blocks, legal)


def _fitted(
    problem: Problem,
    planned: Callable[[Mapping[str, int]], Plan | Refusal],
    blocks: dict[str, int],
    least: Mapping[str, int],
) -> Plan | Refusal:
    """The plan with the largest blocks that are modest; with the least ones if none are.

    Blocks shrink while vector memory is short.  They grow while scalar memory is: a table of steps
    has a row for every block.
    """
    tried: set[tuple[tuple[str, int], ...]] = set()
    while True:
        tried.add(tuple(sorted(blocks.items())))
        found = planned(blocks)
        if isinstance(found, Plan) and _modest(found):
            return found
        wants = "smaller" if isinstance(found, Plan) else found.needs and found.needs.wants
        if wants == "smaller":
            weights = {n: b * _cost(problem, n) for n, b in blocks.items()}
            other = shrink(blocks, least, weights, (*problem.registered, *problem.alike))
        elif wants == "larger":
            assert isinstance(found, Refusal) and found.needs is not None
            other = grow(problem, blocks, found.needs.axes)
        else:
            return found
        if other is None or tuple(sorted(other.items())) in tried:
            return found
        blocks = other


def _check_names(ir: KernelIR) -> None:
    """PlanError for names that would hide a module in the generated source."""
    for name, loc in ((ir.name, ir.loc), *((t.name, t.loc) for t in ir.tensors)):
        if name in MODULE_NAMES:
            raise PlanError(
                f"the name {name} is that of a module in the generated source",
                loc,
                f"rename it; the names {', '.join(sorted(MODULE_NAMES))} are taken",
            )


def _check_stores(ir: KernelIR) -> None:
    """PlanError for stores through a view."""
    for stmt in statements(ir.body):
        if isinstance(stmt, Store) and ir.tensor(stmt.tensor).view is not None:
            raise PlanError(
                f"{stmt.tensor} is a view, and stores through views are not supported",
                stmt.loc,
                "make the output in the shape that the kernel stores, and return the view of it",
            )


def default_config(problem: Problem, target: Target) -> Config:
    """The config that `plan` uses when none is given."""
    chosen = plan(problem, Config(), target)
    if isinstance(chosen, Refusal):
        raise chosen.error
    return config_of(chosen)


def config_of(chosen: Plan) -> Config:
    """The config that says what was chosen."""
    ir = chosen.ir
    named: dict[str, int] = {}
    for axis in ir.axes:
        if isinstance(axis.block, str):
            block, bounds = dict(chosen.blocks)[axis.name], ir.block_size(axis)
            block = block if bounds is None else bounds.nearest(block)  # of a short dimension
            named[axis.block] = max(block, named.get(axis.block, 0))
    return Config(named, loop_type=chosen.config.loop_type, within=chosen.config.within)


def _modest(planned: Plan) -> bool:
    """Whether every launch fits the memory that a kernel gets without asking for more."""
    return all(launch.memory.limit is None for launch in planned.launches)


def _cost(problem: Problem, name: str) -> int:
    """Long ordered blocks shrink first: that only adds steps, not traffic."""
    return 2 if problem.fact(name).kind == "ordered" else 1


def _check_steps(problem: Problem, config: Config) -> None:
    """PlanError if `steps` is given and no loop is ragged."""
    if config.steps is None or any(a.ragged for a in problem.facts.axes):
        return
    raise Refused(
        Rule.CONFIG,
        f"steps={config.steps!r}, but no loop of {problem.ir.name} is ragged: there is no table",
        problem.ir.loc,
        "leave steps out",
    )


def _plan(
    problem: Problem,
    config: Config,
    target: Target,
    blocks: Mapping[str, int],
    fold: bool,
) -> Plan:
    _check_steps(problem, config)
    ir = problem.ir
    launches: list[Launch] = []
    arrays: dict[tuple[str, str], HostArray] = {}
    for position, loop in enumerate(problem.nests):
        placed = place(problem, config, blocks, loop, fold) if loop is not None else None
        if placed is None:
            continue
        suffix = f"_{len(launches) + 1}" if len(ir.body) > 1 else ""
        name = f"{ir.name}{suffix}_kernel"
        while any(t.name == name for t in ir.tensors):
            name += "_"
        outputs = {w.array for launch in launches for w in launch.outputs}
        written = frozenset(a.source for a in arrays.values() if a.name in outputs)
        later = frozenset(t for tensors in problem.stored[position + 1 :] for t in tensors)
        launch, hosts = plan_launch(problem, config, target, placed, name, written, later)
        launches.append(launch)
        arrays |= {(host.name, host.source): host for host in hosts}
    return Plan(
        ir,
        problem.facts,
        config,
        target,
        tuple(arrays.values()),
        tuple(launches),
        tuple(sorted(blocks.items())),
    )
