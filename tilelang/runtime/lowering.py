"""lower(fn, arguments, config, target) -> Lowered: the stages in order.  Runs nothing, needs no JAX.

parse -> analyze -> plan -> emit
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, MappingProxyType

from ..analysis import analyze
from ..analysis.facts import AxisFact, Facts
from ..codegen.pallas import emit
from ..codegen.source import Source
from ..errors import CallError
from ..frontend import parse
from ..ir import KernelIR
from ..schedule import Config, Plan, Target, default_config, plan


@dataclass(frozen=True)
class Lowered:
    """Every stage of one specialisation; each prints itself."""

    ir: KernelIR
    facts: Facts
    plan: Plan
    source: Source
    config: Config
    target: Target

    @property
    def axes(self) -> Mapping[str, AxisFact]:
        """Axis name -> kind, why, carries and what else is known of it."""
        return MappingProxyType({fact.name: fact for fact in self.facts.axes})


def analysed(fn: FunctionType, arguments: Mapping[str, object]) -> tuple[KernelIR, Facts]:
    """The kernel as written, and what is true of it."""
    ir = parse(fn, arguments)
    return ir, analyze(ir)


def lower(
    fn: FunctionType, arguments: Mapping[str, object], config: Config | None, target: Target
) -> Lowered:
    """All stages for arguments by name; without a config the default one."""
    ir, facts = analysed(fn, arguments)
    used = default_config(ir, facts, target) if config is None else config
    planned = plan(ir, facts, used, target)
    return Lowered(ir, facts, planned, emit(planned), used, target)


def checked_config(config: object) -> Config | None:
    """The config that was given; CallError if it is something else."""
    if config is None or isinstance(config, Config):
        return config
    raise CallError(
        f"config={config!r} is not a config",
        hint='write tile.Config({"tm": 128}, ...) or Config.from_json(text)',
    )
