"""Ops that one framework spells or defines in its own way.

    op(loc, x, ...) -> Expr | (Expr, Expr)

Where a method means one thing in torch and another in JAX, the keyword decides: `dim` and
`keepdim` are torch's, `axis` and `keepdims` JAX's.  Where nothing decides, the call is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import TypingError
from ..ir import Const, Expr
from .build import binary, cast, reduce, unary, where
from .composed import clamp, elu, expm1, mean, norm, std, var
from .dtypes import canonical, is_float, is_integer, to_numpy
from .values import EXPRS, Site, Value, ValuesIndices, as_expr, called, dtype_name

# ---------------------------------------------------------------- elementwise


def unchanged(loc: Site, x: Value) -> Expr:
    """The value itself: +x, x.contiguous(), x.clone()."""
    return as_expr(x, loc)


def bitwise_not(loc: Site, x: Value) -> Expr:
    """~x: logical_not of bools, all bits flipped of integers.

    >>> hl.bitwise_not(np.int32([0, 5]))
    array([-1, -6], dtype=int32)
    """
    value = as_expr(x, loc)
    dtype = value.type.dtype
    if dtype == "bool":
        return unary("logical_not", value, loc)
    ones = {"uint8": 2**8 - 1, "uint32": 2**32 - 1}.get(dtype, -1)
    return binary("bitwise_xor", value, ones, loc)


def whole(op: str) -> Callable[..., Expr]:
    """math.floor and its kin: the whole number as an int32."""

    def build(loc: Site, x: Value) -> Expr:
        return cast(unary(op, x, loc), "int32", loc)

    return build


def _folded(op: str) -> Callable[..., Expr]:
    """min(a, b, ...) or max(a, b, ...) of values."""

    def build(loc: Site, x: Value, y: Value, *more: Value) -> Expr:
        return functools.reduce(lambda a, b: binary(op, a, b, loc), (y, *more), as_expr(x, loc))

    return build


smallest, largest = _folded("minimum"), _folded("maximum")


def clamp_min(loc: Site, x: Value, min: Value) -> Expr:
    """torch.clamp_min."""
    return clamp(loc, x, min=min)


def clamp_max(loc: Site, x: Value, max: Value) -> Expr:
    """torch.clamp_max."""
    return clamp(loc, x, max=max)


def lax_clamp(loc: Site, min: Value, x: Value, max: Value) -> Expr:
    """jax.lax.clamp: the value is in the middle."""
    return clamp(loc, x, min, max)


def lax_div(loc: Site, x: Value, y: Value) -> Expr:
    """jax.lax.div of floats; of integers it would round towards zero."""
    a, b = as_expr(x, loc), as_expr(y, loc)
    if not is_float(a.type.dtype) and not is_float(b.type.dtype):
        hint = "write x // y, which rounds down"
        raise TypingError("jax.lax.div of integers rounds towards zero", loc, hint)
    return binary("div", a, b, loc)


def torch_add(loc: Site, x: Value, y: Value, alpha: Value = 1) -> Expr:
    """torch.add: x + alpha * y."""
    return binary("add", x, _scaled(loc, y, alpha), loc)


def torch_sub(loc: Site, x: Value, y: Value, alpha: Value = 1) -> Expr:
    """torch.sub: x - alpha * y."""
    return binary("sub", x, _scaled(loc, y, alpha), loc)


def _scaled(loc: Site, y: Value, alpha: Value) -> Value:
    one = isinstance(alpha, int | float) and alpha == 1
    return y if one else binary("mul", y, alpha, loc)


def torch_div(loc: Site, x: Value, y: Value, rounding_mode: object = None) -> Expr:
    """torch.div, with rounding_mode None, "floor" or "trunc"."""
    if rounding_mode == "floor":
        return binary("floordiv", x, y, loc)
    quotient = binary("div", x, y, loc)
    if rounding_mode is None:
        return quotient
    if rounding_mode == "trunc" and is_float(as_expr(x, loc).type.dtype):
        return unary("trunc", quotient, loc)
    raise TypingError(f"div: rounding_mode={rounding_mode!r}", loc, 'it is None or "floor"')


def torch_gelu(loc: Site, x: Value, approximate: object = "none") -> Expr:
    """torch.nn.functional.gelu: exact unless approximate="tanh"."""
    if approximate not in ("none", "tanh"):
        hint = 'it is "none" or "tanh"'
        raise TypingError(f"gelu: approximate={approximate!r}", loc, hint)
    return unary("gelu_tanh" if approximate == "tanh" else "gelu_erf", x, loc)


def torch_softplus(loc: Site, x: Value, beta: Value = 1, threshold: object = 20) -> Expr:
    """torch.nn.functional.softplus; `threshold` only speeds torch up and changes nothing."""
    if isinstance(beta, int | float) and beta == 1:
        return unary("softplus", x, loc)
    return binary("div", unary("softplus", binary("mul", x, beta, loc), loc), beta, loc)


def relu6(loc: Site, x: Value) -> Expr:
    """min(max(x, 0), 6)."""
    return clamp(loc, x, 0, 6)


def hardtanh(loc: Site, x: Value, min_val: Value = -1.0, max_val: Value = 1.0) -> Expr:
    """x between min_val and max_val."""
    return clamp(loc, x, min_val, max_val)


def celu(loc: Site, x: Value, alpha: Value = 1.0) -> Expr:
    """elu, of which alpha scales the argument too: its slope is 1 at 0."""
    below = binary(
        "mul", expm1(loc, binary("div", binary("minimum", x, 0, loc), alpha, loc)), alpha, loc
    )
    return where(binary("gt", x, 0, loc), x, below, loc)


def selu(loc: Site, x: Value) -> Expr:
    """elu, scaled so that normal numbers stay so (Klambauer et al. 2017, arXiv:1706.02515)."""
    return binary("mul", elu(loc, x, 1.6732632423543772), 1.0507009873554805, loc)


def softsign(loc: Site, x: Value) -> Expr:
    """x / (1 + |x|)."""
    return binary("div", x, binary("add", unary("abs", x, loc), 1, loc), loc)


def mish(loc: Site, x: Value) -> Expr:
    """x * tanh(softplus(x))."""
    return binary("mul", x, unary("tanh", unary("softplus", x, loc), loc), loc)


def addcmul(loc: Site, x: Value, tensor1: Value, tensor2: Value, value: Value = 1) -> Expr:
    """torch.addcmul: x + value * tensor1 * tensor2."""
    return torch_add(loc, x, binary("mul", tensor1, tensor2, loc), value)


def lerp(loc: Site, x: Value, end: Value, weight: Value) -> Expr:
    """torch.lerp: x + weight * (end - x)."""
    return binary("add", x, binary("mul", weight, binary("sub", end, x, loc), loc), loc)


def where_method(loc: Site, x: Value, condition: Value, y: Value) -> Expr:
    """x.where(condition, y): x where it holds, else y."""
    return where(condition, x, y, loc)


def masked_fill(loc: Site, x: Value, mask: Value, value: Value) -> Expr:
    """x.masked_fill(mask, value): value where the mask holds, in x's dtype."""
    kept = as_expr(x, loc)
    return where(mask, cast(value, kept.type.dtype, loc), kept, loc)


# ---------------------------------------------------------------- casts

CAST_METHODS = {
    "float": "float32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
    "double": "float64",
    "long": "int64",
}


def cast_method(dtype: str) -> Callable[..., Expr]:
    """x.float() and its kin."""

    def build(loc: Site, x: Value) -> Expr:
        return cast(x, dtype, loc)

    return build


def to_method(
    loc: Site,
    x: Value,
    dtype: object = None,
    *more: object,
    device: object = None,
    non_blocking: bool = False,
    copy: bool = False,
) -> Expr:
    """x.to(dtype), x.to(other); a device is where the kernel runs anyway."""
    if isinstance(dtype, EXPRS):
        return cast(x, dtype.type.dtype, loc)
    given = [d for d in (dtype, *more) if canonical(d) is not None]
    if not given and dtype is not None and device is None:
        raise TypingError(f"x.to({dtype!r}) names no dtype", loc, "write x.to(hl.float32)")
    return cast(x, given[0], loc) if given else as_expr(x, loc)


def type_as(loc: Site, x: Value, y: Value) -> Expr:
    """x.type_as(y): x in y's dtype."""
    return cast(x, as_expr(y, loc).type.dtype, loc)


# ---------------------------------------------------------------- max, min and their positions


def _torch_extreme(op: str) -> Callable[..., Any]:
    def build(
        loc: Site, x: Value, axis: Any = None, keepdims: bool = False, y: Value | None = None
    ) -> Expr | ValuesIndices:
        other = axis if isinstance(axis, EXPRS) and not isinstance(axis, Const) else y
        if other is not None:
            return binary(f"{op}imum", x, other, loc)
        if axis is None:
            return reduce(op, x, None, False, loc)
        return _with_indices(op, loc, x, axis, keepdims)

    build.__doc__ = f"torch.{op}: of everything, (values, indices) along dim, or of two values."
    return build


def _with_indices(op: str, loc: Site, x: Value, axis: object, keepdims: bool) -> ValuesIndices:
    values = reduce(op, x, axis, keepdims, loc)
    return ValuesIndices(values, reduce(f"arg{op}", x, axis, keepdims, loc))


torch_max, torch_min = _torch_extreme("max"), _torch_extreme("min")


def _extreme_method(op: str) -> Callable[..., Any]:
    def build(
        loc: Site,
        x: Value,
        place: Any = None,
        dim: Any = None,
        keepdim: bool | None = None,
        axis: Any = None,
        keepdims: bool | None = None,
    ) -> Expr | ValuesIndices:
        if isinstance(place, EXPRS) and not isinstance(place, Const):
            return binary(f"{op}imum", x, place, loc)
        if dim is not None or (place is not None and keepdim is not None):
            return _with_indices(op, loc, x, place if dim is None else dim, bool(keepdim))
        if place is not None and keepdims is None:
            raise _ambiguous(
                f"x.{op}({place!r})",
                "(values, indices) in torch and the values in JAX",
                f"write x.a{op}({place!r}), x.{op}(dim={place!r}) or x.{op}(axis={place!r})",
                loc,
            )
        return reduce(op, x, place if axis is None else axis, bool(keepdims or keepdim), loc)

    build.__doc__ = f"x.{op}(): of everything; along dim as in torch, along axis as in JAX."
    return build


def _ambiguous(call: str, meanings: str, hint: str, loc: Site) -> TypingError:
    return TypingError(f"{call} means {meanings}", loc, hint)


max_method, min_method = _extreme_method("max"), _extreme_method("min")


def _lax_position(op: str) -> Callable[..., Expr]:
    def build(loc: Site, x: Value, axis: object, index_dtype: object = "int32") -> Expr:
        return cast(reduce(op, x, axis, False, loc), index_dtype, loc)

    return build


lax_argmax, lax_argmin = _lax_position("argmax"), _lax_position("argmin")


# ---------------------------------------------------------------- var and std

Spread = Callable[..., Expr]


def _torch_spread(op: Spread) -> Callable[..., Expr]:
    def build(
        loc: Site,
        x: Value,
        axis: Any = None,
        unbiased: bool = True,
        keepdims: bool = False,
        correction: int | float | None = None,
    ) -> Expr:
        if isinstance(axis, bool):  # torch.var(x, False)
            axis, unbiased = None, axis
        less = int(unbiased) if correction is None else correction
        return op(loc, x, axis, keepdims, less)

    build.__doc__ = f"torch.{op.__name__}: divides by the count minus 1 unless told otherwise."
    return build


def _jnp_spread(op: Spread) -> Callable[..., Expr]:
    def build(
        loc: Site,
        x: Value,
        axis: object = None,
        dtype: object = None,
        ddof: int | float = 0,
        keepdims: bool = False,
        correction: int | float | None = None,
    ) -> Expr:
        value = x if dtype is None else cast(x, dtype, loc)
        return op(loc, value, axis, keepdims, ddof if correction is None else correction)

    build.__doc__ = f"jax.numpy.{op.__name__}: divides by the count unless told otherwise."
    return build


def _spread_method(op: Spread) -> Callable[..., Expr]:
    def build(
        loc: Site,
        x: Value,
        place: Any = None,
        dim: Any = None,
        unbiased: bool | None = None,
        correction: int | float | None = None,
        ddof: int | float | None = None,
        keepdim: bool | None = None,
        axis: Any = None,
        keepdims: bool | None = None,
    ) -> Expr:
        less = correction if correction is not None else ddof
        less = less if unbiased is None else int(unbiased)
        torch_like = dim is not None or keepdim is not None
        if less is None and not torch_like and axis is None and keepdims is None:
            name = op.__name__
            meanings = "division by n - 1 in torch and by n in JAX"
            hint = f"write x.{name}(..., correction=1) or x.{name}(..., correction=0)"
            raise _ambiguous(f"x.{name}(...)", meanings, hint, loc)
        where_to = next((a for a in (dim, axis, place) if a is not None), None)
        return op(
            loc, x, where_to, bool(keepdim or keepdims), int(torch_like) if less is None else less
        )

    build.__doc__ = f"x.{op.__name__}(): along dim as in torch, along axis as in JAX."
    return build


torch_var, torch_std = _torch_spread(var), _torch_spread(std)
jnp_var, jnp_std = _jnp_spread(var), _jnp_spread(std)
var_method, std_method = _spread_method(var), _spread_method(std)


def torch_var_mean(
    loc: Site,
    x: Value,
    axis: object = None,
    unbiased: bool = True,
    keepdims: bool = False,
    correction: int | float | None = None,
) -> tuple[Expr, Expr]:
    """torch.var_mean: (variance, mean)."""
    spread = torch_var(loc, x, axis, unbiased, keepdims, correction)
    return spread, mean(loc, x, axis, keepdims)


def torch_norm(
    loc: Site, x: Value, p: object = None, axis: object = None, keepdims: bool = False
) -> Expr:
    """torch.norm: of the elements along dim, or of all."""
    return norm(loc, x, p, axis, keepdims)


def matrix_or_vector_norm(
    loc: Site, x: Value, ord: object = None, axis: object = None, keepdims: bool = False
) -> Expr:
    """linalg.norm of vectors; of a matrix only the Frobenius norm."""
    value = as_expr(x, loc)
    several = isinstance(axis, tuple | list) or (axis is None and value.type.rank > 1)
    if several and ord not in (None, "fro"):
        what = f"norm: ord={ord!r} over several dimensions of {called(value)} is a matrix norm"
        raise TypingError(what, loc, "give one dim, or leave ord out")
    return norm(loc, value, ord, axis, keepdims)


# ---------------------------------------------------------------- limits of dtypes


def finfo(loc: Site, dtype: object) -> object:
    """The limits of a float dtype: .min, .max, .eps, .tiny.

    >>> float(hl.finfo(hl.bfloat16).eps)
    0.0078125
    """
    name = dtype_name(dtype, loc)
    if not is_float(name):
        raise TypingError(f"finfo of {name}", loc, "iinfo has the limits of integers")
    return ml_dtypes.finfo(to_numpy(name))


def iinfo(loc: Site, dtype: object) -> object:
    """The limits of an integer dtype: .min and .max.

    >>> hl.iinfo(hl.int8).max
    127
    """
    name = dtype_name(dtype, loc)
    if not is_integer(name):
        raise TypingError(f"iinfo of {name}", loc, "finfo has the limits of floats")
    return np.iinfo(to_numpy(name))
