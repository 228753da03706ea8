"""One kernel, one framework, one batch: how much it computes, how right, in what time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import tilelang as tile

from .batches import Lengths

REPEATS = 5


@dataclass(frozen=True)
class Framework:
    """How arrays get in and out; `ready` waits for a result and gives it as NumPy."""

    name: str
    array: Callable[[np.ndarray], Any]
    ready: Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class Task:
    """A kernel with its NumPy arguments, what they must give, and the lengths that matter.

    `ragged` is how many of the kernel's loop dimensions run along a group: 1 for rows, 2 for
    scores of queries against keys.
    """

    title: str
    kernel: tile.Kernel
    arguments: tuple[np.ndarray, ...]
    expected: np.ndarray
    offsets: np.ndarray
    ragged: int
    unit: str


@dataclass(frozen=True)
class Run:
    """What one task did in one framework.  Counts are in units of the task, times in seconds."""

    task: Task
    framework: str
    lengths: Lengths
    useful: int
    computed: int
    padded: int
    error: float
    first: float
    repeat: float


FRAMEWORKS = (
    Framework("torch", torch.from_numpy, lambda y: y.numpy()),
    Framework("JAX", jnp.asarray, lambda y: np.asarray(jax.block_until_ready(y))),
)


def run(task: Task, framework: Framework) -> Run:
    """Calls the kernel once, then REPEATS times, and compares the first result."""
    arguments = tuple(framework.array(a) for a in task.arguments)
    first, result = _timed(lambda: framework.ready(task.kernel(*arguments)))
    times = [_timed(lambda: framework.ready(task.kernel(*arguments)))[0] for _ in range(REPEATS)]
    lengths = Lengths.of(task.offsets)
    return Run(
        task=task,
        framework=framework.name,
        lengths=lengths,
        useful=sum(n**task.ragged for n in lengths.sizes),
        computed=computed(task.offsets, ragged_blocks(task.kernel, task.arguments)),
        padded=len(lengths.sizes) * max(lengths.sizes, default=0) ** task.ragged,
        error=relative_error(result, task.expected),
        first=first,
        repeat=float(np.median(times)),
    )


def ragged_blocks(kernel: tile.Kernel, arguments: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The block size of every tile axis whose range the data decide, outermost first."""
    lowered = kernel.lower(*arguments)
    ragged = [axis.name for axis in lowered.facts.axes if axis.ragged]
    launch = lowered.plan.launches[0]
    return tuple(b for name in ragged if (b := launch.axis(name).block) is not None)


def computed(offsets: np.ndarray, blocks: Sequence[int]) -> int:
    """What the kernel computes: all lanes of every tile that a group touches.

    Tiles are cut from the array at multiples of the block, wherever the groups begin.
    """
    total = np.ones(max(len(offsets) - 1, 0), np.int64)
    for block in blocks:
        tiles = -(-offsets[1:] // block) - offsets[:-1] // block
        total *= np.where(np.diff(offsets) > 0, tiles * block, 0)
    return int(total.sum())


def relative_error(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest expected value; 0 for no values at all."""
    if result.shape != expected.shape:
        raise ValueError(f"the kernel gave shape {result.shape}, expected {expected.shape}")
    if not expected.size:
        return 0.0
    largest = float(np.abs(expected).max()) or 1.0
    return float(np.abs(result.astype(np.float64) - expected).max()) / largest


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value
