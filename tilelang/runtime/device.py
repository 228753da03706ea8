"""Where code runs: the platform of the arguments, the target to plan for, and how to trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax.experimental.pallas import tpu as pltpu

from ..codegen.pallas.target import TARGETS, Target
from ..codegen.triton.target import TARGETS as GPUS
from ..codegen.triton.target import Target as GpuTarget
from ..errors import CallError, PlanError
from .cuda.device import of_capability
from .jax_compat import default_platform, kind_of
from .launch import TensorArgument, refuse_shape
from .primitive import PLATFORMS
from .program import Device
from .tensors import Described

ALIASES = {"TPU v5e": "TPU v5 lite", "TPU v5p": "TPU v5", "TPU v6e": "TPU v6 lite"}
UNSEEN = "tpu:v6e"  # what "a TPU" means where no device, mesh or target= says which
UNSEEN_GPU = "cuda:sm90"
NAMES = {"cpu": "the CPU", "tpu": "a TPU", "cuda": "a GPU"}


def platform_of(described: Iterable[Described]) -> str:
    """ "tpu" or "cuda" if an argument is there, else "cpu".

    Traced arguments have no device: what they are lowered for decides, then (`code`).  To look at
    source or a plan inside a trace, the default backend stands for it.
    """
    devices = {default_platform() if d.home == "traced" else d.device for d in described}
    return next((p for p in ("tpu", "cuda") if p in devices), "cpu")


def refuse(kernel: str, operands: Sequence[TensorArgument]) -> None:
    """CallError for arguments without data, or on a device that kernels do not run on."""
    for operand in operands:
        refuse_shape(kernel, operand)
        device, spec = operand.described.device, operand.described.spec
        if spec.framework == "torch" and device in ("tpu", "xla"):
            raise CallError(
                f"{operand.name} is a torch tensor on device {device!r}: {kernel} takes those of "
                "the CPU and of GPUs",
                hint="with TorchTPU, make an operation of it: "
                f"tile.tpu_op('my::{kernel}', {kernel})"
                + ("; torch_xla is not supported" if device == "xla" else ""),
            )
        if device and device not in PLATFORMS:
            raise CallError(
                f"{operand.name} is on device {device!r}: this version runs kernels on CPU, "
                "TPU and CUDA",
                hint="move the arguments to the CPU",
            )


def target_of(platform: str, kind: str | None = None) -> Target | GpuTarget:
    """The target of a platform: of that kind of device, of this machine's, or else UNSEEN."""
    if platform == "cpu":
        return Target.of("cpu")
    if kind is None and default_platform() != platform:
        return GPUS[UNSEEN_GPU] if platform == "cuda" else Target.of(UNSEEN)
    kind = kind or kind_of(jax.devices("gpu" if platform == "cuda" else platform)[0])
    if platform == "cuda":
        return of_capability("the GPU", kind)
    kind = ALIASES.get(kind, kind)
    for known in TARGETS.values():
        if known.device_kind == kind and known.name != "cpu":
            return known
    raise PlanError(
        f"{kind} is not a known target",
        hint=f"give target=, one of {', '.join(map(repr, TARGETS))}",
    )


def refuse_compiled(kernel: str, platform: str, interpret: Any) -> None:
    """CallError for compiled code on the CPU, which has none."""
    if interpret is False and platform == "cpu":
        raise CallError(
            f"{kernel} was made with interpret=False, and it would run on the CPU",
            hint="leave interpret out: the CPU interprets, the TPU runs compiled code",
        )


def refuse_foreign(kernel: str, target: Target | GpuTarget, platform: str, interpret: Any) -> None:
    """CallError for a plan of the other family than the platform's, or an interpreter for a GPU."""
    gpu = platform == "cuda"
    if isinstance(target, GpuTarget) != gpu:
        named = "name the GPU: target='cuda:sm90'"
        lowered = "lower for a GPU: jax.jit(f).trace(...).lower(lowering_platforms=('cuda',))"
        raise CallError(
            f"{kernel} is planned for target {target.name!r}, and it would run on "
            f"{NAMES[platform]}",
            hint=f"leave target out, or {named if gpu else lowered}",
        )
    if gpu and interpret:
        raise CallError(
            f"{kernel} was made with interpret={interpret!r}, and it would run on a GPU",
            hint="leave interpret out: GPUs run compiled code",
        )


def device_of(kernel: str, target: Target, platform: str, interpret: Any, strict: bool) -> Device:
    """How to trace and run generated code; `interpret=None` interprets wherever it must.

    strict  only Pallas's TPU interpreter can run the code, which is slower by orders of magnitude
    """
    refuse_compiled(kernel, platform, interpret)
    chosen = platform != "tpu" if interpret is None else interpret
    if chosen is False and target.name == "cpu":
        raise CallError(
            f"{kernel} is planned for target 'cpu', and it would run on a TPU",
            hint="leave target out, or name the TPU: target='tpu:v6e'",
        )
    if strict and chosen is True:
        chosen = pltpu.InterpretParams()
    present = chosen is False and default_platform() == "tpu" and target == target_of("tpu")
    return Device(target.device_kind, target.cores, chosen, present)
