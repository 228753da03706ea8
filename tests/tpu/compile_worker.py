"""Compiles example kernels with the real TPU compiler, on a machine without a TPU.

    python -m tests.tpu.compile_worker GENERATION MODULE...

Prints one line of JSON per kernel and case.  Run in a process of its own: libtpu may abort it.
"""

from __future__ import annotations

import os

os.environ.update(
    JAX_PLATFORMS="cpu",
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v5litepod-4",
    TPU_WORKER_HOSTNAMES="localhost",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # else one process at a time may compile
    TPU_STDERR_LOG_LEVEL="3",
    TPU_MIN_LOG_LEVEL="3",
)

import importlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding

import tilelang as tile

TOPOLOGY = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "7x": "tpu7x:2x2x1"}


def kernels(module: Any) -> Iterator[tuple[str, tile.Kernel, tuple]]:
    """Every kernel of an example with each of its cases."""
    for name, value in vars(module).items():
        if isinstance(value, tile.Kernel):
            cases = module.BIAS_CASES if "bias" in name else module.CASES
            for case in cases:
                yield name, value, case


def compile_one(kernel: tile.Kernel, case: tuple, generation: str, device: Any) -> dict[str, Any]:
    """Compiles one kernel for one generation; the temporaries are what XLA adds around it."""
    lowered = kernel.lower(*case, target=f"tpu:{generation}")
    sharding = SingleDeviceSharding(device)
    operands = [
        jax.ShapeDtypeStruct(
            t.shape, "int32" if t.dtype == "int64" else t.dtype, sharding=sharding
        )
        for t in lowered.ir.tensors
        if t.role == "input"
    ]
    chip = AbstractDevice(
        platform="tpu", device_kind=device.device_kind, num_cores=device.num_cores
    )
    start = time.perf_counter()
    with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=chip)):
        compiled = jax.jit(lowered.source.load()).lower(*operands).compile()
    memory = compiled.memory_analysis()
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "temp": memory.temp_size_in_bytes,
        "vmem": max((launch.memory.vmem for launch in lowered.plan.launches), default=0),
    }


def shown(case: tuple) -> str:
    """The case in a line: shapes and static arguments."""
    parts = [
        f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else repr(a) for a in case
    ]
    return ", ".join(parts)


def main() -> None:
    generation, *modules = sys.argv[1:]
    description = topologies.get_topology_desc(
        platform="tpu", topology_name=TOPOLOGY[generation]
    )
    device = description.devices[0]
    for module_name in modules:
        for name, kernel, case in kernels(importlib.import_module(module_name)):
            row: dict[str, Any] = {"kernel": f"{module_name}:{name}", "case": shown(case)}
            try:
                row |= compile_one(kernel, case, generation, device)
            except Exception as error:  # reported row by row; the test asserts that none has one
                text = " ".join(str(error).split())
                row["error"] = f"{type(error).__name__}: {text[:400]}"
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
