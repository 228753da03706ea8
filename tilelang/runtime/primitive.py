"""call(code, arrays): a kernel as one operation of JAX, whose code is made when it is lowered.

What JAX traces says nothing of the device: a jit, an export or a mesh of absent TPUs decides it
later.  So what is traced is one opaque operation, and each platform that it is lowered for plans,
prints and traces its own code then.  Nothing is planned for a platform that nobody lowers for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import batching, mlir

from ..errors import CallError
from .jax_compat import (
    abstract_kind,
    as_itself,
    lowered_kind,
    lowered_over,
    needs_devices,
    on_explicit_mesh,
    result_avals,
    sharded_axes,
    undisturbed,
)
from .traced import traced

Generated = Callable[..., Any]
Flags = tuple[bool, ...]  # of each operand: whether it has a leading dimension of elements
PLATFORMS = ("cpu", "tpu", "cuda")


@dataclass(frozen=True, eq=False)
class Code:
    """What a kernel does on each platform; each object is an operation of its own.

    results    shape and dtype of every result, the same on all platforms
    generated  (platform, `kind_of` its devices or None) -> the function to trace there
    effectful  the CPU's code has effects, which JAX must know of when it traces the operation
    batched    (which operands are batched, how many elements) -> the code for all elements
    sharded    the results for operands that are sharded over an explicit mesh
    spread     the call in a program of several devices: XLA splits it over their mesh
    traces     the code's jaxprs so far
    batches    the batched codes so far: each is one operation, wherever it is made
    """

    name: str
    results: tuple[tuple[tuple[int, ...], str], ...]
    generated: Callable[[str, str | None], Generated]
    effectful: bool = False
    batched: Callable[[Flags, int], Code] | None = None
    sharded: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
    spread: Callable[..., tuple[Any, ...]] | None = None
    traces: dict[Any, Any] = field(default_factory=dict)
    batches: dict[tuple[Flags, int], Code] = field(default_factory=dict)


def call(code: Code, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The results of the kernel, traced or computed like any operation of JAX."""
    return tuple(_kernel.bind(*arrays, code=code, kind=abstract_kind()))


_kernel = core.Primitive("tile_kernel")
_kernel.multiple_results = True
_compiled = jax.jit(_kernel.bind, static_argnames=("code", "kind"))


def _traced(code: Code, platform: str, kind: str | None, operands: Sequence[Any]) -> Any:
    """The jaxpr of the code for a platform: one trace serves every place that lowers it."""
    shapes = tuple((a.shape, a.dtype) for a in operands)
    key = (platform, kind, shapes)
    if key not in code.traces:
        arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
        with undisturbed():
            code.traces[key] = traced(code.generated(platform, kind), arrays, platform)
    return code.traces[key]


def _impl(*arrays: Any, code: Code, kind: str | None) -> Any:
    """One operation outside of every jit, as under jax.disable_jit(): compiled all the same.

    `jax.debug_nans` runs what gave a NaN again without its jit: that is this, which must not end in
    a jit that it asks the same of.
    """
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        results = _compiled(*arrays, code=code, kind=kind)
    for wrong, asked in ((jax.numpy.isnan, "jax_debug_nans"), (jax.numpy.isinf, "jax_debug_infs")):
        if getattr(jax.config, asked) and any(_any(wrong, r) for r in results):
            what = wrong.__name__.removeprefix("is")
            raise FloatingPointError(f"invalid value ({what}) encountered in kernel {code.name}")
    return results


def _any(wrong: Callable[[Any], Any], result: Any) -> bool:
    with jax.debug_nans(False), jax.debug_infs(False):
        return jax.numpy.issubdtype(result.dtype, jax.numpy.inexact) and bool(wrong(result).any())


def _abstract(*operands: Any, code: Code, kind: str | None) -> Any:
    effects = _traced(code, "cpu", kind, operands).effects if code.effectful else set()
    return result_avals(operands, code.results), effects


def _batch(
    arrays: Sequence[Any], dims: Sequence[int | None], *, code: Code, kind: str | None
) -> tuple[Sequence[Any], Sequence[int | None]]:
    """`jax.vmap` of the operation: the operation of the kernel with one more axis."""
    moved = [a if d is None else jax.numpy.moveaxis(a, d, 0) for a, d in zip(arrays, dims)]
    flags = tuple(d is not None for d in dims)
    size = next(a.shape[0] for a, batched in zip(moved, flags) if batched)
    if (flags, size) not in code.batches:
        assert code.batched is not None, f"{code.name} was made without a way to batch it"
        code.batches[flags, size] = code.batched(flags, size)
    whole = code.batches[flags, size]
    if whole.sharded is not None and any(any(sharded_axes(a)) for a in moved):
        results = whole.sharded(moved)  # the dimension of the elements may be what is sharded
    else:
        results = _kernel.bind(*moved, code=whole, kind=kind)
    return results, [
        0 if len(shape) > len(one) else None
        for (shape, _), (one, _) in zip(whole.results, code.results, strict=True)
    ]


def _lower(platform: str, ctx: Any, *operands: Any, code: Code, kind: str | None) -> Any:
    """Without the shardings of the arguments: the kernel's code sees whole arrays, or one shard."""
    spread, over = None if code.effectful else code.spread, lowered_over(ctx)
    if spread is not None and over != "one" and on_explicit_mesh(ctx.avals_in):
        sharded = code.sharded
        assert sharded is not None, f"{code.name} was made without a way to split it"
        with undisturbed():  # by their types they are whole on every device
            return mlir.lower_fun(lambda *arrays: sharded(arrays))(ctx, *operands)
    if spread is not None and over == "absent" and platform == "tpu":
        raise _unasked(code.name)
    if spread is not None and over == "several":
        with undisturbed():
            return mlir.lower_fun(spread)(ctx, *operands)
    asked = kind if platform == "tpu" else None  # an abstract mesh is one of TPUs
    with as_itself():  # this may be what one device runs, of which XLA asks while it compiles
        jaxpr = _traced(code, platform, lowered_kind(ctx, platform) or asked, ctx.avals_in)
    there = ctx.replace(platforms=[platform], avals_in=jaxpr.in_avals)
    with undisturbed():
        results = mlir.lower_fun(core.jaxpr_as_fun(jaxpr))(there, *operands)
    if there.tokens_out is not None:
        ctx.set_tokens_out(there.tokens_out)
    return results


def _unasked(kernel: str) -> CallError:
    return CallError(
        f"kernel {kernel} is compiled for several TPUs that are not there, over mesh axes of type "
        "Auto: JAX asks how to split it only where they are",
        hint="use axes of type jax.sharding.AxisType.Explicit, or call it inside jax.shard_map",
    )


def _refuse(ctx: Any, *operands: Any, code: Code, kind: str | None) -> Any:
    platforms = ctx.platforms or ctx.module_context.platforms
    others = ", ".join(repr(p) for p in platforms if p not in PLATFORMS)
    raise CallError(
        f"kernel {code.name} is lowered for platform {others}: "
        "this version has code for CPU, TPU and CUDA",
        hint="run the jit on the CPU, as under jax.default_device(jax.devices('cpu')[0])",
    )


needs_devices(_kernel)
_kernel.def_impl(_impl)
_kernel.def_effectful_abstract_eval(_abstract)
batching.primitive_batchers[_kernel] = _batch
mlir.register_lowering(_kernel, _refuse)
for _platform in PLATFORMS:
    mlir.register_lowering(_kernel, partial(_lower, _platform), platform=_platform)
