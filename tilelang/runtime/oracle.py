"""What the reference needs besides itself: checked inputs, the parallel axes, returned results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..analysis.facts import Facts
from ..ir import KernelIR
from .checks import compile_checks
from .results import structured


def verify(
    ir: KernelIR, facts: Facts, arrays: Mapping[str, np.ndarray], checks: bool | None
) -> None:
    """The checks that a call would make; RaggedValueError as there."""
    check = None if checks is False else compile_checks(ir, facts.positions)
    if check is not None:
        check.run(arrays)


def parallel(facts: Facts) -> frozenset[str]:
    """The axes whose iterations may run in any order."""
    return frozenset(fact.name for fact in facts.axes if fact.kind == "parallel")


def returned(ir: KernelIR, arrays: Mapping[str, np.ndarray]) -> Any:
    """The returned tensors; of a kernel that returns nothing, those it stores to."""
    if ir.structure != "none":
        return structured(ir.structure, [_array(ir, name, arrays) for name in ir.returns])
    mutated = [arrays[t.name] for t in ir.tensors if t.mutated and t.role == "input"]
    return mutated[0] if len(mutated) == 1 else tuple(mutated)


def _array(ir: KernelIR, name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """A tensor's values, through the views that it may be."""
    view = ir.tensor(name).view
    if name in arrays or view is None:
        return arrays[name]
    source = _array(ir, view.source, arrays)
    return source.reshape(view.arg) if view.how == "reshape" else source.transpose(view.arg)
