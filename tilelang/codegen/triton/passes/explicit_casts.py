"""Explicit casts: arithmetic in float32, and every conversion as Triton means it.

    a + b : bfloat16               ->  cast(cast(a, float32) + cast(b, float32), bfloat16)
    cast(n: int16, bfloat16)       ->  cast(cast(n, float32), bfloat16)
    i // 4 where i >= 0            ->  quotient(i, 4); other signs need a floor
    x ** 3, n ** m of integers     ->  power(x, 3), power(n, m): products; x ** y is exp2

Triton computes with 16-bit floats as they are, rejects them in most functions, and its `//`
truncates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilelang.ir import Apply, Const, Expr, GridIndex, KernelIR, TileIndex, TileScalar, Type
from tilelang.ir.intervals import ANYTHING, Interval, interval
from tilelang.ir.traversal import rebuilding
from tilelang.language.dtypes import is_float, is_narrow, to_numpy
from tilelang.language.op import kind_of

INT, FLOAT = "int32", "float32"
MOST = 64  # the largest number of products in place of a logarithm


def explicit_casts(ir: KernelIR) -> KernelIR:
    """The kernel in which every op computes in a dtype that Triton computes in."""
    return ir.mapped(rebuilding(lambda e: _explicit(e, ir) if isinstance(e, Apply) else None))


def _explicit(expr: Apply, ir: KernelIR) -> Expr:
    match kind_of(expr.op):
        case "elementwise" if expr.op == "cast":
            return cast(expr.args[0], expr.type.dtype)
        case "elementwise":
            return _elementwise(expr, ir)
        case "reduce":
            return _reduced(expr)
        case _:
            return expr


def cast(expr: Expr, dtype: str) -> Expr:
    """The value in another dtype, in steps that Triton and its interpreter get right."""
    source = expr.type.dtype
    if source == dtype:
        return expr
    if isinstance(expr, Const):
        return _number(expr, dtype)
    if dtype == "bool":
        zero = Const(0.0 if is_float(source) else 0, Type((), source))
        return apply("ne", (_wide(expr), _wide(zero)), "bool", expr.type.shape)
    if isinstance(expr, Apply) and expr.op == "cast" and _exact(expr.args[0].type.dtype, source):
        return cast(expr.args[0], dtype)
    exact = source == "int8" and dtype in ("bfloat16", "float16")  # which Triton does in two, too
    if is_narrow(dtype) and source != FLOAT and not exact:
        expr = cast(expr, FLOAT)
    return apply("cast", (expr,), dtype, expr.type.shape)


def _exact(before: str, between: str) -> bool:
    """Whether a dtype holds every value of the one that it was made from."""
    return between == FLOAT and is_narrow(before)


def _number(const: Const, dtype: str) -> Const:
    """A number as a dtype holds it."""
    value = to_numpy(const.type.dtype).type(const.value)
    if dtype == "bool":
        return Const(bool(value), Type((), dtype))
    number = float(value) if is_float(dtype) else int(value)
    return Const(number, Type((), dtype))


def _wide(expr: Expr) -> Expr:
    return cast(expr, FLOAT) if is_narrow(expr.type.dtype) else expr


def apply(op: str, args: tuple[Expr, ...], dtype: str, shape: tuple, **attrs: object) -> Apply:
    return Apply(op, args, Type(shape, dtype), tuple(attrs.items()))


def _elementwise(expr: Apply, ir: KernelIR) -> Expr:
    shape, dtype = expr.type.shape, expr.type.dtype
    if expr.op == "where":
        return expr
    args = tuple(map(_wide, expr.args))
    wide = FLOAT if is_narrow(dtype) else dtype
    floats = is_float(args[-1].type.dtype)
    if expr.op == "div" and not floats:
        args = tuple(cast(a, FLOAT) for a in args)
    if expr.op in ("floordiv", "mod") and not floats:
        return _divided(expr, args, ir)
    if expr.op in REWRITTEN:
        made = REWRITTEN[expr.op](args, wide, shape)
    else:
        made = replace(expr, args=args, type=Type(shape, wide))
    return cast(made, dtype)


def _divided(expr: Apply, args: tuple[Expr, ...], ir: KernelIR) -> Expr:
    """Division of integers: as the hardware does it where nothing is negative."""
    (low, _), (least, _) = (interval(a, lambda e: _leaf(e, ir)) for a in args)
    if low >= 0 and least > 0:
        return replace(expr, op="quotient" if expr.op == "floordiv" else "remainder", args=args)
    return replace(expr, args=args)


def _leaf(expr: Expr, ir: KernelIR) -> Interval:
    """Indices are not negative where their range begins at a number that is not."""
    if isinstance(expr, GridIndex | TileIndex | TileScalar):
        begin = ir.axis(expr.axis).begin
        if isinstance(begin, Const) and begin.value >= 0:
            return 0, math.inf
    return ANYTHING


def _floor(args: tuple[Expr, ...], dtype: str, shape: tuple) -> Expr:
    return apply("floor", (apply("div", args, dtype, shape),), dtype, shape)


def _mod(args: tuple[Expr, ...], dtype: str, shape: tuple) -> Expr:
    whole = apply("mul", (_floor(args, dtype, shape), args[1]), dtype, shape)
    return apply("sub", (args[0], whole), dtype, shape)


def _relu(args: tuple[Expr, ...], dtype: str, shape: tuple) -> Expr:
    zero = Const(0.0 if is_float(dtype) else 0, Type((), dtype))
    return apply("maximum", (*args, zero), dtype, shape)


def _isfinite(args: tuple[Expr, ...], dtype: str, shape: tuple) -> Expr:
    size = apply("abs", args, args[0].type.dtype, shape)
    return apply("lt", (size, Const(math.inf, Type((), FLOAT))), dtype, shape)


def _isnan(args: tuple[Expr, ...], dtype: str, shape: tuple) -> Expr:
    return apply("ne", (args[0], args[0]), dtype, shape)


def _pow(args: tuple[Expr, ...], dtype: str, shape: tuple) -> Expr:
    """Whole powers are products: they are exact, and integers have no logarithm."""
    base, exponent = args
    if isinstance(exponent, Const) and abs(exponent.value) <= MOST and exponent.value % 1 == 0:
        count = abs(int(exponent.value))
        times = (base, Const(count, Type((), INT)))
        made = apply("power", times, dtype, shape, bits=count.bit_length())
        one = Const(1.0, Type((), dtype))
        return made if exponent.value >= 0 else apply("div", (one, made), dtype, shape)
    if not is_float(dtype):
        return apply("power", (base, exponent), dtype, shape, bits=np.iinfo(dtype).max.bit_length())
    return apply("pow", (base, exponent), dtype, shape)


REWRITTEN: dict[str, Callable[[tuple[Expr, ...], str, tuple], Expr]] = {
    "floordiv": _floor,
    "mod": _mod,
    "pow": _pow,
    "relu": _relu,
    "isfinite": _isfinite,
    "isnan": _isnan,
}


def _reduced(expr: Apply) -> Expr:
    """In 32 bits, as Triton does in silence; any and all as the largest and the least of 0, 1."""
    (value,), dtype, shape = expr.args, expr.type.dtype, expr.type.shape
    if expr.op in ("any", "all"):
        number = apply("cast", (value,), INT, value.type.shape)
        made = replace(
            expr, op="max" if expr.op == "any" else "min", args=(number,), type=Type(shape, INT)
        )
        return cast(made, "bool")
    if expr.op in ("argmax", "argmin"):
        return replace(expr, args=(_wide(value),))
    if value.type.dtype != "uint32":
        value = cast(value, FLOAT if is_float(value.type.dtype) else INT)
    made = replace(expr, args=(value,), type=Type(shape, value.type.dtype))
    return cast(made, dtype)
