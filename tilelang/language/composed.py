"""Public ops that are made of primitives: each is its own definition.

op(loc, x, ...) -> Expr
"""

from __future__ import annotations

import math

from ..errors import TypingError
from ..ir import Expr
from .build import binary, cast, count, full, reduce, unary, where
from .dtypes import is_float, is_integer, is_narrow
from .shapes import squeeze
from .values import Site, Value, as_expr, called, many_axes

# ---------------------------------------------------------------- elementwise


def clamp(loc: Site, x: Value, min: Value | None = None, max: Value | None = None) -> Expr:
    """x, but at least `min` and at most `max`.

    >>> hl.clamp(np.float32([-3, 0.5, 3]), 0.0, 1.0)
    array([0. , 0.5, 1. ], dtype=float32)
    """
    if min is None and max is None:
        raise TypingError("clamp needs a min, a max or both", loc)
    value = as_expr(x, loc)
    value = value if min is None else binary("maximum", value, min, loc)
    return value if max is None else binary("minimum", value, max, loc)


def fma(loc: Site, x: Value, y: Value, z: Value) -> Expr:
    """x * y + z.

    >>> hl.fma(np.float32([1, 2]), 10.0, 0.5)
    array([10.5, 20.5], dtype=float32)
    """
    return binary("add", binary("mul", x, y, loc), z, loc)


def square(loc: Site, x: Value) -> Expr:
    """x * x.

    >>> hl.square(np.float32([3]))
    array([9.], dtype=float32)
    """
    return binary("pow", x, 2, loc)


def cdiv(loc: Site, x: Value, y: Value) -> Expr:
    """How many times y it takes to hold x: the quotient of integers, rounded up.

    >>> hl.cdiv(np.int32([0, 16, 17]), 16)
    array([0, 1, 2], dtype=int32)
    """
    for value in (as_expr(x, loc), as_expr(y, loc)):
        if not is_integer(value.type.dtype):
            raise TypingError(f"cdiv of {value.type.dtype}", loc, "it counts, and takes integers")
    most = binary("sub", y, 1, loc)
    return binary("floordiv", binary("add", x, most, loc), y, loc)


def reciprocal(loc: Site, x: Value) -> Expr:
    """1 / x.

    >>> hl.reciprocal(np.float32([4]))
    array([0.25], dtype=float32)
    """
    return binary("div", 1.0, x, loc)


def expm1(loc: Site, x: Value) -> Expr:
    """exp(x) - 1, to full precision around 0: tanh(x / 2) * (exp(x) + 1).

    >>> hl.expm1(np.float32([-40, 0]))
    array([-1.,  0.], dtype=float32)
    """
    half = unary("tanh", binary("mul", x, 0.5, loc), loc)
    return binary("mul", half, binary("add", unary("exp", x, loc), 1, loc), loc)


def elu(loc: Site, x: Value, alpha: Value = 1.0) -> Expr:
    """x where it is positive, else alpha * (exp(x) - 1).

    >>> hl.elu(np.float32([-90, 2]), 0.5)
    array([-0.5,  2. ], dtype=float32)
    """
    below = binary("mul", expm1(loc, binary("minimum", x, 0, loc)), alpha, loc)
    return where(binary("gt", x, 0, loc), x, below, loc)


def hard_sigmoid(loc: Site, x: Value) -> Expr:
    """x / 6 + 1 / 2, between 0 and 1.

    >>> hl.hard_sigmoid(np.float32([-4, 0, 4]))
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return binary("div", clamp(loc, binary("add", x, 3, loc), 0, 6), 6, loc)


def hard_swish(loc: Site, x: Value) -> Expr:
    """x * hard_sigmoid(x).

    >>> hl.hard_swish(np.float32([0, 4]))
    array([0., 4.], dtype=float32)
    """
    return binary("mul", x, hard_sigmoid(loc, x), loc)


def gelu(loc: Site, x: Value, approximate: object = True) -> Expr:
    """x times the normal distribution function; by tanh unless approximate is False or "none".

    >>> hl.gelu(np.float32([0, 9]))
    array([0., 9.], dtype=float32)
    """
    if approximate not in (True, False, "none", "tanh"):
        hint = 'it is True, False, "tanh" or "none"'
        raise TypingError(f"gelu: approximate={approximate!r}", loc, hint)
    return unary("gelu_tanh" if approximate in (True, "tanh") else "gelu_erf", x, loc)


def isinf(loc: Site, x: Value) -> Expr:
    """True where x is infinite.

    >>> hl.isinf(np.float32([np.nan, -np.inf, 0]))
    array([False,  True, False])
    """
    value = as_expr(x, loc)
    if not is_float(value.type.dtype):
        return full(value.type.shape, False, "bool", loc)
    return binary("eq", unary("abs", value, loc), math.inf, loc)


def leaky_relu(loc: Site, x: Value, negative_slope: Value = 0.01) -> Expr:
    """x where it is positive, else negative_slope * x.

    >>> hl.leaky_relu(np.float32([-1, 1]), 0.5)
    array([-0.5,  1. ], dtype=float32)
    """
    scaled = binary("mul", x, negative_slope, loc)
    return where(binary("ge", x, 0, loc), x, scaled, loc)


def log_sigmoid(loc: Site, x: Value) -> Expr:
    """log(sigmoid(x)), without overflow.

    >>> hl.log_sigmoid(np.float32([-200]))
    array([-200.], dtype=float32)
    """
    return unary("neg", unary("softplus", unary("neg", x, loc), loc), loc)


def logaddexp(loc: Site, x: Value, y: Value) -> Expr:
    """log(exp(x) + exp(y)), without overflow.

    >>> hl.logaddexp(np.float32([300]), 0.0)
    array([300.], dtype=float32)
    """
    larger, gap = binary("maximum", x, y, loc), unary("abs", binary("sub", x, y, loc), loc)
    small = unary("log1p", unary("exp", unary("neg", gap, loc), loc), loc)
    same = binary("eq", x, y, loc)  # two equal infinities have no difference
    return binary("add", larger, where(same, math.log(2), small, loc), loc)


# ---------------------------------------------------------------- statistics


def _in_float32(op: str, x: Value, loc: Site) -> tuple[Expr, str]:
    """(the value in float32 if it is narrow, its own dtype); integers are refused."""
    value = as_expr(x, loc)
    dtype = value.type.dtype
    if not is_float(dtype):
        hint = "cast first: x.to(hl.float32)"
        raise TypingError(f"{op} of {called(value)}: not a float", loc, hint)
    return (cast(value, "float32", loc) if is_narrow(dtype) else value), dtype


def sum(
    loc: Site, x: Value, axis: object = None, keepdims: bool = False, dtype: object = None
) -> Expr:
    """The sum over one dimension, several, or all; narrow floats are added up in float32.

    >>> hl.sum(np.float32([[1, 2], [3, 4]]), axis=1)
    array([3., 7.], dtype=float32)
    """
    value = x if dtype is None else cast(x, dtype, loc)
    return reduce("sum", value, axis, keepdims, loc)


def mean(
    loc: Site, x: Value, axis: object = None, keepdims: bool = False, dtype: object = None
) -> Expr:
    """The sum divided by the number of elements; of a partial tile, of the valid ones.

    >>> hl.mean(np.float32([[1, 2], [3, 6]]), axis=1)
    array([1.5, 4.5], dtype=float32)
    """
    value, own = _in_float32("mean", x if dtype is None else cast(x, dtype, loc), loc)
    return cast(_mean(loc, value, axis, keepdims), own, loc)


def _mean(loc: Site, value: Expr, axis: object, keepdims: bool, correction: Value = 0) -> Expr:
    axes = many_axes(axis, value.type.rank, loc, "mean")
    number = count(value, axes, loc)
    if correction:
        number = binary("sub", number, correction, loc)
    return binary("div", reduce("sum", value, axes, keepdims, loc), number, loc)


def var(
    loc: Site, x: Value, axis: object = None, keepdims: bool = False, correction: int | float = 0
) -> Expr:
    """The mean squared distance from the mean; divides by the count minus `correction`.

    >>> hl.var(np.float32([1, 3])), hl.var(np.float32([1, 3]), correction=1)
    (array(1., dtype=float32), array(2., dtype=float32))
    """
    value, own = _in_float32("var", x, loc)
    away = binary("sub", value, _mean(loc, value, axis, True), loc)
    spread = _mean(loc, binary("mul", away, away, loc), axis, keepdims, correction)
    return cast(spread, own, loc)


def std(
    loc: Site, x: Value, axis: object = None, keepdims: bool = False, correction: int | float = 0
) -> Expr:
    """The square root of `var`.

    >>> hl.std(np.float32([1, 3]))
    array(1., dtype=float32)
    """
    value, own = _in_float32("std", x, loc)
    return cast(unary("sqrt", var(loc, value, axis, keepdims, correction), loc), own, loc)


def rms(loc: Site, x: Value, axis: object = -1, keepdims: bool = False, eps: Value = 0.0) -> Expr:
    """The square root of the mean square plus eps.

    >>> hl.rms(np.float32([3, 4, 0, 0]))
    array(2.5, dtype=float32)
    """
    value, own = _in_float32("rms", x, loc)
    mean_square = _mean(loc, binary("mul", value, value, loc), axis, keepdims)
    if not (isinstance(eps, int | float) and eps == 0):
        mean_square = binary("add", mean_square, eps, loc)
    return cast(unary("sqrt", mean_square, loc), own, loc)


def norm(
    loc: Site, x: Value, ord: object = None, axis: object = None, keepdims: bool = False
) -> Expr:
    """The length of the vectors along `axis`: ord 2 (default), 1, inf or -inf.

    >>> hl.norm(np.float32([[3, 4], [0, 1]]), axis=1)
    array([5., 1.], dtype=float32)
    """
    value, own = _in_float32("norm", x, loc)
    size = unary("abs", value, loc)
    if ord in (math.inf, -math.inf):
        result = reduce("max" if ord == math.inf else "min", size, axis, keepdims, loc)
    elif ord == 1:
        result = reduce("sum", size, axis, keepdims, loc)
    elif ord in (None, 2, "fro"):
        squares = reduce("sum", binary("mul", value, value, loc), axis, keepdims, loc)
        result = unary("sqrt", squares, loc)
    else:
        raise TypingError(f"norm: ord={ord!r}", loc, "it is 1, 2, inf or -inf")
    return cast(result, own, loc)


# ---------------------------------------------------------------- exponentials


def _shifted(loc: Site, value: Expr, axis: object) -> Expr:
    return binary("sub", value, reduce("max", value, axis, True, loc), loc)


def softmax(loc: Site, x: Value, axis: object = -1, dtype: object = None) -> Expr:
    """exp(x) / sum(exp(x)), without overflow.

    >>> hl.softmax(np.float32([[0, 0], [800, 0]]))
    array([[0.5, 0.5],
           [1. , 0. ]], dtype=float32)
    """
    value, own = _in_float32("softmax", x if dtype is None else cast(x, dtype, loc), loc)
    weights = unary("exp", _shifted(loc, value, axis), loc)
    return cast(binary("div", weights, reduce("sum", weights, axis, True, loc), loc), own, loc)


def log_softmax(loc: Site, x: Value, axis: object = -1, dtype: object = None) -> Expr:
    """log(softmax(x)), without overflow.

    >>> hl.log_softmax(np.float32([800, 0]))
    array([   0., -800.], dtype=float32)
    """
    value, own = _in_float32("log_softmax", x if dtype is None else cast(x, dtype, loc), loc)
    shifted = _shifted(loc, value, axis)
    mass = reduce("sum", unary("exp", shifted, loc), axis, True, loc)
    return cast(binary("sub", shifted, unary("log", mass, loc), loc), own, loc)


def logsumexp(loc: Site, x: Value, axis: object = None, keepdims: bool = False) -> Expr:
    """log(sum(exp(x))), without overflow; -inf where all are -inf.

    >>> hl.logsumexp(np.float32([800, -np.inf]))
    array(800., dtype=float32)
    """
    value, own = _in_float32("logsumexp", x, loc)
    highest = reduce("max", value, axis, True, loc)
    top = where(unary("isfinite", highest, loc), highest, 0.0, loc)
    weights = unary("exp", binary("sub", value, top, loc), loc)
    mass = reduce("sum", weights, axis, keepdims, loc)
    top = top if keepdims else squeeze(top, many_axes(axis, value.type.rank, loc, "logsumexp"), loc)
    return cast(binary("add", unary("log", mass, loc), top, loc), own, loc)


# ---------------------------------------------------------------- normalisation


def layer_norm(
    loc: Site,
    x: Value,
    normalized_shape: object = 1,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: Value = 1e-5,
) -> Expr:
    """(x - mean) / sqrt(var + eps) over the last dimensions, times weight, plus bias.

    >>> hl.layer_norm(np.float32([1, 3]), eps=0.0)
    array([-1.,  1.], dtype=float32)
    """
    value, own = _in_float32("layer_norm", x, loc)
    axes = _last(normalized_shape, value, loc)
    centred = binary("sub", value, _mean(loc, value, axes, True), loc)
    spread = _mean(loc, binary("mul", centred, centred, loc), axes, True)
    scaled = binary("mul", centred, unary("rsqrt", binary("add", spread, eps, loc), loc), loc)
    return cast(_scaled_and_moved(loc, scaled, weight, bias), own, loc)


def rms_norm(
    loc: Site,
    x: Value,
    normalized_shape: object = 1,
    weight: Value | None = None,
    eps: Value | None = None,
) -> Expr:
    """x / sqrt(mean(x * x) + eps) over the last dimensions, times weight.

    >>> hl.rms_norm(np.float32([3, -3]), eps=0.0)
    array([ 1., -1.], dtype=float32)
    """
    value, own = _in_float32("rms_norm", x, loc)
    square = _mean(loc, binary("mul", value, value, loc), _last(normalized_shape, value, loc), True)
    smallest = 2.0**-23 if eps is None else eps
    scaled = binary("mul", value, unary("rsqrt", binary("add", square, smallest, loc), loc), loc)
    return cast(_scaled_and_moved(loc, scaled, weight, None), own, loc)


def _last(normalized_shape: object, value: Expr, loc: Site) -> tuple[int, ...]:
    number = len(normalized_shape) if isinstance(normalized_shape, tuple | list) else 1
    if number > value.type.rank:
        raise TypingError(f"{called(value)} has no {number} last dimensions", loc)
    return tuple(range(value.type.rank - number, value.type.rank))


def _scaled_and_moved(loc: Site, value: Expr, weight: Value | None, bias: Value | None) -> Expr:
    value = value if weight is None else binary("mul", value, weight, loc)
    return value if bias is None else binary("add", value, bias, loc)
