"""What the reference needs besides itself: checked inputs, the parallel axes, returned results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..analysis import analyze, refuse
from ..ir import KernelIR
from .checks import compile_checks
from .pointwise import array
from .results import structured


def verify(ir: KernelIR, arrays: Mapping[str, np.ndarray], checks: bool | None) -> None:
    """The checks that a call would make; ParseError and RaggedValueError as there."""
    facts = analyze(ir)
    refuse(ir, facts)
    check = None if checks is False else compile_checks(ir, facts.positions)
    if check is not None:
        check.run(arrays)


def parallel(ir: KernelIR) -> frozenset[str]:
    """The axes whose iterations may run in any order."""
    return frozenset(fact.name for fact in analyze(ir).axes if fact.kind == "parallel")


def returned(ir: KernelIR, arrays: Mapping[str, np.ndarray]) -> Any:
    """The returned tensors; of a kernel that returns nothing, those it stores to."""
    if ir.structure != "none":
        return structured(ir.structure, [array(name, ir, arrays) for name in ir.returns])
    mutated = [arrays[t.name] for t in ir.tensors if t.mutated and t.role == "input"]
    return mutated[0] if len(mutated) == 1 else tuple(mutated)
