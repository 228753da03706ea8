"""Row products: a product of which no operand has rows or columns -> a sum.

    dot(a[t, k], b[t, k], contract 1, 1, batch 0, 0)   ->   sum(float32(a) * float32(b), 1)

Matrix units would multiply one row with one column at a time, and Mosaic lays out neither.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang import ir
from tilelang.ir import Apply, Dim, Expr, Type
from tilelang.ir.traversal import map_body, map_children, map_stmt

from .wide_operands import cast


def row_products(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel without products of single rows and single columns."""
    done: dict[int, tuple[Expr, Expr]] = {}  # with what has the id, so that it lives

    def visit(expr: Expr) -> Expr:
        if id(expr) not in done:
            made = map_children(expr, visit)
            done[id(expr)] = expr, _summed(made) if _of_rows(made) else made
        return done[id(expr)][1]

    return replace(kernel, body=map_body(kernel.body, lambda s: (map_stmt(s, visit),)))


def _of_rows(expr: Expr) -> bool:
    """Whether all dimensions of both operands but the one that is summed are a batch."""
    if not isinstance(expr, Apply) or expr.op != "dot":
        return False
    batch = expr.attr("batch", ((), ()))
    return bool(batch[0]) and all(x.type.rank == len(batch[0]) + 1 for x in expr.args)


def _summed(expr: Expr) -> Expr:
    assert isinstance(expr, Apply)
    contract, batch = expr.attr("contract"), expr.attr("batch")
    sides = (
        _permuted(cast(x, expr.type.dtype), (*dims, along))
        for x, dims, along in zip(expr.args, batch, contract, strict=True)
    )
    a, b = sides
    product = Apply("mul", (a, b), a.type, (), expr.loc)
    attrs = (("axis", expr.type.rank), ("keepdim", False))
    return Apply("sum", (product,), expr.type, attrs, expr.loc)


def _permuted(value: Expr, perm: tuple[int, ...]) -> Expr:
    if perm == tuple(range(len(perm))):
        return value
    shape: tuple[Dim, ...] = tuple(value.type.shape[d] for d in perm)
    return Apply("transpose", (value,), Type(shape, value.type.dtype), (("perm", perm),))
