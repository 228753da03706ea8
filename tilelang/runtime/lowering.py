"""lower(ir, facts, config, target) -> Lowered: the stages after parsing, in order.  Needs no JAX.

analyze -> plan -> emit
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..analysis import again, analyze, refuse
from ..analysis.facts import AxisFact, Facts
from ..codegen.pallas import emit as pallas_emit
from ..codegen.pallas.long_positions import refuse_long
from ..codegen.pallas.passes.measured_ranges import measured_ranges
from ..codegen.pallas.passes.stored_places import stored_places
from ..codegen.pallas.plan import search as pallas_search
from ..codegen.pallas.plan import space as pallas_space
from ..codegen.pallas.plan.types import Plan as PallasPlan
from ..codegen.pallas.target import CALLED as CALLED_TPUS
from ..codegen.pallas.target import TARGETS as TPUS
from ..codegen.pallas.target import Target as PallasTarget
from ..codegen.source import Source
from ..codegen.triton import emit as triton_emit
from ..codegen.triton.plan import search as triton_search
from ..codegen.triton.plan import space as triton_space
from ..codegen.triton.plan.types import Plan as TritonPlan
from ..codegen.triton.target import CALLED as CALLED_GPUS
from ..codegen.triton.target import TARGETS as GPUS
from ..codegen.triton.target import Target as TritonTarget
from ..errors import CallError, Loc, TileError, unknown_target
from ..ir import KernelIR
from ..passes.drop_detached import drop_detached
from ..passes.separate_parts import separate_parts
from ..schedule.candidate import Candidate
from ..schedule.config import Config, check_family
from ..schedule.problem import Problem
from ..schedule.refusal import Refusal, allowed, attempted
from .tensors import Described

Plan = PallasPlan | TritonPlan
Target = PallasTarget | TritonTarget


def target_of(target: str | Target | None) -> Target:
    """The target of that name, of whichever family; None is the CPU."""
    if isinstance(target, TritonTarget):
        return target
    if isinstance(target, str) and target in GPUS:
        return TritonTarget.of(target)
    if target is None or isinstance(target, PallasTarget) or target in TPUS:
        return PallasTarget.of(target)
    raise unknown_target(target, (*TPUS, *GPUS), {**CALLED_TPUS, **CALLED_GPUS})


def launched_by_jax(target: Target) -> Target:
    """The target as JAX launches on it: jaxlib's launcher gives programs no memory of their own."""
    return target.without_scratch() if isinstance(target, TritonTarget) else target


def on_gpu(tensors: Iterable[Described]) -> bool:
    """Whether a torch tensor among the arguments is on a GPU."""
    return any(d.home == "torch" and d.device == "cuda" for d in tensors)


def runs_on_gpu(tensors: Iterable[Described], target: str | Target | None) -> bool:
    """Whether Triton runs a call, without JAX."""
    given = list(tensors)
    if any(d.spec.framework == "jax" for d in given):
        return False
    return on_gpu(given) if target is None else isinstance(target_of(target), TritonTarget)


def vmem_of(plan: Plan) -> int:
    """Bytes of vector memory that a TPU's largest launch needs."""
    launches = plan.launches if isinstance(plan, PallasPlan) else ()
    return max((launch.memory.vmem for launch in launches), default=0)


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
    return allowed(lowered(ir, facts, config, target))


def lowered(ir: KernelIR, facts: Facts, config: Config | None, target: Target) -> Lowered | Refusal:
    """The same, for whoever can do something else where it is refused."""
    with our_fault(ir.name, ir.loc):
        problem, given = _problem(ir, facts, target), config or Config()
        planned = attempted(lambda: _planned(problem, given, target))
        if isinstance(planned, Refusal):
            return planned
        if isinstance(planned, TritonPlan):
            source, used = triton_emit.emit(planned), triton_search.config_of(planned)
        else:
            source, used = pallas_emit.emit(planned), pallas_search.config_of(planned)
        return Lowered(ir, facts, planned, source, used if config is None else config, target)


def _planned(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    check_family(config, target.name)
    if isinstance(target, TritonTarget):
        return triton_search.plan(problem, config, target)
    return pallas_search.plan(problem, config, target)


def _problem(ir: KernelIR, facts: Facts, target: Target) -> Problem:
    """What is planned: the kernel without what only its gradient asks about, and parts loaded."""
    made = separate_parts(drop_detached(ir))
    if not isinstance(target, TritonTarget):
        refuse_long(made)
        made = stored_places(measured_ranges(made), target)
    return Problem(made, facts if made is ir else again(made, facts))


def chosen_by_default(ir: KernelIR, facts: Facts, target: Target) -> Config:
    """The config of a parsed kernel that is given none."""
    with our_fault(ir.name, ir.loc):
        if isinstance(target, TritonTarget):
            return triton_search.default_config(_problem(ir, facts, target), target)
        return pallas_search.default_config(_problem(ir, facts, target), target)


def candidates(
    ir: KernelIR, facts: Facts, target: Target, near: Config | None = None
) -> Iterator[Candidate]:
    """Every legal config of a parsed kernel: best estimate first, or most like `near`."""
    with our_fault(ir.name, ir.loc):
        problem = _problem(ir, facts, target)
        if isinstance(target, TritonTarget):
            yield from triton_space.space(problem, target, near)
        elif near is None:
            yield from pallas_space.space(problem, target)
        else:
            raise CallError(
                f"configs for {target} come in the order of their estimates, not by near=",
                hint="leave near= out",
            )


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


def said_of_derived(kernel: str, part: str, no: Refusal) -> Refusal:
    """What no plan is found for, and nobody wrote, is said of the kernel that it is derived of."""
    hint = f"write the backward yourself, and register it with @{kernel}.vjp; or {no.hint}"
    what = f"the {part} that was derived of kernel {kernel} has no plan: {no.what}"
    return replace(no, what=what, hint=hint)
