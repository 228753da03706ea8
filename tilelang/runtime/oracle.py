"""What the reference needs besides itself: checked inputs, returned results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..analysis.facts import Facts
from ..errors import CallError
from ..ir import KernelIR
from .checks import compile_checks
from .pointwise import Arrays, array
from .results import structured


def verify(ir: KernelIR, facts: Facts, arrays: Arrays) -> None:
    """The checks that a call would make; RaggedValueError as there."""
    check = compile_checks(ir, facts)
    if check is not None:
        check.run(arrays)


def check_blocks(ir: KernelIR, blocks: Mapping[str, int]) -> None:
    """CallError for a block of no loop, or of no size."""
    known = {name for a in ir.axes for name in (a.name, a.user, a.block) if isinstance(name, str)}
    for name, size in blocks.items():
        if name not in known:
            what = f"reference has a block for {name!r}, but no loop of {ir.name} has that name"
            raise CallError(what, hint=f"loops: {', '.join(sorted(known)) or 'none'}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise CallError(f"the block of {name} is {size!r}", hint="it is an int, 1 or more")


def returned(ir: KernelIR, arrays: Arrays) -> Any:
    """The returned tensors; of a kernel that returns nothing, those it stores to."""
    if ir.structure != "none":
        return structured(ir.structure, [array(name, ir, arrays) for name in ir.returns])
    mutated = [arrays[t.name] for t in ir.tensors if t.mutated and t.role == "input"]
    return mutated[0] if len(mutated) == 1 else tuple(mutated)
