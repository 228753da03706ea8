"""Typed constructors of expressions: one per primitive, with its typing rule.

    unary, binary, where, cast, reduce, dot, expand_dims, ... (values or numbers, loc) -> Expr

Operands are brought to one dtype, shapes are broadcast, and what does not fit is a TypingError at
`loc`.  An operation that changes nothing returns its operand; one on numbers alone is computed.
"""

from __future__ import annotations

import numpy as np

from ..errors import TypingError
from ..ir import Apply, Const, Dim, Expr, TileScalar, Type
from . import values
from .dtypes import is_float, is_float8, is_integer, is_narrow, to_numpy
from .op import OPS, names
from .reduction import Batch, Pair
from .shapes import broadcast, full
from .values import Number, Site, Value, as_expr, called, common, const, converted, retype

_INTEGER_TOO = names("neg abs relu floor ceil round trunc sign isnan isfinite")
_WHOLE = names("floor ceil round trunc")
_ARITHMETIC = names("add sub mul div floordiv mod pow minimum maximum neg abs sign relu")
_COMPARE = names("eq ne lt le gt ge")
_LOGICAL = names("logical_and logical_or logical_xor logical_not")
_BITWISE = names("bitwise_and bitwise_or bitwise_xor shift_left shift_right")


# ---------------------------------------------------------------- elementwise


def unary(op: str, x: Value, loc: Site) -> Expr:
    """An elementwise op of one operand; integers become float32 where the result is fractional."""
    value = as_expr(x, loc)
    dtype = value.type.dtype
    if op == "detach":
        return _apply(op, (value,), dtype, loc) if is_float(dtype) else value
    if op in _LOGICAL:
        return _apply(op, (cast(value, "bool", loc),), "bool", loc)
    _refuse_bool(op, dtype, loc)
    if is_float(dtype):
        return _apply(op, (value,), "bool" if op in ("isnan", "isfinite") else dtype, loc)
    if op in ("isnan", "isfinite"):
        return full(value.type.shape, op == "isfinite", "bool", loc)
    if op in _WHOLE:
        return value
    if op in _INTEGER_TOO:
        return _apply(op, (value,), dtype, loc)
    return _apply(op, (cast(value, "float32", loc),), "float32", loc)


def binary(op: str, a: Value, b: Value, loc: Site) -> Expr:
    """An elementwise op of two operands, promoted to one dtype and broadcast."""
    x, y = as_expr(a, loc), as_expr(b, loc)
    if op in _LOGICAL:
        return _apply(op, (cast(x, "bool", loc), cast(y, "bool", loc)), "bool", loc)
    dtype = common((x, y), loc)
    if op in _BITWISE:
        return _bits(op, x, y, dtype, loc)
    if op not in _COMPARE:
        _refuse_bool(op, dtype, loc)
    if op == "div" and not is_float(dtype):
        dtype = "float32"
    if op == "pow":
        return _power(x, y, dtype, loc)
    _refuse_number(op, y, dtype, loc)
    if op == "floordiv" and isinstance(y, Const) and y.value == 1 and is_integer(dtype):
        return cast(x, dtype, loc)
    result = "bool" if op in _COMPARE else dtype
    return _apply(op, (cast(x, dtype, loc), cast(y, dtype, loc)), result, loc)


def _refuse_bool(op: str, dtype: str, loc: Site) -> None:
    if dtype == "bool" and op in _ARITHMETIC:
        hint = "cast first, as in mask.to(hl.int32); & | ^ ~ combine truth values"
        raise TypingError(f"{op} of bool values", loc, hint)


def _refuse_number(op: str, y: Expr, dtype: str, loc: Site) -> None:
    """A number on the right that integers have no result for: devices give whatever they like."""
    if not isinstance(y, Const) or not is_integer(dtype):
        return
    if op in ("floordiv", "mod") and y.value == 0:
        hint = "convert to float32 before, where inf and nan are meant"
        raise TypingError("integers are divided by 0", loc, hint)
    bits = to_numpy(dtype).itemsize * 8
    if "shift" in op and not 0 <= y.value < bits:
        raise TypingError(f"{dtype} is shifted by {y.value}", loc, f"shift by 0 to {bits - 1}")


def _bits(op: str, x: Expr, y: Expr, dtype: str, loc: Site) -> Expr:
    if dtype == "bool" and op.startswith("bitwise"):
        return _apply(op.replace("bitwise", "logical"), (x, y), "bool", loc)
    if not is_integer(dtype):
        hint = "cast to hl.int32 first; & and | bind before comparisons: (a > 0) & (b > 0)"
        raise TypingError(f"{op} of {dtype} values", loc, hint)
    _refuse_number(op, y, dtype, loc)
    return _apply(op, (cast(x, dtype, loc), cast(y, dtype, loc)), dtype, loc)


def _power(x: Expr, y: Expr, dtype: str, loc: Site) -> Expr:
    """x ** y; a whole exponent stays an int, so that it is printed and computed as one."""
    if isinstance(y, Const) and is_integer(dtype) and y.value < 0:
        hint = "make the base a float: x.to(hl.float32)"
        raise TypingError(f"an integer to the power {y.value}", loc, hint)
    exponent = cast(y, dtype, loc)
    if isinstance(y, Const) and y.weak and is_integer(y.type.dtype):
        exponent = Const(y.value, Type((), dtype), weak=True)
    return _apply("pow", (cast(x, dtype, loc), exponent), dtype, loc)


def where(condition: Value, a: Value, b: Value, loc: Site) -> Expr:
    """a where the condition holds, else b."""
    mask, x, y = as_expr(condition, loc), as_expr(a, loc), as_expr(b, loc)
    if mask.type.dtype != "bool":
        what = f"where: the condition is {called(mask)}, not bool"
        raise TypingError(what, loc, "compare it, as in hl.where(x != 0, ...)")
    dtype = common((x, y), loc)
    if isinstance(mask, Const):
        x, y = cast(x, dtype, loc), cast(y, dtype, loc)
        return broadcast(x if mask.value else y, values.broadcast_shapes((x, y), loc, "where"), loc)
    return _apply("where", (mask, cast(x, dtype, loc), cast(y, dtype, loc)), dtype, loc)


def cast(x: Value, dtype: object, loc: Site) -> Expr:
    """The value in another dtype; numbers are converted at once."""
    value, name = as_expr(x, loc), values.dtype_name(dtype, loc)
    if isinstance(value, Const) and value.weak:
        if name == "bool":
            return Const(bool(value.value), Type((), "bool"), weak=True)
        return retype(value, name, loc)
    return converted(value, name, loc)


def _apply(op: str, args: tuple[Expr, ...], dtype: str, loc: Site) -> Expr:
    if all(isinstance(a, Const) and a.weak for a in args):
        return _computed(op, tuple(a.value for a in args if isinstance(a, Const)), dtype, loc)
    shape = values.broadcast_shapes(args, loc, op)
    return Apply(op, args, Type(shape, dtype), (), loc)


def _computed(op: str, numbers: tuple[Number, ...], dtype: str, loc: Site) -> Const:
    """An operation on Python numbers, done now."""
    with np.errstate(all="ignore"):
        arrays = [np.asarray(n, np.float32 if isinstance(n, float) else None) for n in numbers]
        result = OPS[op].reference(*arrays).item()
    number = float(result) if is_float(dtype) else result
    return retype(Const(number, Type((), dtype), weak=True), dtype, loc)


# ---------------------------------------------------------------- reductions


def reduce(op: str, x: Value, axis: object, keepdim: bool, loc: Site) -> Expr:
    """A reduction over one dimension, several, or (None) all.

    Sums of 16-bit floats are accumulated in float32, sums of small integers in int32.
    """
    value = as_expr(x, loc)
    if not isinstance(keepdim, bool):
        raise TypingError(f"{op}: keepdims={keepdim!r}", loc, "it is True or False")
    axes = values.many_axes(axis, value.type.rank, loc, op)
    if op in ("argmax", "argmin"):
        return _position(op, value, axis, axes, keepdim, loc)
    start, result = _reduce_dtypes(op, value.type.dtype)
    value = cast(value, start, loc)
    op = {"max": "any", "min": "all"}.get(op, op) if start == "bool" else op
    for place in reversed(axes):
        value = _reduce_one(op, value, place, keepdim, start, loc)
    return cast(value, result, loc)


def _reduce_dtypes(op: str, dtype: str) -> tuple[str, str]:
    """(dtype to reduce in, dtype of the result)."""
    if op in ("any", "all"):
        return "bool", "bool"
    if op != "sum":
        return dtype, dtype
    if is_float(dtype):
        return ("float32" if is_narrow(dtype) else dtype), dtype
    wide = "uint32" if dtype.startswith("u") else "int32"
    return wide, wide


def _reduce_one(op: str, value: Expr, axis: int, keepdim: bool, dtype: str, loc: Site) -> Expr:
    shape = value.type.shape
    kept: tuple[Dim, ...] = (1,) if keepdim else ()
    attrs = (("axis", axis), ("keepdim", keepdim))
    return Apply(op, (value,), Type((*shape[:axis], *kept, *shape[axis + 1 :]), dtype), attrs, loc)


def _position(
    op: str, value: Expr, axis: object, axes: tuple[int, ...], keepdim: bool, loc: Site
) -> Expr:
    if len(axes) != 1:
        given = "all dimensions" if axis is None else f"{len(axes)} dimensions"
        hint = f"give one: {op}(x, dim=-1)"
        raise TypingError(f"{op} over {given} of {called(value)}", loc, hint)
    if value.type.dtype == "bool":
        value = cast(value, "int32", loc)
    return _reduce_one(op, value, axes[0], keepdim, "int32", loc)


def count(x: Expr, axes: tuple[int, ...], loc: Site) -> Expr:
    """How many elements those dimensions hold, as float32: valid lanes only along a tile."""
    number: Expr = const(1.0)
    for axis in axes:
        number = binary("mul", number, cast(_length(x.type.shape[axis], loc), "float32", loc), loc)
    return number


def _length(dim: Dim, loc: Site) -> Expr:
    if isinstance(dim, int):
        return const(dim)
    return binary("sub", TileScalar(dim, "end"), TileScalar(dim, "begin"), loc)


# ---------------------------------------------------------------- contraction


def dot(
    a: Value, b: Value, loc: Site, contract: Pair, batch: Batch = ((), ()), name: str = "dot"
) -> Expr:
    """Sums products over one dimension of each; float32 of floats, int32 of integers.

    The result has the batch dimensions, then the free ones of a, then the free ones of b.
    """
    x, y = as_expr(a, loc), as_expr(b, loc)
    both_float8 = is_float8(x.type.dtype) and is_float8(y.type.dtype)
    dtype = x.type.dtype if both_float8 else common((x, y), loc)
    if dtype == "bool":
        raise TypingError(f"{name} of bool values", loc, "cast first: mask.to(hl.bfloat16)")
    left = values.one_axis(contract[0], x.type.rank, loc, name)
    right = values.one_axis(contract[1], y.type.rank, loc, name)
    _same_dim(x, left, y, right, f"{name} contracts", loc)
    for i, j in zip(*batch, strict=True):
        _same_dim(x, i, y, j, f"{name} pairs", loc)
    if not both_float8:
        x, y = cast(x, dtype, loc), cast(y, dtype, loc)
    shape = (
        *(x.type.shape[i] for i in batch[0]),
        *(d for i, d in enumerate(x.type.shape) if i != left and i not in batch[0]),
        *(d for i, d in enumerate(y.type.shape) if i != right and i not in batch[1]),
    )
    result = Type(shape, "float32" if is_float(dtype) else "int32")
    attrs = (("contract", (left, right)), ("batch", batch))
    return Apply("dot", (x, y), result, attrs, loc)


def _same_dim(x: Expr, i: int, y: Expr, j: int, verb: str, loc: Site) -> None:
    left, right = x.type.shape[i], y.type.shape[j]
    if left == right:
        return
    what = f"{verb} {_dim_text(left)} of {called(x)} with {_dim_text(right)} of {called(y)}"
    hint = "the lengths must be equal; a transpose may be missing"
    axis = next((d for d in (left, right) if isinstance(d, str)), None)
    if axis is not None:
        other = values.name_of(y if left == axis else x, "the other operand")
        hint = f"both must run along one axis: index that dimension of {other} with {axis}"
    raise TypingError(what, loc, hint)


def _dim_text(dim: Dim) -> str:
    return f"axis {dim}" if isinstance(dim, str) else f"a dimension of length {dim}"
