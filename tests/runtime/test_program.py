"""Generated code in every place where JAX may trace it, on a machine without a TPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AxisType, PartitionSpec

from tests.runtime.pipeline import expected, numbered
from tilelang.errors import CallError
from tilelang.runtime.primitive import Code
from tilelang.runtime.program import Device, generated, one_by_one, program

KIND = "TPU v5 lite"
X = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
OFFSETS = np.array([0, 5, 20, 32], np.int32)


def made(name, results, run, effectful=False) -> Code:
    """Code that is the same on every platform, and batched one element after the other."""

    def batched(flags, size):
        larger = tuple(((size, *shape), dtype) for shape, dtype in results)
        each = one_by_one(run, flags, [True] * len(results))
        return made(name, larger, each, effectful)

    return Code(name, results, lambda platform, kind: run, effectful, batched)


class Traces:
    """The hand-written kernel, counting how often it is traced."""

    def __init__(self, interpret: bool | pltpu.InterpretParams = True):
        self.count = 0
        run = generated(self.host, Device(KIND, 1, interpret, present=False))
        effectful = isinstance(interpret, pltpu.InterpretParams)
        results = ((X.shape, "float32"),)
        self.run = program(made("numbered", results, run, effectful))

    def host(self, x, offsets, *, interpret):
        self.count += 1
        return numbered(x, offsets, interpret=interpret)


@pytest.fixture(scope="module")
def traces():
    return Traces()


def scanned(run, x, offsets):
    return jax.lax.scan(lambda carry, _: (run(x, offsets), None), x, None, length=2)[0]


def chosen(run, x, offsets):
    return jax.lax.cond(offsets[0] == 0, lambda: run(x, offsets), lambda: x)


PLACES = {
    "eager": lambda run: run,
    "jit": jax.jit,
    "scan": lambda run: lambda x, o: scanned(run, x, o),
    "cond": lambda run: jax.jit(lambda x, o: chosen(run, x, o)),
    "checkpoint": jax.checkpoint,
    "compiled ahead of time": lambda run: lambda x, o: jax.jit(run).lower(x, o).compile()(x, o),
    "numpy": lambda run: lambda x, o: run(np.asarray(x), np.asarray(o)),
}


@pytest.mark.parametrize("wide", [False, True], ids=["x32", "x64"])
@pytest.mark.parametrize("place", PLACES)
def test_right_everywhere(traces, place, wide):
    x, offsets = jnp.asarray(X), jnp.asarray(OFFSETS)
    with jax.enable_x64(wide):
        result = PLACES[place](traces.run)(x, offsets)
    assert result.dtype == jnp.float32
    np.testing.assert_array_equal(result, expected(X, OFFSETS))


def test_shapes_and_jaxprs(traces):
    shapes = jax.ShapeDtypeStruct(X.shape, X.dtype), jax.ShapeDtypeStruct(OFFSETS.shape, jnp.int32)
    assert jax.eval_shape(traces.run, *shapes).shape == X.shape
    assert "numbered" in str(jax.make_jaxpr(traces.run)(*shapes))


def test_one_trace_serves_every_place():
    traces = Traces()
    x, offsets = jnp.asarray(X), jnp.asarray(OFFSETS)
    for place in ("eager", "jit", "scan", "eager", "numpy", "cond", "eager"):
        PLACES[place](traces.run)(x, offsets)
    assert traces.count == 1


@pytest.mark.parametrize("wide", [False, True], ids=["x32", "x64"])
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, None)])
def test_vmap(traces, axes, wide):
    other = np.array([0, 32, 32, 32], np.int32)
    xs = np.stack([X, 2 * X], axes[0]) if axes[0] is not None else X
    offsets = np.stack([OFFSETS, other]) if axes[1] is not None else OFFSETS
    with jax.enable_x64(wide):
        result = jax.vmap(traces.run, axes)(jnp.asarray(xs), jnp.asarray(offsets))
    for n in range(2):
        x = xs if axes[0] is None else np.take(xs, n, axes[0])
        o = offsets if axes[1] is None else offsets[n]
        np.testing.assert_array_equal(result[n], expected(x, o))


def test_vmap_of_vmap(traces):
    xs = np.stack([X, 2 * X, 3 * X])
    offsets = np.stack([OFFSETS, OFFSETS])
    run = jax.jit(jax.vmap(jax.vmap(traces.run, (0, None)), (None, 0)))
    result = run(jnp.asarray(xs), jnp.asarray(offsets))
    np.testing.assert_array_equal(result[1, 2], expected(xs[2], OFFSETS))


def total(run):
    return lambda x: run(x, jnp.asarray(OFFSETS)).sum()


DERIVATIVES = {
    "grad": lambda run: jax.grad(total(run))(X),
    "grad of jit": lambda run: jax.grad(jax.jit(total(run)))(X),
    "jit of grad": lambda run: jax.jit(jax.grad(total(run)))(X),
    "jvp": lambda run: jax.jvp(total(run), (X,), (X,)),
    "vjp": lambda run: jax.vjp(total(run), X),
    "linearize": lambda run: jax.linearize(total(run), X),
    "grad of vmap": lambda run: jax.grad(lambda x: jax.vmap(total(run))(x).sum())(X[None]),
}


@pytest.mark.parametrize("how", DERIVATIVES)
def test_derivatives_are_refused(traces, how):
    with pytest.raises(CallError) as caught:
        DERIVATIVES[how](traces.run)
    assert str(caught.value) == (
        "kernel numbered has no backward yet\n"
        "  hint: use jax.lax.stop_gradient on its inputs, if no gradient is needed"
    )


def test_gradients_around_a_kernel(traces):
    """Only a gradient *through* it is missing."""
    y = traces.run(jnp.asarray(X), jnp.asarray(OFFSETS))
    grad = jax.grad(lambda v: (traces.run(jax.lax.stop_gradient(X), OFFSETS) * v).sum())(
        jnp.ones_like(y)
    )
    np.testing.assert_array_equal(grad, y)


@pytest.mark.parametrize("options", [{}, {"detect_races": True}], ids=["tpu", "races"])
def test_the_tpu_interpreter(options):
    run = Traces(interpret=pltpu.InterpretParams(**options)).run
    np.testing.assert_array_equal(run(X, OFFSETS), expected(X, OFFSETS))


def test_lowering_for_a_tpu_that_is_not_there():
    run = Traces(interpret=False).run
    lowered = jax.jit(run).trace(X, OFFSETS).lower(lowering_platforms=("tpu",))
    assert "tpu_custom_call" in lowered.as_text()


def test_shard_map(traces):
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    rows, all_of_it = PartitionSpec(None, "d"), PartitionSpec()
    run = jax.shard_map(
        traces.run, mesh=mesh, in_specs=(rows, all_of_it), out_specs=rows, check_vma=False
    )
    np.testing.assert_array_equal(run(X, OFFSETS), expected(X, OFFSETS))
