"""prepare(ir, operands, ...) -> Launch: a parsed kernel as a function of argument values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..analysis.facts import Facts
from ..codegen.pallas.plan.types import Plan as PallasPlan
from ..codegen.pallas.target import Target as PallasTarget
from ..codegen.triton.plan.types import Plan as TritonPlan
from ..ir import KernelIR
from ..schedule.refusal import Refusal, allowed
from .auto_axes import over_auto_axes
from .batching import Stages
from .buckets import ends, fitted
from .cuda.custom_call import traced as traced_on_gpu
from .cuda.record import CompiledFunction
from .device import device_of, platform_of, refuse, refuse_compiled, refuse_foreign, target_of
from .forked import where_threads_are
from .jax_compat import default_platform, mesh_of, sharded_axes
from .jax_gradient import Resolve
from .launch import Launch, TensorArgument, check_of, framework_of, launch
from .lowering import Lowered, Target, launched_by_jax, proved
from .primitive import Code, Flags, Generated, call
from .program import at_once, generated, on_cpu, one_by_one, program
from .sharding import Run, Splits, names_of, operands_of, over_mesh, split_of

Programs = MutableMapping[Hashable, Callable[..., Any]]

__all__ = [
    "Chosen", "Launch", "Stages", "TensorArgument", "platform_of", "prepare", "screen", "target_of",
]  # fmt: skip


def screen(kernel: str, operands: Sequence[TensorArgument]) -> None:
    """CallError for arguments that no kernel could run on; looked at before anything compiles."""
    refuse(kernel, operands)
    framework_of(kernel, operands)


@dataclass(frozen=True)
class Chosen:
    """What a call of a kernel asks for.

    target     what to plan for wherever it runs; None: the device that it is lowered for
    stages     the kernel, planned for a target when code for a device is needed
    compiled   the same, planned for a GPU -> what Triton makes of each launch
    aimed      windows or a target are named, or results go by where tiles of a fixed block begin:
               what a CPU may run in Pallas's TPU interpreter alone
    interpret  None: where the device needs it; True, False or pltpu.InterpretParams
    checks     None: if the values are on the host; True: also if they must be fetched; False: never
    resolve    the arguments that want one -> the gradient of the kernel
    """

    target: Target | None
    stages: Stages
    compiled: Callable[[Lowered], Sequence[CompiledFunction]]
    aimed: bool
    interpret: Any
    checks: bool | None
    resolve: Resolve


def prepare(
    ir: KernelIR,
    facts: Facts,
    operands: Sequence[TensorArgument],
    chosen: Chosen,
    programs: Programs,
    key: Hashable,
) -> Launch | Refusal:
    """The launch of one specialisation; `programs` keeps jitted functions for it and others.

    What is chosen is the kernel, or the same for more rows, to which the arguments are padded.
    """
    framework = framework_of(ir.name, operands)
    platform = platform_of(o.described for o in operands)
    traced = any(o.described.home == "traced" for o in operands)
    blocks: dict[str, int] = {}
    if not traced:
        refuse_compiled(ir.name, platform, chosen.interpret)
        target = launched_by_jax(chosen.target or target_of(platform))
        refuse_foreign(ir.name, target, platform, chosen.interpret)
        if isinstance(planned := chosen.stages.planned(target), Refusal):
            return planned
        blocks = dict(planned.plan.blocks)
    if key not in programs:
        programs[key] = jitted(chosen)
    run = _of_rows(ir, chosen.stages.ir, programs[key])
    if platform == "cpu" and framework != "jax":
        run = on_cpu(run)
    if framework != "jax" or (not traced and any(t.mutated for t in ir.tensors)):
        run = where_threads_are(ir.name, at_once(run))
    check = check_of(ir, facts, operands, chosen.checks, blocks)
    return launch(ir, operands, run, check, framework)


def _of_rows(own: KernelIR, wide: KernelIR, run: Callable[..., Any]) -> Callable[..., Any]:
    """A program for as many rows as the kernel has."""
    if own is wide:
        return run
    pairs = [(own.tensor(n).shape, wide.tensor(n).shape) for n in operands_of(own)]
    known = {
        name: min(own.tensor(t).shape[dim] for t, dim in places)
        for name, places in ends(own).items()
    }
    most = [known.get(name) for name in operands_of(own)]
    return fitted(run, pairs, [own.tensor(n).shape for n in names_of(own)], most)


def jitted(chosen: Chosen) -> Callable[..., Any]:
    """The kernel as a function of JAX arrays, one for each parameter that is a tensor."""
    return program(_code(chosen), operands_of(chosen.stages.ir), chosen.resolve)


def _code(chosen: Chosen) -> Code:
    """What the kernel does on each platform; of a batch, what its elements do one by one."""
    interpret, stages = chosen.interpret, chosen.stages
    name = stages.ir.name

    def generate(platform: str, kind: str | None) -> Generated:
        target = launched_by_jax(chosen.target or target_of(platform, kind))
        refuse_foreign(name, target, platform, interpret)
        planned = stages.planned(target)
        if isinstance(planned, Refusal) and stages.element is not None:
            return _each(chosen, *stages.element)(platform, kind)
        lowered = allowed(planned)
        if not isinstance(target, PallasTarget):
            assert isinstance(lowered.plan, TritonPlan), "the target is a GPU"
            return traced_on_gpu(lowered.plan, chosen.compiled(lowered))
        assert isinstance(lowered.plan, PallasPlan), "the target is none"
        device = device_of(name, target, platform, interpret, lowered.plan.varying)
        return generated(lowered.source.load(), device)

    def batched(flags: Flags, size: int) -> Code:
        names = [n for n, flag in zip(operands_of(stages.ir), flags, strict=True) if flag]
        return _code(replace(chosen, stages=stages.batched(names, size)))

    effectful = _strict(chosen) if interpret in (None, True) else interpret is not False
    sharded, spread = partial(_sharded, chosen, {}), partial(_spread, chosen, {})
    return Code(name, results_of(stages.ir), generate, effectful, batched, sharded, spread)


def _strict(chosen: Chosen) -> bool:
    """Whether only Pallas's TPU interpreter can run the CPU's code, as the plan of it says.

    It has effects, of which JAX must hear before it knows the platform.  No plan is made for that
    where nobody may need it: what a CPU chooses by itself has none.
    """
    if not chosen.aimed or default_platform() == "tpu":
        return False
    planned = chosen.stages.planned(launched_by_jax(chosen.target or target_of("cpu", None)))
    if isinstance(planned, Refusal):
        element = chosen.stages.element
        return element is not None and _strict(replace(chosen, stages=element[0]))
    return isinstance(planned.plan, PallasPlan) and planned.plan.varying


def _sharded(
    chosen: Chosen, codes: MutableMapping[Any, Any], arrays: Sequence[Any]
) -> tuple[Any, ...]:
    """The results on sharded arguments: each device runs its part; `codes` keeps what it runs."""
    ir, mesh = chosen.stages.ir, mesh_of(arrays)
    operands, specs = operands_of(ir), tuple(sharded_axes(array) for array in arrays)
    key = (specs, tuple(mesh.shape.items()))
    if key not in codes:
        split = split_of(ir, proved(ir), dict(zip(operands, specs, strict=True)), mesh.shape)
        codes[key] = split, _on_device(chosen, split)
    split, runs = codes[key]
    return over_mesh(split, mesh, runs)(arrays)


def _on_device(chosen: Chosen, split: Splits) -> tuple[Run, ...]:
    """The kernels that one device runs; a config is one for the author's loops."""
    stages = (chosen.stages.replaced(s.local, s.ir is split.ir) for s in split.stages)
    return tuple(partial(call, _code(replace(chosen, stages=own))) for own in stages)


def _spread(chosen: Chosen, codes: MutableMapping[Any, Any], *arrays: Any) -> tuple[Any, ...]:
    """The results where XLA decides what is sharded; `codes` keeps what one device runs."""
    ir = chosen.stages.ir

    def local(split: Splits) -> tuple[Run, ...]:
        key = (tuple(stage.axes for stage in split.stages), tuple(split.stages[0].sizes.items()))
        if key not in codes:
            codes[key] = _on_device(chosen, split)
        return codes[key]

    whole = partial(call, _code(chosen))
    return over_auto_axes(ir, proved(ir), operands_of(ir), names_of(ir), whole, local)(*arrays)


def _each(
    chosen: Chosen, element: Stages, names: Collection[str]
) -> Callable[[str, str | None], Generated]:
    """The code of a batch by that of one element, run for one after the other."""
    one, whole = element.ir, chosen.stages.ir
    own = [len(s) > len(o) for (s, _), (o, _) in zip(results_of(whole), results_of(one))]
    flags = [name in names for name in operands_of(one)]
    code = _code(replace(chosen, stages=element))
    return lambda platform, kind: one_by_one(code.generated(platform, kind), flags, own)


def results_of(ir: KernelIR) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and dtype of each of them."""
    tensors = map(ir.tensor, names_of(ir))
    return tuple((t.shape, "int32" if t.dtype == "int64" else t.dtype) for t in tensors)
