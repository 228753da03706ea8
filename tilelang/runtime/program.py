"""program(code) -> Callable: a kernel, jitted, for any place in JAX.

Eager calls, jit, scan, cond, vmap, eval_shape, export, shard_map and reverse-mode differentiation
all work; forward mode raises an error that names the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from ..errors import CallError
from .jax_compat import (
    cpu_device,
    default_platform,
    is_traced,
    sharded_axes,
    traced_for,
    traced_on_tpu,
)
from .jax_gradient import Resolve, differentiable
from .primitive import Code
from .primitive import call as call_kernel


@dataclass(frozen=True)
class Device:
    """Where generated code runs: `kind` and `cores` of the TPU that it was planned for.

    interpret  what `pallas_call` gets: True runs on any device, slowly; False needs the TPU
    present    this process has such a TPU, so that tracing needs no stand-in
    """

    kind: str
    cores: int
    interpret: Any
    present: bool


def generated(function: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """The generated host function as JAX traces it for a device; a function of arrays alone."""

    def traced(*arrays: Any) -> Any:
        with traced_on_tpu() if device.present else traced_for(device.kind, device.cores):
            return function(*arrays, interpret=device.interpret)

    return traced


def program(code: Code, operands: tuple[str, ...], resolve: Resolve) -> Callable[..., Any]:
    """The jitted host function; it takes the tensor parameters in order.

    `resolve` gives the gradient for those that want one; it is asked when JAX differentiates.

    The layers, innermost first: the kernel as one operation; `sequential_vmap`, because a batched
    `emit_pipeline` is silently wrong or refused on a chip; the derivative rule.  The jit is
    outermost, so none of them costs anything per call.
    """
    name, single = code.name, len(code.results) == 1

    def traced(*arrays: Any) -> Any:
        for operand, array in zip(operands, arrays, strict=True):
            _refuse_sharded(name, operand, array)
        results = call_kernel(code, arrays)
        return results[0] if single else results

    batched = jax.custom_batching.sequential_vmap(traced)

    def run(*arrays: Any) -> Any:
        return batched(*arrays)

    run.__name__ = run.__qualname__ = name
    call = differentiable(name, operands, run, single, resolve)
    call.__name__ = call.__qualname__ = name
    return jax.jit(call)


def at_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """Runs at the call, also in the midst of a trace: for values and results that are all there."""

    def call(*arrays: Any) -> Any:
        results = run(*arrays)
        if not is_traced(results[0] if isinstance(results, tuple) and results else results):
            return results
        with jax.ensure_compile_time_eval():
            return run(*arrays)

    return call


def on_cpu(run: Callable[..., Any]) -> Callable[..., Any]:
    """Runs on the CPU what has no device of its own, on a machine where JAX prefers another."""
    if default_platform() == "cpu":
        return run
    device = cpu_device()

    def call(*arrays: Any) -> Any:
        with jax.default_device(device):
            return run(*arrays)

    return call


def _refuse_sharded(name: str, operand: str, array: Any) -> None:
    axes = sharded_axes(array)
    if axes:
        raise CallError(
            f"{operand} of kernel {name} is sharded over mesh axis {', '.join(axes)}",
            hint="call the kernel inside jax.shard_map, which gives it one shard at a time",
        )
