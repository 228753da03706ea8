"""Where trials run and are timed: a process with JAX, or one with Triton and a GPU.

JaxBench  the generated Pallas, interpreted on the CPU, or on the TPU that is here
GpuBench  the generated Triton on the GPU that is here, as a call launches it; what keeps more in
          local memory than the default does is not run
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..aot import Gone, Worker
from ..aot.cuda import compile_for_cuda
from ..codegen.pallas.target import Target as TpuTarget
from ..codegen.triton.target import Target as GpuTarget
from ..errors import CallError
from ..runtime.bridge import narrowed
from ..runtime.lowering import Lowered, Target

ROUNDS = 10  # that a device is timed by JAX
JAX_WORKER = (sys.executable, "-P", "-m", "tilelang.autotune.worker")
GPU_WORKER = (sys.executable, "-P", "-m", "tilelang.autotune.gpu_worker")
STARTED = 120.0  # seconds that a process may take to say what GPU it sees


@dataclass(frozen=True)
class JaxBench:
    """`by` "model": everything is interpreted, and nothing is timed."""

    target: TpuTarget
    by: str
    command: Sequence[str] = JAX_WORKER
    packages = ("raggedtile", "jax", "jaxlib", "libtpu")

    def started(self) -> Worker:
        return Worker(self.command, pretend=self.by == "model")

    def request(self, lowered: Lowered) -> dict[str, Any]:
        """What a worker must know, but for the files of the cases."""
        return {
            "text": lowered.source.text,
            "entry": lowered.source.entry,
            "kind": self.target.device_kind,
            "cores": self.target.cores,
            "interpret": self.by == "model" or self.target.name == "cpu",
            "rounds": ROUNDS if self.by == "device" else 0,
        }

    def argument(self, name: str, array: np.ndarray) -> np.ndarray:
        """An argument as its text takes it."""
        return narrowed(name, array) if array.dtype == np.int64 else array

    def facts(self) -> Mapping[str, str]:
        """What figures depend on besides the target and the versions."""
        return {}


@dataclass(frozen=True)
class GpuBench:
    """`scratch` is a folder for what a worker is handed."""

    target: GpuTarget
    scratch: Path
    command: Sequence[str] = GPU_WORKER
    packages = ("raggedtile", "torch", "triton")

    def started(self) -> Worker:
        return Worker(self.command, pretend=False)

    def request(self, lowered: Lowered) -> dict[str, Any]:
        path = self.scratch / f"lowered_{lowered.source.digest}"
        path.write_bytes(pickle.dumps(lowered))
        return {"lowered": str(path)}

    def argument(self, name: str, array: np.ndarray) -> np.ndarray:
        return array

    def facts(self) -> Mapping[str, str]:
        """The GPU; CallError where there is none of the target."""
        return {"GPU": self._device}

    @functools.cached_property
    def _device(self) -> str:
        with self.started() as worker:
            try:
                found = worker.ask({}, STARTED)
            except Gone as ended:
                last = ended.said.splitlines()[-1:] or [f"its process ended with {ended.code}"]
                raise _no_gpu(self.target, last[0]) from None
        device, target = found["device"], found["target"]
        if not device:
            raise _no_gpu(self.target, "torch sees no GPU")
        if target not in (None, self.target.name):
            raise _no_gpu(self.target, f"{device} is {target or 'of no known target'}")
        return device


def spills(plans: Sequence[Lowered], timeout: float, compiler: Worker) -> int:
    """Bytes per thread of what registers of a GPU do not hold, in the worst program.

    Raises CompileError.  What is compiled here is in Triton's cache when it is run.
    """
    made = [compile_for_cuda(lowered, timeout=timeout, worker=compiler) for lowered in plans]
    return max((program.stack for each in made for program in each.programs), default=0)


Bench = JaxBench | GpuBench


def bench_of(target: Target, by: str, command: Sequence[str] | None, scratch: Path) -> Bench:
    """Where trials for a target run; CallError for what cannot be timed."""
    match target:
        case GpuTarget() if by == "device":
            return GpuBench(target, scratch, command or GPU_WORKER)
        case TpuTarget() if by == "device" or not target.interpreted:
            return JaxBench(target, by, command or JAX_WORKER)
        case _:
            raise CallError(
                f"nothing predicts times for {target}",
                hint="tune for a TPU, or by='device' where there is one: Kernel.configs lists the "
                "configs of every target",
            )


def _no_gpu(target: GpuTarget, why: str) -> CallError:
    return CallError(
        f"{target} cannot be timed here: {why}",
        hint="tune on a machine with that GPU, torch for CUDA and triton",
    )
