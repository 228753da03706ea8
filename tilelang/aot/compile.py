"""compile_lowered(lowered): sends the generated module to a worker, reads its answer.

The worker gets text, never objects; libtpu and JAX, or Triton, are only imported there.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

from ..codegen.pallas.target import Target
from ..codegen.triton.target import Target as CudaTarget
from ..errors import CallError, CompileError
from ..runtime.lowering import Lowered, vmem_of
from .bundles import FLAGS
from .cuda import COMMAND, CudaCompiled, compile_for_cuda
from .process import Gone, Worker
from .report import Compiled, compiled
from .standing import Standing
from .translate import gone, refused

# Generation -> the smallest topology of it that can be compiled for; one core of it is used.
TOPOLOGIES = MappingProxyType(
    {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "7x": "tpu7x:2x2x1"}
)
GENERATIONS = tuple(TOPOLOGIES)
TIMEOUT = 120.0  # seconds


def compile_lowered(
    lowered: Lowered,
    *,
    timeout: float = TIMEOUT,
    schedule: bool = False,
    worker: Worker | None = None,
) -> Compiled | CudaCompiled:
    """Compiles one lowered kernel, in `worker` (of `worker_for`) or else in a worker of its own.

    Raises CompileError where the compiler refuses, dies, or needs more than `timeout` seconds (the
    start of an own worker included); a worker that was given has then ended.  `schedule` counts
    bundles; it needs an own worker, because libtpu reads where to dump to when it starts.
    """
    if isinstance(lowered.target, CudaTarget):
        require_compiler(lowered.target)
        if schedule:
            raise CallError(
                f"schedule counts the bundles of TPU programs, {lowered.target} has none"
            )
        return compile_for_cuda(lowered, timeout=timeout, worker=worker)
    target = lowered.target
    generation = generation_of(target)
    require_compiler(target)
    if schedule:
        assert worker is None, "bundles are counted in a worker of their own"
        with (
            tempfile.TemporaryDirectory() as folder,
            Worker(flags=FLAGS.format(folder=folder)) as own,
        ):
            request = request_of(lowered, generation, folder)
            return _ask(lowered, target, own, request, timeout)
    with Worker() if worker is None else nullcontext(worker) as using:
        return _ask(lowered, target, using, request_of(lowered, generation), timeout)


def worker_for(target: str) -> Worker:
    """A new worker that compiles for this target."""
    return Worker(COMMAND) if target.startswith("cuda:") else Worker()


def compile_standing(lowered: Lowered) -> Compiled | CudaCompiled:
    """As `compile_lowered`, for a GPU, in the worker that stays."""
    with standing_worker().lent() as worker:
        return compile_lowered(lowered, worker=worker)


@functools.cache
def standing_worker() -> Standing:
    """The worker that compiles for GPUs whenever JAX lowers a kernel in this process."""
    return Standing(lambda: Worker(COMMAND))


def generation_of(target: Target) -> str:
    """ "v6e" for "tpu:v6e"; CallError for what is no TPU."""
    kind, _, generation = target.name.partition(":")
    if kind != "tpu" or generation not in TOPOLOGIES:
        known = ", ".join(f"'tpu:{name}'" for name in TOPOLOGIES)
        raise CallError(f"{target} has no ahead-of-time compiler", hint=f"use one of {known}")
    return generation


def require_compiler(target: Target | CudaTarget) -> None:
    """CompileError where the compiler for a target is not installed."""
    needs, extra = (
        (("triton",), "triton") if isinstance(target, CudaTarget) else (("jax", "libtpu"), "tpu")
    )
    missing = [name for name in needs if not _installed(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise CompileError(
            f"compiling for {target} needs {' and '.join(missing)}, which {verb} not installed",
            hint=f"pip install 'raggedtile[{extra}]'",
        )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # whatever hides it: a finder, or None in sys.modules
        return False


def request_of(lowered: Lowered, generation: str, dump: str | None = None) -> dict[str, Any]:
    """What a worker is sent: text, names and numbers; int64 arrives narrowed, as in calls."""
    inputs = [tensor for tensor in lowered.ir.tensors if tensor.role == "input"]
    return {
        "text": lowered.source.text,
        "entry": lowered.source.entry,
        "operands": [[list(t.shape), "int32" if t.dtype == "int64" else t.dtype] for t in inputs],
        "topology": TOPOLOGIES[generation],
        "dump": dump,
        "serialize": True,
    }


def asked(
    lowered: Lowered, worker: Worker, request: Mapping[str, Any], timeout: float
) -> dict[str, Any]:
    """A worker's answer about a kernel; CompileError where it refuses, or ends."""
    try:
        reply = worker.ask(request, timeout)
    except Gone as ended:
        raise gone(lowered, ended, timeout) from None
    if "error" in reply:
        raise refused(lowered, reply["error"], reply["line"])
    return reply


def _ask(
    lowered: Lowered, target: Target, worker: Worker, request: dict[str, Any], timeout: float
) -> Compiled:
    reply = asked(lowered, worker, request, timeout)
    return compiled(
        reply,
        target,
        lowered.config,
        lowered.source.text,
        vmem_of(lowered.plan),
        base64.b64decode(reply["payload"]),
    )
