"""plan(ir, facts, config, target) -> Plan: every choice, checked to be legal."""

from __future__ import annotations

from ..analysis.facts import Facts
from ..errors import PlanError
from ..ir import KernelIR
from .blocks import multiple, sizes
from .config import Config
from .defaults import shrink, start_sizes
from .expand import expand
from .launch import Planned, plan_launch
from .placement import place
from .plan import HostArray, Launch, Plan
from .share import share
from .target import Target

__all__ = ["Config", "Plan", "Target", "default_config", "plan"]


def plan(ir: KernelIR, facts: Facts, config: Config, target: Target) -> Plan:
    """Fills what the config leaves open with the defaults, and plans every launch.

    Raises PlanError, with the user's line and the reason, for a config that cannot be honoured.
    """
    ir = expand(share(ir))
    guess = start_sizes(ir, facts, target)
    if config.blocks or config.block_sizes is not None or not guess:
        return _plan(ir, facts, config, target, sizes(ir, config, target, guess))
    blocks = sizes(ir, config, target, guess)
    legal = {n: multiple(ir, n, target) for n in blocks}
    while True:
        try:
            planned = _plan(ir, facts, config, target, blocks)
            if _modest(planned):
                return planned
            error = None
        except PlanError as caught:
            planned, error = None, caught
            if "bytes" not in caught.what:
                raise
        weights = {n: b * _cost(facts, n) for n, b in blocks.items()}
        smaller = shrink(blocks, legal, weights)
        if smaller is None:
            if planned is None:
                assert error is not None
                raise error
            return planned
        blocks = smaller


def default_config(ir: KernelIR, facts: Facts, target: Target) -> Config:
    """The config that `plan` uses when none is given."""
    chosen = plan(ir, facts, Config(), target)
    named = {str(a.block): dict(chosen.blocks)[a.name] for a in ir.axes if isinstance(a.block, str)}
    return Config(named)


def _modest(planned: Plan) -> bool:
    """Whether every launch fits the memory that a kernel gets without asking for more."""
    return all(launch.memory.limit is None for launch in planned.launches)


def _cost(facts: Facts, name: str) -> int:
    """Long ordered blocks shrink first: that only adds steps, not traffic."""
    return 2 if facts.axis(name).kind == "ordered" else 1


def _plan(
    ir: KernelIR, facts: Facts, config: Config, target: Target, blocks: dict[str, int]
) -> Plan:
    planned: list[Planned] = []
    empty = any(0 in t.shape for t in ir.tensors if t.role != "view")
    for loop in () if empty else ir.body:
        placed = place(ir, facts, config, blocks, loop)
        if placed is None:
            continue
        suffix = f"_{len(planned) + 1}" if len(ir.body) > 1 else ""
        name = f"{ir.name}{suffix}_kernel"
        written = frozenset(
            launch_array.source
            for one in planned
            for launch_array in one.arrays
            if any(w.array == launch_array.name for w in one.launch.outputs)
        )
        planned.append(plan_launch(ir, facts, config, target, placed, name, written))
    arrays: dict[tuple[str, str], HostArray] = {}
    for one in planned:
        for host in one.arrays:
            arrays[host.name, host.source] = host
    launches: tuple[Launch, ...] = tuple(p.launch for p in planned)
    return Plan(
        ir, facts, config, target, tuple(arrays.values()), launches, tuple(sorted(blocks.items()))
    )
