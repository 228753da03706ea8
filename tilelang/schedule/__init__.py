"""plan(ir, facts, config, target) -> Plan: every choice, checked to be legal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..analysis.facts import Facts
from ..errors import PlanError
from ..ir import KernelIR, Loop, Stmt, Store, statements
from .blocks import multiple, references, sizes
from .columns import whole_rows
from .config import Config
from .defaults import (
    ROWS_LEAST,
    alike,
    following,
    least_registered,
    registered,
    shrink,
    start_sizes,
    whole_products,
)
from .dtypes import check_dtypes
from .empty import fold_empty
from .expand import expand
from .flatten import flatten
from .gathers import separate
from .launch import Planned, plan_launch
from .nest import drop_unused
from .outside import without_outside
from .placement import place
from .plan import HostArray, Inner, Launch, Plan
from .positions import scatter_far
from .share import share
from .target import Target
from .within import picked_last

MODULE_NAMES = frozenset({"jax", "jnp", "pl", "pltpu", "interpret"})

__all__ = ["Config", "Plan", "Target", "default_config", "plan"]


def plan(ir: KernelIR, facts: Facts, config: Config, target: Target) -> Plan:
    """Fills what the config leaves open with the defaults, and plans every launch.

    Raises PlanError, with the user's line and the reason, for a config that cannot be honoured.
    """
    _check_names(ir)
    _check_stores(ir)
    check_dtypes(ir, target)
    ir = flatten(expand(share(fold_empty(without_outside(ir, facts)))), target)
    ir = separate(whole_rows(scatter_far(ir, target), target))
    if config.within is not None:
        return _chosen(ir, facts, config, target)
    refused = None
    try:
        planned = _chosen(ir, facts, config, target)
    except PlanError as caught:
        planned, refused = None, caught
    turned = _without_copies(ir, facts, config, target, planned)
    if turned is not None:
        return turned
    if planned is None:
        assert refused is not None
        raise refused
    return planned


def _without_copies(
    ir: KernelIR, facts: Facts, config: Config, target: Target, planned: Plan | None
) -> Plan | None:
    """The plan that runs heads within the step, where the host would have to transpose arrays.

    That reads and writes each of them once more, which costs more than the smaller blocks do:
    attention over short sequences is bound by memory.
    """
    moved = [t.name for t in ir.tensors if len(t.shape) >= 3]
    if planned is not None:
        moved = [a.source for a in planned.arrays if a.permute is not None]
    loops = dict.fromkeys(u for name in moved for u in picked_last(ir, name))
    if not loops:
        return None
    instead, _ = _attempt(ir, facts, replace(config, within=tuple(loops)), target)
    if instead is None or any(a.permute is not None for a in instead.arrays):
        return None
    room = target.vmem_physical * 4 // 5  # what is asked for is a quarter more than is predicted
    return instead if all(one.memory.vmem <= room for one in instead.launches) else None


def _chosen(ir: KernelIR, facts: Facts, config: Config, target: Target) -> Plan:
    """The plan with the loop type of the config, or with the best one that the nest allows."""
    folded, refused = _attempt(ir, facts, config, target)
    if config.loop_type is not None or config.steps is not None:
        if folded is None:  # loops in a row may still run inside the step
            return _sized(ir, facts, config, target, fold=False)
        return folded
    if folded is not None and (_modest(folded) or not _has_loops(folded)):
        return folded
    planned, refused = _attempt(ir, facts, config, target, fold=False)
    if planned is not None and (_modest(planned) or not _has_loops(planned)):
        return planned
    # arrays that do not fit stay where they are and stream through loops inside the step; a nest
    # whose steps cannot be folded at all still runs as plain loops inside the step
    streamed, _ = _attempt(ir, facts, replace(config, loop_type="emit_pipeline"), target)
    if streamed is not None and (planned is None or _modest(streamed)):
        return streamed
    if planned is None:
        planned, _ = _attempt(ir, facts, replace(config, loop_type="fori_loop"), target)
    if planned is None:
        assert refused is not None
        raise refused
    return planned


def _attempt(
    ir: KernelIR, facts: Facts, config: Config, target: Target, fold: bool = True
) -> tuple[Plan | None, PlanError | None]:
    try:
        return _sized(ir, facts, config, target, fold), None
    except PlanError as refused:
        return None, refused


def _has_loops(planned: Plan) -> bool:
    """Whether some step loops over blocks that lie in vector memory as a whole."""
    return any(
        isinstance(stmt, Inner) and launch.axis(stmt.axis).place != "within"
        for launch in planned.launches
        for section in launch.sections
        for stmt in section.body
    )


def _sized(ir: KernelIR, facts: Facts, config: Config, target: Target, fold: bool = True) -> Plan:
    """The plan with the blocks of the config, or with the largest modest ones.

    `fold`: loops in a row become steps where they can.
    """
    guess = following(ir, facts, target, config, start_sizes(ir, facts, target))
    if config.blocks or config.block_sizes is not None or not guess:
        return _plan(ir, facts, config, target, sizes(ir, config, target, guess), fold)
    blocks = sizes(ir, config, target, guess)
    legal = {n: multiple(ir, n, target) for n in blocks} | least_registered(ir, target)
    if config.within:
        legal = {n: max(need, min(ROWS_LEAST, blocks[n])) for n, need in legal.items()}
    whole = whole_products(ir, facts, blocks, legal)
    if whole is not None:
        try:
            planned = _fitted(ir, facts, config, target, *whole, fold)
        except PlanError:
            planned = None
        if planned is not None and _modest(planned):
            return planned
    return _fitted(ir, facts, config, target, blocks, legal, fold)


def _fitted(
    ir: KernelIR,
    facts: Facts,
    config: Config,
    target: Target,
    blocks: dict[str, int],
    least: Mapping[str, int],
    fold: bool,
) -> Plan:
    """The plan with the largest blocks that are modest; with the least ones if none are."""
    while True:
        try:
            planned = _plan(ir, facts, config, target, blocks, fold)
            if _modest(planned):
                return planned
            error = None
        except PlanError as caught:
            planned, error = None, caught
            if "bytes" not in caught.what:
                raise
        weights = {n: b * _cost(facts, n) for n, b in blocks.items()}
        smaller = shrink(blocks, least, weights, (*registered(ir), *alike(ir, facts)))
        if smaller is None:
            if planned is None:
                assert error is not None
                raise error
            return planned
        blocks = smaller


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


def default_config(ir: KernelIR, facts: Facts, target: Target) -> Config:
    """The config that `plan` uses when none is given."""
    chosen = plan(ir, facts, Config(), target)
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


def _cost(facts: Facts, name: str) -> int:
    """Long ordered blocks shrink first: that only adds steps, not traffic."""
    return 2 if facts.axis(name).kind == "ordered" else 1


def _check_steps(ir: KernelIR, facts: Facts, config: Config) -> None:
    """PlanError if `steps` is given and no loop is ragged."""
    if config.steps is None or any(a.ragged for a in facts.axes):
        return
    raise PlanError(
        f"steps={config.steps!r}, but no loop of {ir.name} is ragged: there is no table",
        ir.loc,
        "leave steps out",
    )


def _without_empty(ir: KernelIR, loop: Loop) -> Loop | None:
    """The nest without stores to arrays of no elements; None if nothing is left of it."""

    def keep(stmt: Stmt) -> tuple[Stmt, ...]:
        match stmt:
            case Store(tensor) if 0 in ir.tensor(tensor).shape:
                return ()
            case Loop():
                return (replace(stmt, body=tuple(s for inner in stmt.body for s in keep(inner))),)
            case _:
                return (stmt,)

    left = drop_unused(keep(loop))
    return left[0] if left and isinstance(left[0], Loop) else None


def _plan(
    ir: KernelIR,
    facts: Facts,
    config: Config,
    target: Target,
    blocks: dict[str, int],
    fold: bool,
) -> Plan:
    planned: list[Planned] = []
    _check_steps(ir, facts, config)
    nests = [_without_empty(ir, loop) for loop in ir.body]
    stored = [
        frozenset(t for t, _, writes in references((n,)) if writes) if n else () for n in nests
    ]
    for position, loop in enumerate(nests):
        placed = place(ir, facts, config, blocks, loop, fold) if loop is not None else None
        if placed is None:
            continue
        suffix = f"_{len(planned) + 1}" if len(ir.body) > 1 else ""
        name = f"{ir.name}{suffix}_kernel"
        while any(t.name == name for t in ir.tensors):
            name += "_"
        written = frozenset(
            launch_array.source
            for one in planned
            for launch_array in one.arrays
            if any(w.array == launch_array.name for w in one.launch.outputs)
        )
        later = frozenset(t for tensors in stored[position + 1 :] for t in tensors)
        planned.append(plan_launch(ir, facts, config, target, placed, name, written, later))
    arrays: dict[tuple[str, str], HostArray] = {}
    for one in planned:
        for host in one.arrays:
            arrays[host.name, host.source] = host
    launches: tuple[Launch, ...] = tuple(p.launch for p in planned)
    return Plan(
        ir, facts, config, target, tuple(arrays.values()), launches, tuple(sorted(blocks.items()))
    )
