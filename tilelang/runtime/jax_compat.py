"""Every name of JAX that moved between releases or that we use against its grain, in one place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import jax
from jax._src import compiler, config, dispatch, xla_bridge
from jax.core import ShapedArray
from jax.sharding import (
    AbstractDevice,
    AbstractMesh,
    Mesh,
    PartitionSpec,
    get_abstract_mesh,
    use_abstract_mesh,
)

from ..errors import TileError


@contextmanager
def traced_for(device_kind: str, cores: int) -> Iterator[None]:
    """Traces Pallas TPU code as if a chip of that kind were there, in 32-bit mode.

    `emit_pipeline` asks for the TPU's tiling while it is traced and fails on a host without one; an
    abstract device answers.  x64 mode breaks even trivial Pallas kernels (index maps turn int64).
    Entered inside the traced function, so that it is in effect whoever traces (a user's jit, scan,
    vmap rule, eval_shape) and never enters JAX's cache keys: a call costs and retraces nothing.
    """
    device = AbstractDevice(device_kind=device_kind, num_cores=cores, platform="tpu")
    mesh = AbstractMesh((), (), abstract_device=device)
    with use_abstract_mesh(mesh), jax.enable_x64(False):
        yield


@contextmanager
def traced_on_tpu() -> Iterator[None]:
    """Traces Pallas TPU code on a host that has the TPU, in 32-bit mode."""
    with jax.enable_x64(False):
        yield


def sharding_of(array: object) -> Any:
    """How the type of an array says that it is sharded, over explicit axes; None if it cannot."""
    return getattr(jax.typeof(array), "sharding", None)


def sharded_axes(array: object) -> tuple[tuple[str, ...], ...]:
    """The explicit mesh axes that each dimension of a traced array is split over."""
    return axes_of(sharding_of(array), len(getattr(array, "shape", ())))


def axes_of(sharding: object, rank: int) -> tuple[tuple[str, ...], ...]:
    """The mesh axes that a sharding splits each dimension over."""
    spec = tuple(getattr(sharding, "spec", ()))
    entries = (*spec, *(None,) * (rank - len(spec)))
    return tuple(e if isinstance(e, tuple) else () if e is None else (e,) for e in entries)


def sharded_like(array: Any, sharding: Any) -> Any:
    """The array split over the explicit mesh axes of another's sharding, dimension by dimension."""
    axes = axes_of(sharding, array.ndim)
    if sharded_axes(array) == axes:
        return array
    # the mesh is named: jax.jit knows of none where the caller set none
    mesh = mesh_of([array]) if sharding.mesh.empty else sharding.mesh
    spec = PartitionSpec(*(names or None for names in axes))
    return jax.sharding.reshard(array, jax.sharding.NamedSharding(mesh, spec))


def mesh_of(arrays: Sequence[Any]) -> Any:
    """The mesh that sharded arrays are on."""
    meshes = (jax.typeof(array).sharding.mesh for array in arrays)
    return next(mesh for mesh in meshes if not mesh.empty)


def on_explicit_mesh(avals: Sequence[Any]) -> bool:
    """Whether types say how arrays are sharded, over every axis of their mesh."""
    meshes = [aval.sharding.mesh for aval in avals]
    return any(not m.empty and m.are_all_axes_explicit for m in meshes)


def abstract_kind() -> str | None:
    """The kind of TPU that the mesh in effect was made for without one: `AbstractDevice`."""
    device = getattr(get_abstract_mesh(), "abstract_device", None)
    return None if device is None or device.platform != "tpu" else device.device_kind


def lowered_kind(ctx: Any, platform: str) -> str | None:
    """`kind_of` the devices that are lowered for, where they are known; also of absent ones."""
    axes = ctx.module_context.axis_context
    mesh = getattr(axes, "mesh", None)
    devices = mesh.devices.flat if isinstance(mesh, Mesh) else None
    first = next(iter(devices or getattr(axes, "device_assignment", None) or ()), None)
    return None if first is None or lowered_name(first.platform) != platform else kind_of(first)


def kind_of(device: Any) -> str:
    """What is planned for differs by this: the kind of TPU, the compute capability of a GPU."""
    return device.compute_capability if device.platform == "gpu" else device.device_kind


def lowered_over(ctx: Any) -> Literal["one", "several", "absent"]:
    """How many devices a program is lowered for, each of which runs a part that XLA chooses.

    Inside of a `shard_map` it is one.  "absent" are several that JAX cannot ask how to split the
    program: those of an export, or of a topology that is only compiled for.
    """
    axes = ctx.module_context.axis_context
    devices = getattr(axes, "device_assignment", None) or ()
    if max(len(devices), getattr(axes, "num_devices", 1)) == 1:
        return "one"
    client = type(devices[0].client).__name__ if devices else ""
    return "several" if devices and not client.startswith("CompileOnly") else "absent"


def lowered_name(platform: str) -> str:
    """JAX calls a device "gpu" that it lowers for by the name of "cuda"."""
    return "cuda" if platform == "gpu" else platform


def needs_devices(primitive: Any) -> None:
    """Has JAX say which devices it lowers an operation for, where it knows: `lowered_kind`."""
    wanting = getattr(dispatch, "prim_requires_devices_during_lowering", None)
    if wanting is not None:
        wanting.add(primitive)


def varying_axes(aval: Any) -> frozenset[str]:
    """Mesh axes of a `shard_map` over which an array is known to differ (`check_vma=True`)."""
    return frozenset(aval.manual_axis_type.varying)


def varying_alike(arrays: Sequence[Any]) -> list[Any]:
    """The arrays as values that differ over every mesh axis that one of them differs over."""
    own = [varying_axes(jax.typeof(array)) for array in arrays]
    every = frozenset[str]().union(*own)
    return [
        jax.lax.pcast(array, tuple(sorted(every - axes)), to="varying") if every - axes else array
        for array, axes in zip(arrays, own, strict=True)
    ]


def result_avals(
    operands: Sequence[Any], results: Sequence[tuple[tuple[int, ...], str]]
) -> list[Any]:
    """Abstract arrays of these shapes and dtypes, on the mesh of the operands and varying alike."""
    if not operands:
        return [ShapedArray(shape, jax.numpy.dtype(dtype)) for shape, dtype in results]
    like = max(operands, key=lambda a: (len(varying_axes(a)), not a.sharding.mesh.empty))
    return [
        like.update(
            shape=shape,
            dtype=jax.numpy.dtype(dtype),
            weak_type=False,
            sharding=like.sharding.update(spec=PartitionSpec(*[None] * len(shape))),
        )
        for shape, dtype in results
    ]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Traces as if nothing were around it, whatever is in effect where JAX lowers.

    The checks of a `shard_map` concern its own operations; `disable_jit` and the constant folding
    of `ensure_compile_time_eval` would evaluate parts of what Pallas traces.
    """
    names = "_check_vma", "eager_constant_folding"
    states = [getattr(config, name) for name in names if hasattr(config, name)]
    with ExitStack() as stack:
        for state in (jax.disable_jit, *states):
            stack.enter_context(state(False))
        yield


_said = deque[TileError](maxlen=8)  # refusals that may be on their way through XLA


@contextmanager
def as_itself() -> Iterator[None]:
    """A refusal arrives as what it is, also where XLA asks while it compiles.

    XLA makes an error of its own of what is raised then, and that of its words.
    """
    try:
        yield
    except TileError as error:
        _said.append(error)
        raise


def _ours(error: Exception) -> TileError | None:
    """The refusal that an error of XLA's repeats."""
    words = str(error)
    return next((own.with_traceback(None) for own in reversed(_said) if str(own) in words), None)


if hasattr(compiler, "register_xla_runtime_error_handler"):
    compiler.register_xla_runtime_error_handler(_ours)


def default_platform() -> str:
    """The platform of JAX's default backend: "cpu", "tpu", "cuda"."""
    return lowered_name(jax.default_backend())


def has_begun() -> bool:
    """Whether JAX has started its backends, and threads with them."""
    return xla_bridge.backends_are_initialized()


def cpu_device() -> Any:
    """The first CPU device."""
    return jax.local_devices(backend="cpu")[0]
