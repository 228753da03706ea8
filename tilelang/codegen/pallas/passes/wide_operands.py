"""Wide operands: what Mosaic computes of float32 and int32 alone -> that, of what it is given.

    argmax(x), isnan(x), of bfloat16   ->   argmax(cast(x, float32)), isnan(cast(x, float32))
    sum(n), of uint32                  ->   cast(sum(cast(n, int32)), uint32)
    max(n), of uint32                  ->   cast(max(cast(n, int32) - 2**31) - 2**31, uint32)
    any(b), all(b)                     ->   max(cast(b, int32)) > 0, min(cast(b, int32)) > 0

Every float of fewer bits is a float32, and integers of 32 bits wrap, so nothing is rounded.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang import ir
from tilelang.ir.traversal import map_body, map_children, map_stmt

FLOATS = ("argmax", "argmin", "isnan", "isfinite")
ORDERED = ("max", "min", "maximum", "minimum")
FOLDS = {"any": "max", "all": "min"}
LOWEST = -(2**31)


def wide_operands(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with operands that the compiler of TPUs takes."""
    return replace(kernel, body=map_body(kernel.body, lambda s: (map_stmt(s, _widened),)))


def _widened(expr: ir.Expr) -> ir.Expr:
    expr = map_children(expr, _widened)
    if not isinstance(expr, ir.Apply) or not expr.args:
        return expr
    dtype, op = expr.args[0].type.dtype, expr.op
    if op in FLOATS and "float" in dtype and dtype != "float32":
        return replace(expr, args=(_cast(expr.args[0], "float32"),))
    if op in FOLDS and dtype == "bool":
        made = _of(replace(expr, op=FOLDS[op]), _cast(expr.args[0], "int32"))
        return ir.Apply("gt", (made, _number(0)), expr.type)
    if op == "sum" and dtype == "uint32":
        return _cast(_of(expr, _cast(expr.args[0], "int32")), dtype)
    if op in ORDERED and expr.type.dtype == "uint32":
        return _cast(_moved(_of(expr, *(_moved(_cast(a, "int32")) for a in expr.args))), dtype)
    return expr


def _of(expr: ir.Apply, *operands: ir.Expr) -> ir.Apply:
    """The same of operands of another dtype."""
    return replace(expr, args=operands, type=replace(expr.type, dtype="int32"))


def _moved(expr: ir.Expr) -> ir.Expr:
    """Unsigned integers in their order, as signed ones; and back."""
    return ir.Apply("add", (expr, _number(LOWEST)), expr.type)


def _cast(expr: ir.Expr, dtype: str) -> ir.Expr:
    return ir.Apply("cast", (expr,), replace(expr.type, dtype=dtype))


def _number(value: int) -> ir.Const:
    return ir.Const(value, ir.Type((), "int32"))
