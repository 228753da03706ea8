"""program(code) -> Callable: a kernel, jitted, for any place in JAX.

Eager calls, jit, scan, cond, vmap, eval_shape, export, shard_map and reverse-mode differentiation
all work; forward mode raises an error that names the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

import jax
from jax.core import Tracer

from .jax_compat import cpu_device, default_platform, sharded_axes, traced_for, traced_on_tpu
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

    The layers, innermost first: the kernel as one operation, which batches itself; the derivative
    rule.  The jit is outermost, so neither costs anything per call.
    """
    name, single = code.name, len(code.results) == 1

    def run(*arrays: Any) -> Any:
        if any(any(sharded_axes(array)) for array in arrays):
            assert code.sharded is not None, f"{name} was made without a way to split it"
            results = code.sharded(arrays)
        else:
            results = call_kernel(code, arrays)
        return results[0] if single else results

    run.__name__ = run.__qualname__ = name
    call = differentiable(name, operands, run, single, resolve)
    call.__name__ = call.__qualname__ = name
    named = [Parameter(operand, Parameter.POSITIONAL_ONLY) for operand in operands]
    vars(call)["__signature__"] = Signature(named)  # JAX's errors name arguments by it
    return jax.jit(call)


def one_by_one(
    element: Callable[..., Any], flags: Sequence[bool], own: Sequence[bool]
) -> Callable[..., tuple[Any, ...]]:
    """The generated code of one element, run for each: a loop of XLA around it.

    `flags` says which arguments have a leading dimension of elements, `own` which results do.
    """

    def call(*arrays: Any) -> tuple[Any, ...]:
        def one(batch: Sequence[Any]) -> tuple[Any, ...]:
            rest = iter(batch)
            given = [next(rest) if flag else a for a, flag in zip(arrays, flags, strict=True)]
            return tuple(jax.tree.leaves(element(*given)))

        results = jax.lax.map(one, [a for a, flag in zip(arrays, flags, strict=True) if flag])
        return tuple(r if each else r[0] for r, each in zip(results, own, strict=True))

    return call


def at_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """Runs at the call, also in the midst of a trace: for values and results that are all there."""

    def call(*arrays: Any) -> Any:
        results = run(*arrays)
        first = results[0] if type(results) is tuple and results else results
        if not isinstance(first, Tracer):
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
