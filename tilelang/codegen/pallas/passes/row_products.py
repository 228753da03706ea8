"""Row products: a product of which no operand has rows or columns -> a sum.

    dot(a[t, k], b[t, k], contract 1, 1, batch 0, 0)   ->   sum(float32(a) * float32(b), 1)

Matrix units would multiply one row with one column at a time, and Mosaic lays out neither.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang import ir
from tilelang.ir import Apply, Expr
from tilelang.ir.traversal import rebuild_body
from tilelang.language.shapes import transpose

from .wide_operands import cast


def row_products(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel without products of single rows and single columns."""
    return replace(kernel, body=rebuild_body(kernel.body, _summed))


def _summed(expr: Expr) -> Expr | None:
    """A product of which all dimensions but the one that is summed are a batch, as a sum."""
    if not isinstance(expr, Apply) or expr.op != "dot":
        return None
    contract, batch = expr.attr("contract"), expr.attr("batch", ((), ()))
    if not batch[0] or any(x.type.rank != len(batch[0]) + 1 for x in expr.args):
        return None
    a, b = (
        transpose(cast(x, expr.type.dtype), (*dims, along), expr.loc)
        for x, dims, along in zip(expr.args, batch, contract, strict=True)
    )
    product = Apply("mul", (a, b), a.type, (), expr.loc)
    attrs = (("axis", expr.type.rank), ("keepdim", False))
    return Apply("sum", (product,), expr.type, attrs, expr.loc)
