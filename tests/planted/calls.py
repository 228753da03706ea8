"""Bugs planted in what later calls leave out; tests/runtime/test_second_call.py must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilelang.reads import UNCHANGING
from tilelang.runtime import bridge, checks, later, launch, torch_kernel, torch_ops


@dataclass(frozen=True)
class Planted:
    """`value` instead of `owner.name`, and the test that shows it."""

    what: str
    owner: Any
    name: str
    value: Any
    test: str

    def __str__(self) -> str:
        return self.what


def _first_only(check: checks.Check, fetch: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Looks at the values of the first call."""
    done: list[bool] = []

    def verify(given: Any) -> None:
        if not done:
            check.run(dict(zip(check.reads, fetch(given), strict=True)))
            done.append(True)

    return verify


def _before(check: checks.Check, fetch: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Remembers what it is about to look at, right or wrong."""
    seen: list[Any] = []

    def verify(given: Any) -> None:
        held = [array.tobytes() for array in fetch(given)]
        if held not in seen:
            seen.append(held)
            check.run(dict(zip(check.reads, fetch(given), strict=True)))

    return verify


def _ungraded(tensors: Any) -> bool:
    return any(map(torch_ops.without_data, tensors))


def _unasked(tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _any_memory(name: str, dtype: str) -> Callable[[Any], Any]:
    return lambda tensor: tensor.detach().resolve_neg().numpy()


IN_PLACE = "test_offsets_that_changed_in_place_are_looked_at_again"
TOLD_APART = "test_tensors_that_share_shapes_with_earlier_ones_are_told_apart"
PLANTED = (
    Planted("offsets of the first call stand for all", launch, "verifying", _first_only, IN_PLACE),
    Planted("offsets are right once they were looked at", launch, "verifying", _before, IN_PLACE),
    Planted("every rule surely holds", checks, "_sure", lambda rule: lambda v: True, IN_PLACE),
    Planted("nobody wants a gradient", torch_kernel, "unusual", _ungraded, TOLD_APART),
    Planted("all memory holds what torch says", bridge, "torch_to_numpy", _any_memory, TOLD_APART),
    Planted("a subclass is a plain tensor", torch_kernel, "unusual", _unasked,
            "test_a_subclass_that_answers_itself_is_not_read_as_a_plain_tensor"),
    Planted("an array counts by identity", later, "UNCHANGING", UNCHANGING | {np.ndarray},
            "test_a_number_that_changes_in_its_place_is_read_again"),
)  # fmt: skip
