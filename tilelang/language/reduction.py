"""Reductions over one axis: what each means, in NumPy, and where each starts.

An empty axis gives the neutral element, so that a masked lane can be filled with it.
"""

from __future__ import annotations

import builtins
import math

import numpy as np

from .dtypes import is_float, to_numpy

Array = np.ndarray


def sum(x: Array, axis: int, keepdim: bool) -> Array:
    """The sum along an axis.

    >>> hl.sum(np.float32([[1, 2], [3, 4]]), axis=1)
    array([3., 7.], dtype=float32)
    """
    return np.sum(x, axis=axis, keepdims=keepdim, dtype=x.dtype)


def max(x: Array, axis: int, keepdim: bool) -> Array:
    """The largest along an axis; NaN wins.

    >>> hl.max(np.float32([[1, 2], [3, 4]]), axis=0)
    array([3., 4.], dtype=float32)
    """
    return np.max(x, axis=axis, keepdims=keepdim, initial=neutral("max", x.dtype.name))


def min(x: Array, axis: int, keepdim: bool) -> Array:
    """The smallest along an axis; NaN wins.

    >>> hl.min(np.float32([[1, 2], [3, 4]]), axis=1)
    array([1., 3.], dtype=float32)
    """
    return np.min(x, axis=axis, keepdims=keepdim, initial=neutral("min", x.dtype.name))


def argmax(x: Array, axis: int, keepdim: bool) -> Array:
    """Where the largest is along an axis; of equal ones the first.  Counts from the tile's begin.

    >>> hl.argmax(np.float32([[1, 2], [4, 3]]), axis=1)
    array([1, 0], dtype=int32)
    """
    return np.argmax(x, axis=axis, keepdims=keepdim)


def argmin(x: Array, axis: int, keepdim: bool) -> Array:
    """Where the smallest is along an axis; of equal ones the first.  Counts from the tile's begin.

    >>> hl.argmin(np.float32([[1, 2], [4, 3]]), axis=1)
    array([0, 1], dtype=int32)
    """
    return np.argmin(x, axis=axis, keepdims=keepdim)


def any(x: Array, axis: int, keepdim: bool) -> Array:
    """True where any along an axis is.

    >>> hl.any(np.array([[True, False], [False, False]]), axis=1)
    array([ True, False])
    """
    return np.any(x, axis=axis, keepdims=keepdim)


def all(x: Array, axis: int, keepdim: bool) -> Array:
    """True where all along an axis are.

    >>> hl.all(np.array([[True, False], [True, True]]), axis=1)
    array([False,  True])
    """
    return np.all(x, axis=axis, keepdims=keepdim)


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
            return _extreme(dtype, -1)
        case "min" | "argmin":
            return _extreme(dtype, 1)
    raise ValueError(f"{op} is not a reduction")


def _extreme(dtype: str, sign: int) -> bool | int | float:
    """The largest (sign 1) or smallest (sign -1) value of a dtype."""
    if dtype == "bool":
        return sign > 0
    if dtype == "float8_e4m3fn":  # has no infinity
        return sign * 448.0
    if is_float(dtype):
        return sign * math.inf
    limits = np.iinfo(to_numpy(dtype))
    return builtins.int(limits.max if sign > 0 else limits.min)
