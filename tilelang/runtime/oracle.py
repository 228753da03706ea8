"""What the reference needs besides itself: checked inputs, returned results."""

from __future__ import annotations

from typing import Any

from ..analysis.facts import Facts
from ..ir import KernelIR
from .checks import compile_checks
from .pointwise import Arrays, array
from .results import structured


def verify(ir: KernelIR, facts: Facts, arrays: Arrays) -> None:
    """The checks that a call would make; RaggedValueError as there."""
    check = compile_checks(ir, facts)
    if check is not None:
        check.run(arrays)


def returned(ir: KernelIR, arrays: Arrays) -> Any:
    """The returned tensors; of a kernel that returns nothing, those it stores to."""
    if ir.structure != "none":
        return structured(ir.structure, [array(name, ir, arrays) for name in ir.returns])
    mutated = [arrays[t.name] for t in ir.tensors if t.mutated and t.role == "input"]
    return mutated[0] if len(mutated) == 1 else tuple(mutated)
