"""What a call costs: from source to the first result, and every later call.

    python -m benchmarks.call_overhead [--rounds N]

A later call is compared with the bare call of the same generated function under `jax.jit`, which
is the least that any wrapper can cost.  The kernel is small on purpose, so that the wrapper shows.
A call for a GPU is compared with the bare launch of what Triton compiled and what makes the output,
on the stand-in for the driver of `tests.gpu.on_stub`, where Triton is installed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from examples.jagged.grouped_gemm import grouped_gemm
from tilelang.runtime.jax_compat import traced_for

ROWS, WIDTH, GROUPS = 64, 32, 4


@dataclass(frozen=True)
class Cost:
    """Seconds of one way to call: median and minimum over the rounds."""

    name: str
    median: float
    least: float


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A small grouped GEMM: rows, weights, offsets."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH), np.float32)
    w = rng.standard_normal((GROUPS, WIDTH, WIDTH), np.float32)
    return x, w, np.array([0, 10, 10, 40, 60], np.int32)


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(calls: Mapping[str, Callable[[], Any]], rounds: int) -> list[Cost]:
    """Times the calls in turn, so that a busy moment hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return [Cost(n, statistics.median(t), min(t)) for n, t in times.items()]


def raw_call(arrays: tuple[jax.Array, ...]) -> Callable[[], Any]:
    """The generated host function under `jax.jit`, called without the wrapper."""
    lowered = grouped_gemm.lower(*arrays)
    function, target = lowered.source.load(), lowered.target

    @jax.jit
    def bare(*given: jax.Array) -> Any:
        with traced_for(target.device_kind, target.cores):
            return function(*given, interpret=True)

    return lambda: jax.block_until_ready(bare(*arrays))


def on_gpu() -> dict[str, dict[str, float]]:
    """Microseconds of a call for a GPU and of its parts, by how arrays are indexed."""
    if find_spec("triton") is None or shutil.which("gcc") is None:
        return {}
    command = [sys.executable, "-m", "tests.gpu.on_stub", "--time"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])["times"]


def print_on_gpu() -> None:
    """A line for each way to index."""
    print("\nlater calls for a GPU, up to a stand-in for the driver, best of 40 runs of 500:")
    for indexing, us in on_gpu().items():
        over = us["call"] - us["launch"] - us["output"]
        print(
            f"  {indexing:<12} call {us['call']:5.2f} us = Triton's bare launch {us['launch']:.2f} "
            f"+ output {us['output']:.2f} + {over:.2f}"
        )


def main() -> None:
    """Prints the first calls, the later calls, and their ratios to the bare call."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.call_overhead")
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    given = inputs()
    tensors = tuple(torch.from_numpy(a) for a in given)
    arrays = tuple(jnp.asarray(a) for a in given)
    jitted = jax.jit(grouped_gemm)
    raw = raw_call(arrays)
    calls = {
        "bare jit of the generated function": raw,
        "JAX, eager": lambda: jax.block_until_ready(grouped_gemm(*arrays)),
        "JAX, inside jax.jit": lambda: jax.block_until_ready(jitted(*arrays)),
        "torch": lambda: grouped_gemm(*tensors),
    }
    print("first call, in this order, so that later ones find what earlier ones made:")
    for name, call in {**calls, "bare again": raw}.items():
        print(f"  {name:<36} {seconds(call) * 1e3:10.1f} ms")
    costs = interleaved(calls, rounds)
    least = costs[0]
    print(f"\nlater calls, {rounds} rounds:{'median':>25}{'min':>12}{'to bare':>10}")
    for cost in costs:
        ratio = cost.median / least.median
        times = f"{cost.median * 1e6:9.1f} us {cost.least * 1e6:8.1f} us"
        print(f"  {cost.name:<36} {times} {ratio:8.2f}x")
    print_on_gpu()


if __name__ == "__main__":
    main()
