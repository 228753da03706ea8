"""Row products: a product of which no operand has rows or columns -> a sum.

    dot(a[t, k], b[t, k], contract 1, 1, batch 0, 0)   ->   sum(float32(a) * float32(b), 1)

Matrix units would multiply one row with one column at a time, and Mosaic lays out neither.  With
`vectors` it is enough that one operand has none:

    dot(a[t, k], b[k], contract 1, 0)   ->   sum(float32(a) * float32(b)[None, :], 1)

Triton multiplies no vectors; and 16 columns, which products have at least, are 15 too many.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, KernelIR
from tilelang.ir.traversal import rebuild_body
from tilelang.language.build import binary, cast
from tilelang.language.shapes import expand_dims, transpose


def row_products(kernel: KernelIR, vectors: bool = False) -> KernelIR:
    """The kernel without products of single rows and single columns, or of vectors."""
    return replace(kernel, body=rebuild_body(kernel.body, lambda e: _summed(e, vectors)))


def _summed(expr: Expr, vectors: bool) -> Expr | None:
    """A product of which all dimensions but the one that is summed are a batch, as a sum."""
    if not isinstance(expr, Apply) or expr.op != "dot":
        return None
    contract, batch = expr.attr("contract"), expr.attr("batch", ((), ()))
    free = [x.type.rank - len(batch[0]) - 1 for x in expr.args]
    if min(free) > 0 or (not vectors and (max(free) > 0 or not batch[0])):
        return None
    a, b = (
        _side(cast(x, expr.type.dtype, expr.loc), dims, along, beside, expr.loc)
        for x, dims, along, beside in zip(expr.args, batch, contract, free[::-1], strict=True)
    )
    attrs = (("axis", expr.type.rank), ("keepdim", False))
    return Apply("sum", (binary("mul", a, b, expr.loc),), expr.type, attrs, expr.loc)


def _side(x: Expr, batch: tuple[int, ...], along: int, beside: int, loc: Loc | None) -> Expr:
    """An operand: its batch, so many dimensions of one, its own ones and the one that is summed."""
    own = (d for d in range(x.type.rank) if d != along and d not in batch)
    side = transpose(x, (*batch, *own, along), loc)
    for _ in range(beside):
        side = expand_dims(side, len(batch), loc)
    return side
