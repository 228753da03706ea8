"""Wide operands: what TPUs compute in 32 bits alone -> that, of what it is given.

    a + b, of int8                     ->   cast(cast(a, int32) + cast(b, int32), int8)
    s - 1, of a bfloat16 number        ->   cast(cast(s, float32) - 1, bfloat16)
    exp2(x), of bfloat16               ->   cast(exp2(cast(x, float32)), bfloat16)
    argmax(x), isnan(x), of bfloat16   ->   argmax(cast(x, float32)), isnan(cast(x, float32))
    sum(n), of uint32                  ->   cast(sum(cast(n, int32)), uint32)
    max(n), of uint32                  ->   cast(max(cast(n, int32) - 2**31) - 2**31, uint32)
    any(b), all(b)                     ->   max(cast(b, int32)) > 0, min(cast(b, int32)) > 0
    where(b, c, d), of bools           ->   where(b, cast(c, int32), cast(d, int32)) != 0
    reshape(b)                         ->   reshape(cast(b, int32)) != 0
    cast(b, int8)                      ->   cast(where(b, 1, 0), int8)

Every float of fewer bits is a float32, and integers of 32 bits wrap: nothing is rounded but as it
would have been.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilelang import ir
from tilelang.ir.traversal import rebuilding
from tilelang.language.dtypes import is_float, is_float8, to_numpy, wide_of
from tilelang.language.op import ELEMENTWISE, REDUCTIONS, kind_of, names

ORDERED = ("max", "min", "maximum", "minimum")
FOLDS = {"any": "max", "all": "min"}
LOWEST = -(2**31)
LEAST = -3.4028234663852886e38
WIDE = ("float32", "int32")  # any operation is one of these
# What libtpu 0.0.42.1 compiles of bfloat16 in vectors for every generation, as it is.  Comparisons
# are not among them: where they are of 16 bits their masks are too, and meet no masks of 32 bits.
# Nor are sin and cos: on v6e and 7x it fails in their test for infinities.
OF_BFLOAT16 = names(
    "add sub mul div neg abs relu minimum maximum exp log log1p sqrt rsqrt tanh erf"
    " sigmoid silu gelu_tanh gelu_erf softplus floor ceil round trunc sign"
    " where sum max min"
)
# Nor these, of any float of 16 bits and on CPUs: exp2 is exp(x * log(2)) and pow exp(y * log(x)),
# and a power of 32 and more is off by 1/8 where such a product is rounded to 8 bits.
BY_PRODUCTS = names("exp2 pow")


def wide_operands(kernel: ir.KernelIR, *, interpreted: bool = False) -> ir.KernelIR:
    """The kernel with operands that the compiler of TPUs takes; for interpreters, with those that
    XLA computes exactly enough."""

    def made(expr: ir.Expr) -> ir.Expr | None:
        if not isinstance(expr, ir.Apply):
            return None
        narrow = expr.op in BY_PRODUCTS and is_float(expr.type.dtype)
        return _widened(expr) if narrow or not interpreted else expr

    return kernel.mapped(rebuilding(made))


def _widened(expr: ir.Apply) -> ir.Expr:
    if kind_of(expr.op) == "shape":
        return _shaped(expr)
    if expr.op not in ELEMENTWISE | REDUCTIONS:
        return expr
    dtype = expr.args[-1].type.dtype
    match expr.op, dtype:
        case "cast", _:
            return _converted(expr)
        case op, "bool":
            return _of_bools(expr, op)
        case "sum", "uint32":
            return cast(_of(expr, "int32", cast(expr.args[0], "int32")), dtype)
        case op, "uint32" if op in ORDERED:
            made = _of(expr, "int32", *(_moved(cast(a, "int32")) for a in expr.args))
            return cast(_moved(made), dtype)
        case _:
            pass
    return expr if _computes(expr, dtype) else _computed(expr, dtype)


def _computes(expr: ir.Apply, dtype: str) -> bool:
    """Whether the compiler has the operation of values of that dtype, where they lie."""
    if dtype in (*WIDE, "uint32"):
        return True
    return dtype == "bfloat16" and expr.op in OF_BFLOAT16 and any(a.type.shape for a in expr.args)


def _computed(expr: ir.Apply, dtype: str) -> ir.Expr:
    """The operation of wide operands, and what it gives as it was."""
    wide = wide_of(dtype)
    args = tuple(a if a.type.dtype != dtype else cast(a, wide) for a in expr.args)
    if not expr.type.shape and not is_float(dtype):
        args = tuple(_apart(a) for a in args)
    if expr.type.dtype != dtype:
        return replace(expr, args=args)
    return cast(_of(expr, wide, *args), dtype)


def _apart(number: ir.Expr) -> ir.Expr:
    """A number as it is, that was or will be of a narrow dtype.

    Mosaic makes one operation of what stands between two conversions, or one conversion of two;
    scalar units have few of those.  The least float32 is what minus infinity is in fewer bits.
    """
    kind = number.type
    if isinstance(number, ir.Const) or kind.dtype == "bool":
        return number
    if is_float(kind.dtype):
        return ir.Apply("maximum", (number, ir.Const(LEAST, kind)), kind)
    by = _number(8, "int32")  # of 16 bits at most, so that none is lost
    return ir.Apply("shift_right", (ir.Apply("shift_left", (number, by), kind), by), kind)


def _converted(expr: ir.Apply) -> ir.Expr:
    """A conversion in steps that the compiler has."""
    (value,), dtype = expr.args, expr.type.dtype
    source = value.type.dtype
    if dtype == "bool" and source not in (*WIDE, "uint32"):
        return replace(expr, args=(cast(value, wide_of(source)),))
    if source == "bool" and dtype not in WIDE:
        wide = wide_of(dtype)
        return replace(expr, args=(_picked(value) if wide == "int32" else cast(value, wide),))
    narrow = source not in (*WIDE, "uint32", "bool") and dtype not in (*WIDE, "uint32", "bool")
    if not narrow or (expr.type.shape and not is_float8(source) and not is_float8(dtype)):
        return expr
    wide = cast(cast(value, wide_of(source)), wide_of(dtype))
    return replace(expr, args=(wide if expr.type.shape else _apart(wide),))


def _picked(mask: ir.Expr) -> ir.Expr:
    """The integer that a bool is, of a mask as 1 or 0: Mosaic makes one conversion of two, and v4
    has none of a mask to bytes."""
    if not mask.type.shape:
        return cast(mask, "int32")
    numbers = _number(1, "int32"), _number(0, "int32")
    return ir.Apply("where", (mask, *numbers), ir.Type(mask.type.shape, "int32"))


def _of_bools(expr: ir.Apply, op: str) -> ir.Expr:
    match op:
        case "any" | "all":
            made = _of(replace(expr, op=FOLDS[op]), "int32", cast(expr.args[0], "int32"))
            return ir.Apply("gt", (made, _number(0, "int32")), expr.type)
        case "where":
            mask, yes, no = expr.args
            made = _of(expr, "int32", mask, cast(yes, "int32"), cast(no, "int32"))
            return ir.Apply("ne", (made, _number(0, "int32")), expr.type)
        case _:
            return expr


def _shaped(expr: ir.Apply) -> ir.Expr:
    """A shape of bools as one of integers, but for what is part of a matrix: a row, a column."""
    moved = expr.op in ("reshape", "concat") or expr.type.rank > 2
    if expr.type.dtype != "bool" or not moved:
        return expr
    made = _of(expr, "int32", *(cast(a, "int32") for a in expr.args))
    return ir.Apply("ne", (made, _number(0, "int32")), expr.type)


def _of(expr: ir.Apply, dtype: str, *operands: ir.Expr) -> ir.Apply:
    """The same of operands of another dtype."""
    return replace(expr, args=operands, type=replace(expr.type, dtype=dtype))


def _moved(expr: ir.Expr) -> ir.Expr:
    """Unsigned integers in their order, as signed ones; and back."""
    return ir.Apply("add", (expr, _number(LOWEST, "int32")), expr.type)


def cast(expr: ir.Expr, dtype: str) -> ir.Expr:
    """The value in another dtype; numbers are converted at once."""
    if expr.type.dtype == dtype:
        return expr
    if isinstance(expr, ir.Const):
        held = to_numpy(expr.type.dtype).type(expr.value)
        return replace(expr, value=_python(held, dtype), type=ir.Type((), dtype))
    return ir.Apply("cast", (expr,), replace(expr.type, dtype=dtype))


def _python(value: Any, dtype: str) -> float | int:
    """What a scalar of NumPy, or of ml_dtypes, is in Python."""
    return float(value) if is_float(dtype) else int(value)


def _number(value: int, dtype: str) -> ir.Const:
    return ir.Const(value, ir.Type((), dtype))
