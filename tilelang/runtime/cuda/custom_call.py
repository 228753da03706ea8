"""traced(plan, compiled) -> Callable: the launches of a plan as operations of JAX.

Each launch is a custom call of jaxlib's launcher.  A program's arguments are, as many as it has,
the operands and then the results.  So what a launch is the first to store to may be a result,
unless an argument behind it needs an operand; what it changes is an operand and, behind all
arguments, a result in the same memory.

    arguments   x, offsets, y, z        y has a fill, z has none
    operands    x, offsets, y           results   z, y: operand 2 and result 1 are one array
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...codegen.triton.plan.steps import every_step
from ...codegen.triton.plan.types import Launch, Plan, Result, Write
from .record import CompiledFunction, record

LAUNCHER = "triton_kernel_call_ffi"  # of jaxlib, on every machine with a GPU


@dataclass(frozen=True)
class Passed:
    """How the arguments of a launch reach it; `operands` and `made` are all of them, in order.

    made      results that nothing has a value of before
    changed   operands that are stored to
    """

    operands: tuple[str, ...]
    made: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def aliases(self) -> dict[int, int]:
        """Operand -> the result that is the same array."""
        first = len(self.made)
        return {self.operands.index(name): first + n for n, name in enumerate(self.changed)}


def passed(launch: Launch, valued: Collection[str]) -> Passed:
    """The operands and results of a launch, when these arrays have values."""
    stored = {s.access.tensor for s in every_step(launch.body) if isinstance(s, Write)}
    needs = [n for n, name in enumerate(launch.arguments) if name in valued or name not in stored]
    first = max(needs, default=-1) + 1
    operands, made = launch.arguments[:first], launch.arguments[first:]
    return Passed(operands, made, tuple(name for name in operands if name in stored))


def traced(plan: Plan, compiled: Sequence[CompiledFunction]) -> Callable[..., tuple[Any, ...]]:
    """A function of the operands for JAX to trace: the results, then arguments stored to."""
    records = [
        zlib.compress(record(program, plan.target.arch, launch.programs, len(launch.arguments)))
        for launch, program in zip(plan.launches, compiled, strict=True)
    ]
    inputs = [t for t in plan.ir.tensors if t.role == "input"]
    fills = {buffer.name: buffer.fill for buffer in plan.buffers}
    form = {t.name: _form(t.shape, t.dtype) for t in (*inputs, *plan.buffers)}

    def call(*operands: Any) -> tuple[Any, ...]:
        arrays = dict(zip([t.name for t in inputs], operands, strict=True))
        arrays |= {n: jnp.full_like(form[n], v) for n, v in fills.items() if v is not None}
        for launch, told in zip(plan.launches, records, strict=True):
            arrays |= _launched(launch, told, arrays, form)
        arrays |= {n: _empty(form[n]) for n in fills if n not in arrays}
        changed = [arrays[t.name] for t in inputs if t.mutated]
        return (*(_viewed(arrays[result.name], result) for result in plan.results), *changed)

    return call


def _launched(
    launch: Launch, told: bytes, arrays: Mapping[str, Any], form: Mapping[str, Any]
) -> dict[str, Any]:
    """The arrays that a launch stores to, after it."""
    how = passed(launch, arrays)
    names = (*how.made, *how.changed)
    call = jax.ffi.ffi_call(
        LAUNCHER,
        [form[name] for name in names],
        input_output_aliases=how.aliases,
        vmap_method="sequential",
    )
    given = [arrays[n] if n in arrays else _empty(form[n]) for n in how.operands]
    return dict(zip(names, call(*given, name=launch.name, opaque=told), strict=True))


def _form(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    """What JAX must know of an array; int64 is narrowed, as on every device."""
    return jax.ShapeDtypeStruct(shape, jnp.dtype("int32" if dtype == "int64" else dtype))


def _empty(form: jax.ShapeDtypeStruct) -> Any:
    return jax.lax.empty(form.shape, form.dtype)


def _viewed(array: Any, result: Result) -> Any:
    for how, sizes in result.views:
        array = array.reshape(sizes) if how == "reshape" else array.transpose(sizes)
    return array
