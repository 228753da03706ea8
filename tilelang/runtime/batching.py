"""Batches of calls: the stages of a kernel with one more axis, and one call after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import KernelIR
from ..schedule.refusal import Refusal
from .lowering import Lowered, Target
from .tensors import home_of


@dataclass(frozen=True, eq=False)
class Stages:
    """A kernel whose later stages run when they are needed.

    planned  target -> the kernel planned for it, or why it is refused
    batched  (names, size) -> those of the kernel with a leading dimension on these parameters
    replaced (a kernel of the same parameters, whether its loops are the author's) -> its stages
    element  of a batch: the stages of one element, and which parameters have the dimension
    """

    ir: KernelIR
    planned: Callable[[Target], Lowered | Refusal]
    batched: Callable[[Collection[str], int], Stages]
    replaced: Callable[[KernelIR, bool], Stages]
    element: tuple[Stages, Collection[str]] | None = None


def each(call: Callable[..., Any], places: Collection[int]) -> Callable[[Sequence[Any]], Any]:
    """A launch for every element of a batch: that of one kernel is refused.

    `places` are those of the arguments with a leading dimension of elements.
    """

    def launch(values: Sequence[Any]) -> Any:
        count = len(values[min(places)])
        shared = [v for place, v in enumerate(values) if place not in places]
        return _together(
            [
                call([v[n] if place in places else v for place, v in enumerate(values)])
                for n in range(count)
            ],
            shared,
        )

    return launch


def _together(results: Sequence[Any], shared: Sequence[Any]) -> Any:
    """What the calls returned, in one array for each result; shared arguments are returned once."""
    first = results[0]
    if first is None or any(first is value for value in shared):
        return first
    if isinstance(first, tuple | list):
        return type(first)(_together(every, shared) for every in zip(*results, strict=True))
    match home_of(type(first)):
        case "torch":
            return sys.modules["torch"].stack(list(results))
        case "jax" | "traced":
            return sys.modules["jax"].numpy.stack(list(results))
        case _:
            return np.stack(list(results))
