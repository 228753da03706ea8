"""CELLS: what is done with a kernel in JAX; each says what is wrong, or raises a refusal."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tests.citizens.question import Question, unlike

Ask = Callable[[Question], str]
Tensors = Sequence[Any]


def _given(q: Question, n: int = 0) -> tuple[Any, ...]:
    return tuple(map(jnp.asarray, q.calls[n]))


def _loss(q: Question, run: Callable[..., Tensors], tensors: Tensors) -> Callable[..., Any]:
    """(float tensors, cotangents) -> a number whose gradients are those that are wanted."""

    def loss(moved: Tensors, cotangents: Tensors) -> Any:
        own = list(tensors)
        for place, value in zip(q.floats, moved, strict=True):
            own[place] = value
        pairs = zip(run(*own), cotangents, strict=True)
        return sum((r * c).sum() for r, c in pairs)

    return loss


def _moved(q: Question, tensors: Tensors) -> tuple[Any, ...]:
    return tuple(tensors[n] for n in q.floats)


def _each_gradient(q: Question) -> Callable[..., Any]:
    """(all tensors, cotangents) -> the gradients of one call."""
    return lambda tensors, cotangents: jax.grad(_loss(q, q.call, tensors))(
        _moved(q, tensors), cotangents
    )


def _of_batch(found: Tensors, one: Tensors, other: Tensors) -> str:
    return unlike([a[0] for a in found], one) or unlike([a[1] for a in found], other)


# ---------------------------------------------------------------- one call


def jit(q: Question) -> str:
    run = jax.jit(q.call)
    return unlike(run(*_given(q)), q.results[0]) or unlike(run(*_given(q, 1)), q.results[1])


def eval_shape(q: Question) -> str:
    found = jax.eval_shape(q.call, *_given(q))
    real = [(np.shape(r), jnp.asarray(r).dtype) for r in jax.jit(q.call)(*_given(q))]
    shapes = [(f.shape, f.dtype) for f in found]
    return "" if shapes == real else f"{shapes}, and a call gives {real}"


def scan(q: Question) -> str:
    stacked = tuple(map(jnp.asarray, q.stacked))
    _, found = jax.lax.scan(lambda carry, each: (carry, q.call(*each)), 0, stacked)
    return _of_batch(found, *q.results)


def export(q: Question) -> str:
    """One program for a TPU and the CPU, written, read again and called here."""
    made = jax.export.export(jax.jit(q.call), platforms=["cpu", "tpu"])(*_given(q))
    kernels = made.mlir_module().count("tpu_custom_call")
    if importlib.util.find_spec("flatbuffers"):  # it is in the extra "dev"
        made = jax.export.deserialize(made.serialize())
    return unlike(made.call(*_given(q)), q.results[0]) or ("" if kernels else "no Mosaic call")


# ---------------------------------------------------------------- gradients


def grad(q: Question) -> str:
    found = jax.jit(_each_gradient(q))(_given(q), q.cotangents[0])
    return unlike(found, q.gradients[0])


def checkpoint(q: Question) -> str:
    def gradient(tensors: Tensors, cotangents: Tensors) -> Any:
        run = jax.checkpoint(q.call)
        return jax.grad(_loss(q, run, tensors))(_moved(q, tensors), cotangents)

    return unlike(jax.jit(gradient)(_given(q), q.cotangents[0]), q.gradients[0])


def vjp(q: Question) -> str:
    """What is pulled back twice."""
    tensors = _given(q)

    def call(*moved: Any) -> tuple[Any, ...]:
        own = list(tensors)
        for place, value in zip(q.floats, moved, strict=True):
            own[place] = value
        return q.call(*own)

    results, pull = jax.vjp(call, *_moved(q, tensors))
    cotangents = tuple(map(jnp.asarray, q.cotangents[0]))
    twice = pull(tuple(2 * c for c in cotangents))
    return (
        unlike(results, q.results[0])
        or unlike(pull(cotangents), q.gradients[0])
        or unlike([g / 2 for g in twice], q.gradients[0])
    )


def jvp(q: Question) -> str:
    moved = _moved(q, _given(q))
    loss = _loss(q, q.call, _given(q))
    jax.jvp(lambda *m: loss(m, q.cotangents[0]), moved, moved)
    return "a tangent, which nothing here compares"


# ---------------------------------------------------------------- many calls


def vmap(q: Question) -> str:
    return _of_batch(jax.jit(jax.vmap(q.call))(*q.stacked), *q.results)


def vmap_of_grad(q: Question) -> str:
    found = jax.jit(jax.vmap(_each_gradient(q)))(q.stacked, q.stacked_cotangents)
    return _of_batch(found, *q.gradients)


def grad_of_vmap(q: Question) -> str:
    def gradient(tensors: Tensors, cotangents: Tensors) -> Any:
        loss = _loss(q, jax.vmap(q.call), tensors)
        return jax.grad(loss)(_moved(q, tensors), cotangents)

    return _of_batch(jax.jit(gradient)(q.stacked, q.stacked_cotangents), *q.gradients)


# ---------------------------------------------------------------- many devices


def _mesh(kind: AxisType) -> Mesh:
    """Two devices, if there are two."""
    devices = np.array(jax.devices()[:2])
    return Mesh(devices, ("d",), axis_types=(kind,))


def shard_map(q: Question) -> str:
    """One of two calls on each device."""
    spec = PartitionSpec("d")

    def body(*shards: Any) -> Any:
        return jax.tree.map(lambda r: r[None], q.call(*(s[0] for s in shards)))

    mesh = _mesh(AxisType.Auto)
    if mesh.size < len(q.calls):
        body = jax.vmap(q.call)
    run = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
    return _of_batch(jax.jit(run)(*q.stacked), *q.results)


def grad_of_shard_map(q: Question) -> str:
    """The same call on every device; all but the first float argument are shared by them."""
    mesh, own = _mesh(AxisType.Auto), q.floats[0]
    specs = tuple(
        PartitionSpec("d") if n == own else PartitionSpec() for n in range(len(q.calls[0]))
    )
    given = list(_given(q))
    given[own] = jnp.stack([given[own]] * mesh.size)

    def body(*shards: Any) -> Any:
        there = [s[0] if n == own else s for n, s in enumerate(shards)]
        results = zip(q.call(*there), q.cotangents[0], strict=True)
        return jax.lax.psum(sum((r * c).sum() for r, c in results), "d")

    loss = jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    found = jax.jit(jax.grad(loss, q.floats))(*given)
    shared = [g / mesh.size for g in found[1:]]
    return unlike([found[0][0], *shared], q.gradients[0])


def explicit_mesh(q: Question) -> str:
    """The first dimension of the first argument over explicit axes."""
    mesh = _mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        return unlike(jax.jit(q.call)(*_spread(q, mesh)), q.results[0])


def auto_mesh(q: Question) -> str:
    """The same over Auto axes, where the compiler of JAX decides."""
    return unlike(jax.jit(q.call)(*_spread(q, _mesh(AxisType.Auto))), q.results[0])


def _spread(q: Question, mesh: Mesh) -> list[Any]:
    given = list(_given(q))
    dims = (n for n, size in enumerate(given[0].shape) if size % mesh.size == 0)
    first = PartitionSpec(*[None] * next(dims, 0), "d")
    specs = [first, *[PartitionSpec()] * (len(given) - 1)]
    pairs = zip(given, specs, strict=True)
    return [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in pairs]


CELLS: Mapping[str, Ask] = {
    "jit": jit,
    "eval_shape": eval_shape,
    "scan": scan,
    "export": export,
    "grad": grad,
    "checkpoint": checkpoint,
    "vjp": vjp,
    "jvp": jvp,
    "vmap": vmap,
    "vmap(grad)": vmap_of_grad,
    "grad(vmap)": grad_of_vmap,
    "shard_map": shard_map,
    "grad(shard_map)": grad_of_shard_map,
    "explicit mesh": explicit_mesh,
    "auto mesh": auto_mesh,
}
