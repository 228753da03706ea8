"""What a kernel becomes is decided where it is lowered for, never by the host's default backend.

Lowered here, on a CPU: nothing is compiled by the TPU's compiler and nothing runs on a chip.
"""

from __future__ import annotations

import itertools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding, PartitionSpec

import tilelang as tile
import tilelang.language as hl
from tests.frameworks import torch

X = np.random.default_rng(0).standard_normal((40, 128)).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 38], np.int32)
FACTOR = 2.0


def scaled(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * FACTOR
    return y


def ragged(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[tm, :] * 2.0
    return y


def into(x, y):
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * 2.0


def pair(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    s = hl.empty([x.shape[0]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :] * 2.0
        s[tm] = x[tm, :].sum(1)
    return y, s


def of_ragged():
    y = np.zeros_like(X)
    y[:38] = X[:38] * 2
    return y


def exported(call, *args, platforms=("tpu",)):
    return jax.export.export(jax.jit(call), platforms=platforms)(*args)


def mosaic(call, *args, platforms=("tpu",)):
    return exported(call, *args, platforms=platforms).mlir_module().count("tpu_custom_call")


def targets(kernel):
    """What the kernel was planned for so far."""
    return sorted(target.name for _, _, target in kernel._lowered)


CALLS = {
    "dense": (scaled, (X,)),
    "ragged": (ragged, (X, OFFSETS)),
    "two results": (pair, (X,)),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_platform_plans_when_it_is_lowered_for(case):
    fn, args = CALLS[case]
    kernel = tile.kernel(fn)
    assert jax.tree.leaves(jax.eval_shape(kernel, *args))[0].shape == X.shape
    assert targets(kernel) == []
    assert mosaic(kernel, *args) == 1
    assert targets(kernel) == ["tpu:v6e"]
    assert mosaic(kernel, *args, platforms=("cpu",)) == 0
    assert targets(kernel) == ["cpu", "tpu:v6e"]
    assert kernel.stats().compiles == 2


def test_one_module_for_both_platforms():
    kernel = tile.kernel(ragged)
    module = exported(lambda x, o: kernel(x + 0, o) + 0, X, OFFSETS, platforms=("cpu", "tpu"))
    assert module.mlir_module().count("tpu_custom_call") == 1
    np.testing.assert_allclose(module.call(X, OFFSETS), of_ragged(), rtol=1e-6)


@pytest.mark.parametrize("where", ["call", "decorator"])
def test_a_target_is_interpreted_on_the_cpu_and_compiled_for_the_tpu(where):
    kernel = tile.kernel(scaled, target="tpu:v5e" if where == "decorator" else None)
    options = {"target": "tpu:v5e"} if where == "call" else {}
    np.testing.assert_allclose(kernel(X, **options), X * 2)
    assert mosaic(lambda x: kernel(x, **options), X) == 1
    assert targets(kernel) == ["tpu:v5e"]


@pytest.mark.parametrize("kind", ["TPU v5 lite", "TPU v5e", "TPU v5"])
def test_an_abstract_device_says_which_tpu(kind):
    kernel = tile.kernel(scaled)
    device = AbstractDevice(device_kind=kind, num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
        assert mosaic(kernel, X) == 1
    assert targets(kernel) == ["tpu:v5p" if kind == "TPU v5" else "tpu:v5e"]


def test_devices_of_a_topology_say_which_tpu(monkeypatch):
    pytest.importorskip("libtpu")
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # tests beside this one load it, too
    topologies = pytest.importorskip("jax.experimental.topologies")
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    mesh = jax.sharding.Mesh(np.array(devices[:1]), ("d",))
    x = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, PartitionSpec()))
    kernel = tile.kernel(scaled)
    assert jax.jit(kernel).lower(x).as_text().count("tpu_custom_call") == 1
    assert targets(kernel) == ["tpu:v5e"]


def test_vmap_for_a_tpu():
    kernel = tile.kernel(ragged)
    xs = np.stack([X, X])
    assert mosaic(jax.vmap(kernel, (0, None)), xs, OFFSETS) == 1


def test_exact_windows_are_strict_on_the_cpu_only():
    """Their interpreter has effects, which JAX must hear of before it knows the platform."""
    config = tile.Config(windows="exact")

    def heads(x, offsets):
        y = hl.zeros(x.shape, dtype=x.dtype)
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                y[tm, :, :] = x[tm, :, :] * 2.0
        return y

    kernel = tile.kernel(heads, config=config)
    x = np.broadcast_to(X[:, None, :], (40, 8, 128)).copy()
    assert mosaic(kernel, x, OFFSETS) == 1
    result = jax.jit(lambda x, o: kernel(x, o) + 0)(x, OFFSETS)
    np.testing.assert_allclose(result[:, 3], of_ragged(), rtol=1e-6)


@pytest.mark.parametrize("named", ["config", "target"])
def test_cut_tiles_are_strict_on_the_cpu_only(named):
    """As whoever plans says: rows that are copied by number are a matter of the plan."""

    def earlier(x, offsets):
        y = hl.zeros_like(x)
        for g in hl.grid(offsets.shape[0] - 1):
            for t in hl.tile(offsets[g] + 3, offsets[g + 1], block_size=16):
                y[t, :] = x[t.index - 3, :] * 2.0
        return y

    kernel = tile.kernel(earlier, config=tile.Config(windows="cut"))
    options = {"target": "tpu:v6e"} if named == "target" else {}
    wanted = np.zeros_like(X)
    for begin, end in itertools.pairwise(OFFSETS):
        wanted[begin + 3 : end] = X[begin : max(end - 3, begin)] * 2
    assert kernel.lower(X, OFFSETS, **options).plan.varying
    results = [
        kernel(X, OFFSETS, **options),
        jax.jit(lambda x, o: kernel(x, o, **options) + 0)(X, OFFSETS),
        jax.vmap(lambda x: kernel(x, OFFSETS, **options))(X[None])[0],
    ]
    for result in results:
        np.testing.assert_array_equal(result, wanted)
    assert mosaic(kernel, X, OFFSETS) == 1


def test_what_was_traced_is_what_is_lowered(monkeypatch):
    """A captured value that changes in between belongs to the next trace."""
    kernel = tile.kernel(scaled)
    traced = jax.jit(lambda x: kernel(x)).trace(X)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    np.testing.assert_allclose(kernel(X), X * 5)
    np.testing.assert_allclose(traced.lower().compile()(X), X * 2)


REFUSED = {
    "rocm": (
        lambda: mosaic(tile.kernel(scaled), X, platforms=("rocm",)),
        "kernel scaled is lowered for platform 'rocm': this version has code for CPU, TPU and "
        "CUDA\n"
        "  hint: run the jit on the CPU, as under jax.default_device(jax.devices('cpu')[0])",
    ),
    "cpu and rocm": (
        lambda: mosaic(tile.kernel(scaled), X, platforms=("cpu", "rocm")),
        "kernel scaled is lowered for platform 'rocm': this version has code for CPU, TPU and "
        "CUDA\n"
        "  hint: run the jit on the CPU, as under jax.default_device(jax.devices('cpu')[0])",
    ),
    "compiled code in a jit on the CPU": (
        lambda: jax.jit(lambda x: tile.kernel(scaled, interpret=False)(x))(X),
        "scaled was made with interpret=False, and it would run on the CPU\n"
        "  hint: leave interpret out: the CPU interprets, the TPU runs compiled code",
    ),
    "the CPU's plan for a TPU": (
        lambda: mosaic(tile.kernel(scaled, target="cpu"), X),
        "scaled is planned for target 'cpu', and it would run on a TPU\n"
        "  hint: leave target out, or name the TPU: target='tpu:v6e'",
    ),
    "a NumPy array beside a tracer is stored to": (
        lambda: jax.jit(lambda x: tile.kernel(into)(x, X.copy()))(X),
        "into stores to y, a NumPy array, and x is traced by JAX: what to store is not known yet\n"
        "  hint: store to a new output, hl.empty(y.shape, ...), and return it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(tile.CallError) as caught:
        call()
    assert str(caught.value) == message


def test_interpreting_is_never_silent():
    """Only who asks for the interpreter gets it on a TPU."""
    assert mosaic(tile.kernel(scaled, interpret=True), X) == 0
    assert mosaic(tile.kernel(scaled, interpret=False), X) == 1


# ---------------------------------------------------------------- maps and meshes


@pytest.mark.parametrize("check", [True, False])
def test_shard_map(check):
    mesh, rows = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,)), PartitionSpec("d")
    kernel = tile.kernel(pair)
    run = jax.shard_map(kernel, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=check)
    np.testing.assert_allclose(run(X)[0], X * 2)


def test_shard_map_knows_that_shards_differ():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    specs = {"in_specs": PartitionSpec("d"), "out_specs": PartitionSpec()}
    with pytest.raises(ValueError, match="out_specs"):
        jax.shard_map(tile.kernel(scaled), mesh=mesh, **specs)(X)


def test_operands_that_vary_over_different_axes():
    mesh = jax.make_mesh((1, 1), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    specs = PartitionSpec("a"), PartitionSpec("b")
    both = PartitionSpec(("a", "b"))
    run = jax.shard_map(tile.kernel(ragged), mesh=mesh, in_specs=specs, out_specs=both)
    np.testing.assert_array_equal(run(X, OFFSETS), of_ragged())
    with pytest.raises(ValueError, match="out_specs"):
        jax.shard_map(tile.kernel(ragged), mesh=mesh, in_specs=specs, out_specs=specs[0])(
            X, OFFSETS
        )


def test_a_replicated_array_of_an_explicit_mesh():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(X, NamedSharding(mesh, PartitionSpec()))
    for place in (lambda run: run, jax.jit):
        np.testing.assert_allclose(place(tile.kernel(scaled))(x), X * 2)


# ---------------------------------------------------------------- in the midst of a trace


MAKE = {"numpy": np.array, "jax": jnp.array} | ({"torch": torch.tensor} if torch else {})


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_values_inside_of_a_trace(make):
    """A call on values is a call, whatever is being traced around it."""
    kernel, x, offsets = tile.kernel(ragged), make(X), make(OFFSETS)
    traced = jax.jit(lambda a: a + jnp.asarray(kernel(x, offsets)))
    np.testing.assert_allclose(traced(jnp.zeros_like(X)), of_ragged(), rtol=1e-6)


@pytest.mark.parametrize("make", [np.array, jnp.array], ids=["numpy", "jax"])
def test_stores_inside_of_a_trace(make):
    kernel, x, y = tile.kernel(into), make(X), np.zeros_like(X)
    jax.jit(lambda a: (kernel(x, y), a)[1])(jnp.zeros(3))
    np.testing.assert_allclose(y, X * 2)


@pytest.mark.parametrize(
    "options", [{}, {"interpret": pltpu.InterpretParams()}], ids=["", "strict"]
)
def test_without_jit(options):
    kernel = tile.kernel(ragged, **options)
    with jax.disable_jit():
        np.testing.assert_allclose(kernel(jnp.array(X), jnp.array(OFFSETS)), of_ragged(), rtol=1e-6)
        np.testing.assert_allclose(kernel(X, OFFSETS), of_ragged(), rtol=1e-6)


def test_vmap_without_jit():
    with jax.disable_jit():
        ys = jax.vmap(tile.kernel(ragged), (0, None))(jnp.stack([X, 2 * X]), jnp.array(OFFSETS))
    np.testing.assert_allclose(ys[1], 2 * of_ragged(), rtol=1e-6)
