"""lower(ir, facts, config, target) -> Lowered: the stages after parsing, in order.  Needs no JAX.

analyze -> plan -> emit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from ..analysis import analyze, refuse
from ..analysis.facts import AxisFact, Facts
from ..codegen.pallas.emit import emit
from ..codegen.pallas.plan.search import config_of, default_config, plan
from ..codegen.pallas.plan.types import Plan
from ..codegen.pallas.target import Target
from ..codegen.source import Source
from ..errors import CallError, Loc, TileError
from ..ir import KernelIR
from ..schedule.config import Config
from ..schedule.problem import Problem
from ..schedule.refusal import Refusal


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


def lower(ir: KernelIR, facts: Facts, config: Config | None, target: Target) -> Lowered:
    """The later stages of an analysed kernel; without a config the default one."""
    with our_fault(ir.name, ir.loc):
        planned = plan(Problem(ir, facts), config or Config(), target)
        if isinstance(planned, Refusal):
            raise planned.error
        used = config_of(planned) if config is None else config
        return Lowered(ir, facts, planned, emit(planned), used, target)


def chosen_by_default(ir: KernelIR, facts: Facts, target: Target) -> Config:
    """The config of a parsed kernel that is given none."""
    with our_fault(ir.name, ir.loc):
        return default_config(Problem(ir, facts), target)


def proved(ir: KernelIR) -> Facts:
    """The facts of a kernel; ParseError for what they show to be a mistake."""
    with our_fault(ir.name, ir.loc):
        facts = analyze(ir)
        refuse(ir, facts)
        return facts


@contextmanager
def our_fault(kernel: str, loc: Loc | None = None) -> Iterator[None]:
    """A failure inside of the compiler as an error about the kernel that it failed on."""
    try:
        yield
    except TileError:
        raise
    except Exception as error:
        raise TileError(
            f"kernel {kernel} cannot be compiled: {type(error).__name__} inside of tilelang",
            loc,
            "this is a fault of tilelang, not of the kernel; please report it with the kernel",
        ) from error


def checked_config(config: object) -> Config | None:
    """The config that was given; CallError if it is something else."""
    if config is None or isinstance(config, Config):
        return config
    raise CallError(
        f"config={config!r} is not a config",
        hint='write tile.Config({"tm": 128}, ...) or Config.from_json(text)',
    )
