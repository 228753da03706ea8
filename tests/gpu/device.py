"""Kernels on an NVIDIA GPU, from NumPy arrays: what tests/gpu/interpreter.py is without one.

Memory that torch hands out is filled with NaN and large integers first: nothing may rely on what
it held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import tilelang as tile
from tests.frameworks import from_torch
from tests.subjects import Subject
from tilelang.codegen.source import Source
from tilelang.runtime.cuda.device import target_of

torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = True
DEVICE = torch.device("cuda", 0)
TARGET = target_of(DEVICE).name


def call(kernel: tile.Kernel, config: tile.Config | None, target: str = TARGET) -> Callable:
    """A call with tensors on the GPU, as a function of NumPy arrays and static values."""
    return partial(_called, partial(kernel, config=config, target=target))


def host(source: Source) -> Callable:
    """The function of a generated module, which Triton itself launches."""
    return partial(_called, source.load())


def _called(function: Callable, *args: Any) -> Any:
    return from_torch(function, args, device=DEVICE)


def small(subject: Subject, target: str = TARGET, **options: Any) -> Callable:
    """An example with blocks so small that small arguments have several tiles."""
    return call(subject.kernel, tile.Config(subject.blocks, **options), target)


@contextlib.contextmanager
def watched(seed: int) -> Iterator[list[str]]:
    """Nobody sees what a GPU does to memory, except for compute-sanitizer around the process."""
    yield []


def moved(array: np.ndarray, by: int = 1) -> torch.Tensor:
    """The array on the GPU, so many elements behind an aligned pointer."""
    whole = torch.zeros(array.size + by, dtype=torch.from_numpy(array).dtype, device=DEVICE)
    whole[by:] = torch.from_numpy(array).to(DEVICE).flatten()
    return whole[by:].view(array.shape)
