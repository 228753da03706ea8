"""Matrix products: every product as one that the hardware has, with its accumulator.

    acc + dot(a[m, k], b[k, n])           ->  multiply(a, b, acc)
    dot(a[m, k], b[n, k], contract 1, 1)  ->  multiply(a, transpose(b), 0)
    dot(a[b, m, k], b[b, k, n]), b = 1    ->  reshape(multiply(a[m, k], b[k, n]))

Hopper multiplies tiles of two dimensions asynchronously, and those of three not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from tilelang.ir import Apply, Dim, Expr, KernelIR, Type
from tilelang.ir.traversal import rebuild_body
from tilelang.language.dtypes import is_float
from tilelang.language.shapes import transpose

from .explicit_casts import apply, cast

Width = Callable[[Dim], int]


def matrix_products(ir: KernelIR, width: Width) -> KernelIR:
    """The kernel with its products in that form; `width` says how many lanes a dimension has."""

    def change(expr: Expr) -> Expr | None:
        return _multiplied(expr, width) if isinstance(expr, Apply) else None

    return replace(ir, body=rebuild_body(ir.body, change))


def _multiplied(expr: Apply, width: Width) -> Expr:
    if expr.op == "dot":
        return _product(expr, width)
    if expr.op == "add" and expr.type.dtype in ("float32", "int32"):
        for acc, product in (expr.args, expr.args[::-1]):
            if not (isinstance(product, Apply) and product.op == "multiply"):
                continue
            if len(product.args) == 2 and acc.type == product.type == expr.type:
                return replace(product, args=(*product.args, acc))
    return expr


def _product(expr: Apply, width: Width) -> Expr:
    contract: tuple[int, int] = expr.attr("contract")
    batch: tuple[tuple[int, ...], ...] = expr.attr("batch", ((), ()))
    a, b = expr.args
    if a.type.shape[contract[0]] == 1:
        return _outer(expr, contract, batch)
    free = [
        [d for d in range(x.type.rank) if d != c and d not in taken]
        for x, c, taken in zip((a, b), contract, batch, strict=True)
    ]
    a = transpose(a, (*batch[0], *free[0], contract[0]), expr.loc)
    b = transpose(b, (*batch[1], contract[1], *free[1]), expr.loc)
    count = len(batch[0])
    many = prod(width(d) for d in a.type.shape[:count])
    lead: tuple[Dim, ...] = () if many == 1 else (a.type.shape[0] if count == 1 else many,)
    rows = _merged(a.type.shape[count:-1], width)
    columns = _merged(b.type.shape[count + 1 :], width)
    a = _reshaped(a, (*lead, rows, a.type.shape[-1]))
    b = _reshaped(b, (*lead, b.type.shape[count], columns))
    kept = "float32" if is_float(a.type.dtype) else "int32"
    made = Apply("multiply", (a, b), Type((*lead, rows, columns), kept), (), expr.loc)
    return cast(_reshaped(made, expr.type.shape), expr.type.dtype)


def _merged(dims: tuple[Dim, ...], width: Width) -> Dim:
    """One dimension for several."""
    return dims[0] if len(dims) == 1 else prod(map(width, dims))


def _reshaped(expr: Expr, shape: tuple[Dim, ...]) -> Expr:
    if expr.type.shape == shape:
        return expr
    return apply("reshape", (expr,), expr.type.dtype, shape, merged=True)


def _outer(expr: Apply, contract: tuple[int, int], batch: tuple[tuple[int, ...], ...]) -> Expr:
    """A sum of one product: rows times columns."""
    kept = "float32" if is_float(expr.args[0].type.dtype) else "int32"
    sides: list[Expr] = []
    count, rank = len(batch[0]), expr.type.rank
    rows = expr.args[0].type.rank - count - 1
    for number, side in enumerate(expr.args):
        free = [
            d for d in range(side.type.rank) if d != contract[number] and d not in batch[number]
        ]
        value = transpose(side, (*batch[number], *free, contract[number]), expr.loc)
        batches, own = value.type.shape[:count], value.type.shape[count:-1]
        ones = (1,) * (rank - count - (rows if number == 0 else rank - count - rows))
        shape = (*batches, *own, *ones) if number == 0 else (*batches, *ones, *own)
        sides.append(cast(_reshaped(value, shape), kept))
    return cast(apply("mul", (sides[0], sides[1]), kept, expr.type.shape), expr.type.dtype)
