"""prepare(ir, operands, ...) -> Launch: a parsed kernel as a function of argument values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.facts import Facts
from ..codegen.pallas.target import Target as PallasTarget
from ..codegen.triton.plan.types import Plan as TritonPlan
from ..ir import KernelIR
from .cuda.custom_call import traced as traced_on_gpu
from .cuda.record import Compiled
from .device import device_of, platform_of, refuse, refuse_compiled, refuse_foreign, target_of
from .jax_gradient import Resolve
from .launch import Launch, Operand, check_of, framework_of, launch
from .lowering import Lowered, Target
from .primitive import Code
from .program import at_once, generated, on_cpu, program

Programs = MutableMapping[Hashable, Callable[..., Any]]

__all__ = ["Chosen", "Launch", "Operand", "platform_of", "prepare", "screen", "target_of"]


def screen(kernel: str, operands: Sequence[Operand]) -> None:
    """CallError for arguments that no kernel could run on; looked at before anything compiles."""
    refuse(kernel, operands)
    framework_of(kernel, operands)


@dataclass(frozen=True)
class Chosen:
    """What a call of a kernel asks for.

    target     what to plan for wherever it runs; None: the device that it is lowered for
    planned    target -> the kernel planned for it; asked when code for a device is needed
    compiled   the same, planned for a GPU -> what Triton makes of each launch
    strict     only Pallas's TPU interpreter can run the code on a CPU
    interpret  None: where the device needs it; True, False or pltpu.InterpretParams
    checks     None: if the values are on the host; True: also if they must be fetched; False: never
    resolve    the arguments that want one -> the gradient of the kernel
    """

    target: Target | None
    planned: Callable[[Target], Lowered]
    compiled: Callable[[Lowered], Sequence[Compiled]]
    strict: bool
    interpret: Any
    checks: bool | None
    resolve: Resolve


def prepare(
    ir: KernelIR,
    facts: Facts,
    operands: Sequence[Operand],
    chosen: Chosen,
    programs: Programs,
    key: Hashable,
) -> Launch:
    """The launch of one specialisation; `programs` keeps jitted functions for it and others."""
    framework = framework_of(ir.name, operands)
    platform = platform_of(o.described for o in operands)
    traced = any(o.described.home == "traced" for o in operands)
    if not traced:
        refuse_compiled(ir.name, platform, chosen.interpret)
        target = chosen.target or target_of(platform)
        refuse_foreign(ir.name, target, platform, chosen.interpret)
        chosen.planned(target)
    if key not in programs:
        programs[key] = jitted(ir, chosen)
    run = programs[key]
    if platform == "cpu" and framework != "jax":
        run = on_cpu(run)
    if framework != "jax" or (not traced and any(t.mutated for t in ir.tensors)):
        run = at_once(run)
    return launch(ir, operands, run, check_of(ir, facts, operands, chosen.checks), framework)


def jitted(ir: KernelIR, chosen: Chosen) -> Callable[..., Any]:
    """The kernel as a function of JAX arrays, one for each parameter that is a tensor."""
    operands = tuple(p.name for p in ir.params if p.tensor is not None)
    return program(_code(ir, chosen), operands, chosen.resolve)


def _code(ir: KernelIR, chosen: Chosen) -> Code:
    interpret, strict = chosen.interpret, chosen.strict

    def generate(platform: str, kind: str | None) -> Callable[..., Any]:
        target = chosen.target or target_of(platform, kind)
        refuse_foreign(ir.name, target, platform, interpret)
        if not isinstance(target, PallasTarget):
            lowered = chosen.planned(target)
            assert isinstance(lowered.plan, TritonPlan), "the target is a GPU"
            return traced_on_gpu(lowered.plan, chosen.compiled(lowered))
        device = device_of(ir.name, target, platform, interpret, strict)
        return generated(chosen.planned(target).source.load(), device)

    effectful = strict if interpret is None else not isinstance(interpret, bool)
    return Code(ir.name, results_of(ir), generate, effectful or (strict and interpret is True))


def results_of(ir: KernelIR) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and dtype of what generated code returns: the results, then arguments stored to."""
    mutated = [t for t in ir.tensors if t.mutated]
    tensors = [*map(ir.tensor, ir.returns), *mutated]
    return tuple((t.shape, "int32" if t.dtype == "int64" else t.dtype) for t in tensors)
