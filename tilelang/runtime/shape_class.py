"""ShapeClass: calls that one choice is made for.

Lengths that ragged loops go along differ from batch to batch; they count as the next power of two.
Everything else (other dimensions, dtypes, static arguments) counts as it is:

    x[1000, 512] with offsets[9]     "x: bfloat16[<=1024, 512], offsets: int32[9]"
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..analysis.facts import Facts
from ..ir import KernelIR, TensorSpec
from ..schedule.problem import Problem


@dataclass(frozen=True)
class ShapeClass:
    """A text that says which calls belong to it, and the shapes of the largest of them."""

    text: str
    shapes: Mapping[str, tuple[int, ...]]

    def largest(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the largest call of the class."""
        return {
            name: replace(value, shape=self.shapes[name])
            if isinstance(value, TensorSpec)
            else value
            for name, value in specs.items()
        }


def class_of(ir: KernelIR, facts: Facts, exact: bool = False) -> ShapeClass:
    """The class of the call that a kernel was parsed for; `exact`: of it alone."""
    lengths = frozenset() if exact else _lengths(ir, facts)
    shown, shapes = [], dict[str, tuple[int, ...]]()
    for param in ir.params:
        if param.tensor is None:
            shown.append(f"{param.name}={_shown(param.static)}")
            continue
        tensor = ir.tensor(param.tensor)
        sizes = [_rounded(s, (tensor.name, d) in lengths) for d, s in enumerate(tensor.shape)]
        shapes[param.name] = tuple(size for size, _ in sizes)
        texts = (f"<={size}" if loose else str(size) for size, loose in sizes)
        shown.append(f"{param.name}: {tensor.dtype}[{', '.join(texts)}]")
    return ShapeClass(", ".join(shown), shapes)


def _lengths(ir: KernelIR, facts: Facts) -> frozenset[tuple[str, int]]:
    """The dimensions of arguments that ragged tiles are cut from."""
    problem = Problem(ir, facts)
    ragged = [a.name for a in ir.axes if a.kind == "tile" and facts.axis(a.name).ragged]
    return frozenset((u.tensor, u.dim) for name in ragged for u in problem.uses(name))


def _rounded(size: int, loose: bool) -> tuple[int, bool]:
    return (1 << (size - 1).bit_length() if size > 1 else 1, True) if loose else (size, False)


def _shown(value: object) -> str:
    """The same on every machine: no address of an object."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    named = getattr(value, "__qualname__", None)
    text = repr(value) if named is None else named
    return type(value).__qualname__ if " at 0x" in text else text


def digest(ir: KernelIR) -> str:
    """Another one for every kernel that does something else; where it is written does not count."""
    return hashlib.sha256(str(ir).encode()).hexdigest()[:16]
