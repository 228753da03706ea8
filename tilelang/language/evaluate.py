"""evaluate: what an expression is worth, in NumPy, at the precision of its dtypes.

Floats of 16 bits or less are computed in float32 and rounded to their dtype after each op; a dot
accumulates in float32, or int32.  This is what a primitive means, for every back end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir import Apply, Const, Expr, Var
from .dtypes import is_narrow, to_numpy
from .op import OPS

Array = np.ndarray
Shape = tuple[int, ...]
Attrs = tuple[tuple[str, object], ...]

_NEEDS_SHAPE = frozenset(("reshape", "broadcast", "full", "arange"))


def compute(op: str, args: tuple[Array, ...], dtype: str, shape: Shape, attrs: Attrs) -> Array:
    """A primitive applied to arrays; the result has that dtype and that shape."""
    target = to_numpy(dtype)
    keywords: dict[str, Any] = dict(attrs)
    if op in _NEEDS_SHAPE:
        keywords["shape"] = shape
    if op == "cast":
        keywords["dtype"] = target
        return np.asarray(OPS[op].reference(*(_to_cast(a, target) for a in args), **keywords))
    moved = OPS[op].kind == "shape"
    operands = args if moved else tuple(_widened(a, op) for a in args)
    return np.asarray(OPS[op].reference(*operands, **keywords)).astype(target, copy=False)


def _widened(array: Array, op: str) -> Array:
    """The operand in the dtype that the op computes in."""
    if is_narrow(array.dtype.name):
        return array.astype(np.float32)
    if op == "dot" and array.dtype.kind in "iu":
        return array.astype(np.int32)
    return array


def _to_cast(array: Array, target: np.dtype) -> Array:
    """Through float32, since ml_dtypes cannot convert every pair directly."""
    narrow = is_narrow(array.dtype.name)
    return array.astype(np.float32) if narrow and array.dtype != target else array


def evaluate(expr: Expr, values: Mapping[str, Array]) -> Array:
    """An expression of static shapes over named arrays."""
    match expr:
        case Const(value):
            return np.asarray(value, to_numpy(expr.type.dtype))
        case Var(name):
            return values[name]
        case Apply(op, args):
            operands = tuple(evaluate(a, values) for a in args)
            shape = tuple(int(d) for d in expr.type.shape)
            return compute(op, operands, expr.type.dtype, shape, expr.attrs)
        case _:
            raise TypeError(f"{type(expr).__name__} has no value outside of a kernel")
