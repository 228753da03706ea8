"""The table of primitives: everything that `Apply.op` may name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from . import contraction, elementwise, reduction, shaping
from .reduction import neutral

__all__ = ["OPS", "Op", "neutral"]

Kind = Literal["elementwise", "reduce", "contract", "shape", "create"]
Cost = Literal["free", "cheap", "costly"]


@dataclass(frozen=True)
class Op:
    """A primitive: its name, its meaning in NumPy, and whether computing it again is cheap.

    `reference` takes the operands, then the attributes as keywords; an op of kind "create", and
    "reshape", "broadcast" and "cast", also take the shape or dtype of the result.
    """

    name: str
    kind: Kind
    reference: Callable[..., np.ndarray]
    cost: Cost

    @property
    def doc(self) -> str:
        """The meaning in words, with an example."""
        return inspect.getdoc(self.reference) or ""


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_COSTLY = names(
    "exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid silu gelu_tanh gelu_erf softplus"
    " pow sum max min argmax argmin any all dot"
)
_FREE = names("expand_dims squeeze broadcast full arange")


def _cost(name: str) -> Cost:
    if name in _COSTLY:
        return "costly"
    return "free" if name in _FREE else "cheap"


def _table(module: ModuleType, kind: Kind, names: str) -> dict[str, Op]:
    return {n: Op(n, kind, getattr(module, n), _cost(n)) for n in names.split()}


UNARY = (
    "neg abs exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid silu gelu_tanh gelu_erf"
    " relu softplus floor ceil round trunc sign isnan isfinite logical_not"
)
BINARY = (
    "add sub mul div floordiv mod pow minimum maximum eq ne lt le gt ge logical_and logical_or"
    " logical_xor bitwise_and bitwise_or bitwise_xor shift_left shift_right"
)
REDUCTIONS = "sum max min argmax argmin any all"

OPS: dict[str, Op] = {
    **_table(elementwise, "elementwise", f"{UNARY} {BINARY} where cast"),
    **_table(reduction, "reduce", REDUCTIONS),
    **_table(contraction, "contract", "dot"),
    **_table(shaping, "shape", "expand_dims squeeze transpose reshape broadcast concat"),
    **_table(shaping, "create", "full arange"),
}
