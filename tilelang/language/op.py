"""The table of primitives: everything that `Apply.op` may name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from . import elementwise, reduction, shaping
from .reduction import neutral

__all__ = [
    "COMBINED_BY", "ELEMENTWISE", "OPS", "REDUCED_BY", "REDUCTIONS", "SAME", "Op", "kind_of",
    "neutral",
]  # fmt: skip

Kind = Literal["elementwise", "reduce", "contract", "shape", "create"]
Cost = Literal["free", "cheap", "costly"]


@dataclass(frozen=True)
class Op:
    """A primitive: its name, its meaning in NumPy, and whether computing it again is cheap.

    `reference` takes the operands, then the attributes as keywords; an op of kind "create", and
    "reshape", "broadcast" and "cast", also take the shape or dtype of the result.  `doc` is the
    meaning in words, with an example.

    linear   op(a + b) is op(a) + op(b), of all operands at once
    exact    it rounds nothing, or as every machine does: two kernels compute the same bits
    same     its result has numbers of its operand, in other places or another shape
    """

    name: str
    kind: Kind
    reference: Callable[..., np.ndarray]
    cost: Cost
    doc: str
    linear: bool = False
    exact: bool = False
    same: bool = False

    @property
    def scales(self) -> bool:
        """Whether each number of the result is one of the operands' by a factor, or their sum."""
        return self.linear and self.kind in ("elementwise", "shape")


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_COSTLY = names(
    "exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid silu gelu_tanh gelu_erf softplus"
    " pow sum max min argmax argmin any all dot"
)
_FREE = names("detach expand_dims squeeze broadcast full arange")
_SAME = names("detach expand_dims squeeze transpose reshape broadcast narrow")
_LINEAR = _SAME | names("add sub neg cast concat sum")
_EXACT = _SAME | names(
    "cast neg abs relu maximum minimum max min where concat full arange floor ceil round trunc sign"
    " eq ne lt le gt ge isnan isfinite logical_and logical_or logical_xor logical_not any all"
    " argmax argmin bitwise_and bitwise_or bitwise_xor shift_left shift_right"
)


def _table(module: ModuleType, kind: Kind, names: str) -> dict[str, Op]:
    return {name: _op(module, kind, name) for name in names.split()}


def _op(module: ModuleType, kind: Kind, name: str) -> Op:
    """The primitive of that name: a function of the module, or else NumPy's own."""
    numpy_name = getattr(module, "NUMPY", {}).get(name, name)
    reference = vars(module).get(name) or getattr(np, numpy_name)
    cost: Cost = "costly" if name in _COSTLY else "free" if name in _FREE else "cheap"
    doc = documentation(module.DOCS.get(name), reference)
    facts = {"linear": name in _LINEAR, "exact": name in _EXACT, "same": name in _SAME}
    return Op(name, kind, reference, cost, doc, **facts)


def documentation(short: str | None, function: Callable[..., object]) -> str:
    """A docstring of a table, in which the example follows at once; or else that of a function."""
    if short is None:
        return inspect.getdoc(function) or ""
    meaning, _, example = inspect.cleandoc(short).partition("\n")
    return f"{meaning}\n\n{example}"


UNARY = (
    "neg abs exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid silu gelu_tanh gelu_erf"
    " relu softplus floor ceil round trunc sign isnan isfinite logical_not detach"
)
BINARY = (
    "add sub mul div floordiv mod pow minimum maximum eq ne lt le gt ge logical_and logical_or"
    " logical_xor bitwise_and bitwise_or bitwise_xor shift_left shift_right"
)
REDUCING = "sum max min argmax argmin any all"

OPS: dict[str, Op] = {
    **_table(elementwise, "elementwise", f"{UNARY} {BINARY} where cast"),
    **_table(reduction, "reduce", REDUCING),
    **_table(reduction, "contract", "dot"),
    **_table(shaping, "shape", "expand_dims squeeze transpose reshape broadcast concat narrow"),
    **_table(shaping, "create", "full arange"),
}
ELEMENTWISE = frozenset(name for name, op in OPS.items() if op.kind == "elementwise")
REDUCTIONS = frozenset(name for name, op in OPS.items() if op.kind == "reduce")
# Reduction -> what puts those of parts together, and the other way round.
COMBINED_BY = {"sum": "add", "max": "maximum", "min": "minimum"}
REDUCED_BY = {op: name for name, op in COMBINED_BY.items()}
# Operations of one operand that give its numbers in other places or another shape.
SAME = frozenset(name for name, op in OPS.items() if op.same)


def kind_of(op: str) -> Kind | Literal["other"]:
    """The kind of a primitive; "other" for what a back end's passes made, which no table has."""
    return OPS[op].kind if op in OPS else "other"
