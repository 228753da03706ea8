"""Elementwise primitives: what each means, in NumPy.  Narrow floats arrive here as float32.

Most are NumPy's own functions: `NUMPY` has those of another name there, `DOCS` says what they do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

Array = np.ndarray

NUMPY: Mapping[str, str] = {
    "neg": "negative",
    "round": "rint",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "floordiv": "floor_divide",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "shift_left": "left_shift",
    "shift_right": "right_shift",
}

DOCS: Mapping[str, str] = {
    "neg": """Minus x.
    >>> hl.neg(np.float32([1, -2]))
    array([-1.,  2.], dtype=float32)""",
    "abs": """The distance from zero.
    >>> hl.abs(np.int32([-3, 4]))
    array([3, 4], dtype=int32)""",
    "exp": """e to the power x.
    >>> hl.exp(np.float32([0, -np.inf]))
    array([1., 0.], dtype=float32)""",
    "exp2": """2 to the power x.
    >>> hl.exp2(np.float32([3, -1]))
    array([8. , 0.5], dtype=float32)""",
    "log": """The natural logarithm.
    >>> hl.log(np.float32([1, 0]))
    array([  0., -inf], dtype=float32)""",
    "log1p": """log(1 + x), exact for small x.
    >>> hl.log1p(np.float32([0, 1e-10]))
    array([0.e+00, 1.e-10], dtype=float32)""",
    "log2": """The logarithm to base 2.
    >>> hl.log2(np.float32([8, 0.5]))
    array([ 3., -1.], dtype=float32)""",
    "sqrt": """The square root.
    >>> hl.sqrt(np.float32([9, 0.25]))
    array([3. , 0.5], dtype=float32)""",
    "sin": """The sine of an angle in radians.
    >>> hl.sin(np.float32([0]))
    array([0.], dtype=float32)""",
    "cos": """The cosine of an angle in radians.
    >>> hl.cos(np.float32([0]))
    array([1.], dtype=float32)""",
    "tanh": """The hyperbolic tangent.
    >>> hl.tanh(np.float32([0, 50]))
    array([0., 1.], dtype=float32)""",
    "floor": """The largest whole number that is not above x.
    >>> hl.floor(np.float32([1.5, -1.5]))
    array([ 1., -2.], dtype=float32)""",
    "ceil": """The smallest whole number that is not below x.
    >>> hl.ceil(np.float32([1.5, -1.5]))
    array([ 2., -1.], dtype=float32)""",
    "round": """The nearest whole number; halves go to the even one.
    >>> hl.round(np.float32([0.5, 1.5, 2.6]))
    array([0., 2., 3.], dtype=float32)""",
    "trunc": """x without its fraction.
    >>> hl.trunc(np.float32([1.7, -1.7]))
    array([ 1., -1.], dtype=float32)""",
    "sign": """-1, 0 or 1.
    >>> hl.sign(np.int32([-7, 0, 7]))
    array([-1,  0,  1], dtype=int32)""",
    "isnan": """True where x is not a number.
    >>> hl.isnan(np.float32([np.nan, np.inf, 0]))
    array([ True, False, False])""",
    "isfinite": """True where x is neither infinite nor NaN.
    >>> hl.isfinite(np.float32([np.nan, np.inf, 0]))
    array([False, False,  True])""",
    "logical_not": """True where x is False.
    >>> hl.logical_not(np.array([True, False]))
    array([False,  True])""",
    "add": """x + y.
    >>> hl.add(np.float32([1, 2]), 1)
    array([2., 3.], dtype=float32)""",
    "sub": """x - y.
    >>> hl.sub(np.int32([1, 2]), 1)
    array([0, 1], dtype=int32)""",
    "mul": """x * y.
    >>> hl.mul(np.float32([1, 2]), 3)
    array([3., 6.], dtype=float32)""",
    "div": """x / y; integers are divided as float32.
    >>> hl.div(np.int32([1, 3]), 2)
    array([0.5, 1.5], dtype=float32)""",
    "floordiv": """floor(x / y).
    >>> hl.floordiv(np.int32([7, -7]), 2)
    array([ 3, -4], dtype=int32)""",
    "mod": """x - floor(x / y) * y: the remainder has the sign of y.
    >>> hl.mod(np.int32([7, -7]), 4)
    array([3, 1], dtype=int32)""",
    "minimum": """The smaller of both; NaN wins.
    >>> hl.minimum(np.float32([1, 5]), 3)
    array([1., 3.], dtype=float32)""",
    "maximum": """The larger of both; NaN wins.
    >>> hl.maximum(np.float32([1, 5]), 3)
    array([3., 5.], dtype=float32)""",
    "eq": """x == y.
    >>> hl.eq(np.int32([1, 2]), 2)
    array([False,  True])""",
    "ne": """x != y.
    >>> hl.ne(np.int32([1, 2]), 2)
    array([ True, False])""",
    "lt": """x < y.
    >>> hl.lt(np.int32([1, 2]), 2)
    array([ True, False])""",
    "le": """x <= y.
    >>> hl.le(np.int32([1, 3]), 2)
    array([ True, False])""",
    "gt": """x > y.
    >>> hl.gt(np.int32([1, 3]), 2)
    array([False,  True])""",
    "ge": """x >= y.
    >>> hl.ge(np.int32([1, 2]), 2)
    array([False,  True])""",
    "logical_and": """True where both are; numbers count as true unless zero.
    >>> hl.logical_and(np.array([True, True]), np.array([True, False]))
    array([ True, False])""",
    "logical_or": """True where either is.
    >>> hl.logical_or(np.array([False, True]), np.array([False, False]))
    array([False,  True])""",
    "logical_xor": """True where exactly one is.
    >>> hl.logical_xor(np.array([True, True]), np.array([True, False]))
    array([False,  True])""",
    "bitwise_and": """The bits that both integers have; of bools, logical_and.
    >>> hl.bitwise_and(np.int32([6]), 3)
    array([2], dtype=int32)""",
    "bitwise_or": """The bits that either integer has; of bools, logical_or.
    >>> hl.bitwise_or(np.int32([6]), 3)
    array([7], dtype=int32)""",
    "bitwise_xor": """The bits that exactly one integer has; of bools, logical_xor.
    >>> hl.bitwise_xor(np.int32([6]), 3)
    array([5], dtype=int32)""",
    "shift_left": """x * 2**y, for integers.
    >>> hl.shift_left(np.int32([3]), 2)
    array([12], dtype=int32)""",
    "shift_right": """floor(x / 2**y), for integers.
    >>> hl.shift_right(np.int32([-5]), 1)
    array([-3], dtype=int32)""",
    "where": """x where the condition holds, else y.
    >>> hl.where(np.array([True, False]), np.float32([1, 2]), 0.0)
    array([1., 0.], dtype=float32)""",
}


def rsqrt(x: Array) -> Array:
    """One over the square root.

    >>> hl.rsqrt(np.float32([4, 0.25]))
    array([0.5, 2. ], dtype=float32)
    """
    return np.reciprocal(np.sqrt(x))


def erf(x: Array) -> Array:
    """The error function.

    >>> hl.erf(np.float32([0, 9]))
    array([0., 1.], dtype=float32)
    """
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)).

    >>> hl.sigmoid(np.float32([0, -200]))
    array([0.5, 0. ], dtype=float32)
    """
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def silu(x: Array) -> Array:
    """x * sigmoid(x), also called swish.

    >>> hl.silu(np.float32([0, 50]))
    array([ 0., 50.], dtype=float32)
    """
    return x * sigmoid(x)


def gelu_tanh(x: Array) -> Array:
    """GELU by its tanh approximation: jax.nn.gelu, torch's gelu(approximate="tanh").

    >>> hl.gelu(np.float32([0, 9]), approximate=True)
    array([0., 9.], dtype=float32)
    """
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def gelu_erf(x: Array) -> Array:
    """x times the normal distribution function: torch's gelu, jax.nn.gelu(approximate=False).

    >>> hl.gelu(np.float32([0, 9]), approximate=False)
    array([0., 9.], dtype=float32)
    """
    return np.float32(0.5) * x * (1 + erf(x * np.float32(math.sqrt(0.5))))


def relu(x: Array) -> Array:
    """max(x, 0); NaN stays NaN.

    >>> hl.relu(np.float32([-1, 2]))
    array([0., 2.], dtype=float32)
    """
    return np.maximum(x, 0)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow.

    >>> hl.softplus(np.float32([-200, 200]))
    array([  0., 200.], dtype=float32)
    """
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def detach(x: Array) -> Array:
    """x, through which no gradient passes.

    >>> hl.detach(np.float32([1, -2]))
    array([ 1., -2.], dtype=float32)
    """
    return x


def pow(x: Array, y: Array) -> Array:
    """x to the power y; an integer to a negative power is unspecified.

    >>> hl.pow(np.float32([2, 3]), 2)
    array([4., 9.], dtype=float32)
    """
    return np.power(x, y if y.dtype.kind == "f" else np.maximum(y, 0))


def cast(x: Array, dtype: np.dtype) -> Array:
    """x in another dtype; floats lose their fraction on the way to integers.

    >>> hl.cast(np.float32([1.7, -1.7]), hl.int32)
    array([ 1, -1], dtype=int32)
    """
    return x != 0 if dtype == np.bool_ else x.astype(dtype)
