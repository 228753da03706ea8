"""Reductions over one axis, and the dot: what each means, in NumPy, and where each starts.

An empty axis gives the neutral element, so that a masked lane can be filled with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from .dtypes import is_float, to_numpy

Array = np.ndarray
Pair = tuple[int, int]
Batch = tuple[tuple[int, ...], tuple[int, ...]]

DOCS: Mapping[str, str] = {
    "max": """The largest along an axis; NaN wins.
    >>> hl.max(np.float32([[1, 2], [3, 4]]), axis=0)
    array([3., 4.], dtype=float32)""",
    "min": """The smallest along an axis; NaN wins.
    >>> hl.min(np.float32([[1, 2], [3, 4]]), axis=1)
    array([1., 3.], dtype=float32)""",
    "argmax": """Where the largest along an axis is, from the tile's begin; the first of equals.
    >>> hl.argmax(np.float32([[1, 2], [4, 3]]), axis=1)
    array([1, 0], dtype=int32)""",
    "argmin": """Where the smallest along an axis is, from the tile's begin; the first of equals.
    >>> hl.argmin(np.float32([[1, 2], [4, 3]]), axis=1)
    array([0, 1], dtype=int32)""",
    "any": """True where any along an axis is.
    >>> hl.any(np.array([[True, False], [False, False]]), axis=1)
    array([ True, False])""",
    "all": """True where all along an axis are.
    >>> hl.all(np.array([[True, False], [True, True]]), axis=1)
    array([False,  True])""",
}


def sum(x: Array, axis: int, keepdim: bool) -> Array:
    """The sum along an axis.

    >>> hl.sum(np.float32([[1, 2], [3, 4]]), axis=1)
    array([3., 7.], dtype=float32)
    """
    return np.sum(x, axis=axis, keepdims=keepdim, dtype=x.dtype)


def _extreme(op: str) -> Callable[..., Array]:
    def reduced(x: Array, axis: int, keepdim: bool) -> Array:
        start = neutral(op, x.dtype.name)
        return getattr(np, op)(x, axis=axis, keepdims=keepdim, initial=start)

    return reduced


def _plain(op: Callable[..., Array]) -> Callable[..., Array]:
    def reduced(x: Array, axis: int, keepdim: bool) -> Array:
        return op(x, axis=axis, keepdims=keepdim)

    return reduced


max, min = _extreme("max"), _extreme("min")
argmax, argmin, any, all = (_plain(op) for op in (np.argmax, np.argmin, np.any, np.all))


def dot(a: Array, b: Array, contract: Pair, batch: Batch = ((), ())) -> Array:
    """Multiplies and sums over dimension contract[0] of a and contract[1] of b.

    The result has the batch dimensions, then the free ones of a, then the free ones of b.

    >>> hl.dot(np.float32([[1, 2]]), np.float32([[3], [4]]))
    array([[11.]], dtype=float32)
    """
    left = _free(a.ndim, contract[0], batch[0])
    right = _free(b.ndim, contract[1], batch[1])
    many = tuple(a.shape[d] for d in batch[0])
    rows, columns = tuple(a.shape[d] for d in left), tuple(b.shape[d] for d in right)
    length = a.shape[contract[0]]
    x = a.transpose((*batch[0], *left, contract[0])).reshape((*many, math.prod(rows), length))
    y = b.transpose((*batch[1], contract[1], *right)).reshape((*many, length, math.prod(columns)))
    return np.matmul(x, y).reshape((*many, *rows, *columns))


def _free(rank: int, contract: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != contract and d not in batch)


def neutral(op: str, dtype: str) -> bool | int | float:
    """The element that does not change the result of a reduction over values of `dtype`.

    >>> neutral("max", "float32"), neutral("min", "int8"), neutral("all", "bool")
    (-inf, 127, True)
    """
    match op:
        case "sum":
            return 0.0 if is_float(dtype) else 0
        case "any" | "all":
            return op == "all"
        case "max" | "argmax":
            return _limit(dtype, -1)
        case "min" | "argmin":
            return _limit(dtype, 1)
        case _:
            raise ValueError(f"{op} is not a reduction")


def _limit(dtype: str, sign: int) -> bool | int | float:
    """The largest (sign 1) or smallest (sign -1) value of a dtype."""
    if dtype == "bool":
        return sign > 0
    if dtype == "float8_e4m3fn":  # has no infinity
        return sign * 448.0
    if to_numpy(dtype).kind not in "iu":
        return sign * math.inf
    limits = np.iinfo(to_numpy(dtype))
    return int(limits.max if sign > 0 else limits.min)
