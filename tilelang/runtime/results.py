"""returned(ir, arrays) -> what the author's `return` would give, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import KernelIR


def structured(structure: str, values: Sequence[Any]) -> Any:
    """The values the way they were returned: one, a tuple, a list or nothing."""
    match structure:
        case "single":
            return values[0]
        case "tuple":
            return tuple(values)
        case "list":
            return list(values)
        case _:
            return None


def returned(ir: KernelIR, arrays: Mapping[str, np.ndarray]) -> Any:
    """The returned tensors; of a kernel that returns nothing, those it stores to."""
    if ir.structure != "none":
        return structured(ir.structure, [view_of(ir, name, arrays) for name in ir.returns])
    mutated = [arrays[t.name] for t in ir.tensors if t.mutated and t.role == "input"]
    return mutated[0] if len(mutated) == 1 else tuple(mutated)


def view_of(ir: KernelIR, name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """A tensor's values, through the views that it may be."""
    view = ir.tensor(name).view
    if name in arrays or view is None:
        return arrays[name]
    source = view_of(ir, view.source, arrays)
    return source.reshape(view.arg) if view.how == "reshape" else source.transpose(view.arg)
