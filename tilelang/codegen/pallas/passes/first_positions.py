"""First positions: argmax where tiles or the compiler have none -> the first position of a maximum.

    argmax(x[t, :], axis=0)   ->   min(where(x[t, :] == max(x[t, :]) or isnan(x[t, :]), i, MOST))
    where i = t - t.begin

Along a tile it counts from the first lane, which may lie before the range of the tile.  TPUs have
none of integers, either; those of 8 and 16 bits would fit a float32, and no others.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.ir import Apply, Const, Dim, Expr, KernelIR, Type
from tilelang.ir.traversal import map_body, map_children, map_stmt
from tilelang.language import build, shapes
from tilelang.language.dtypes import is_float

OF = {"argmax": "max", "argmin": "min"}
MOST = 2**31 - 1


def first_positions(ir: KernelIR, integers: bool) -> KernelIR:
    """The kernel without argmax along ragged tiles, and of integers where `integers`."""

    def change(expr: Expr) -> Expr:
        expr = map_children(expr, change)
        if not isinstance(expr, Apply) or expr.op not in OF:
            return expr
        (value,), dim = expr.args, expr.args[0].type.shape[int(expr.attr("axis"))]
        wide = integers and not is_float(value.type.dtype)
        return _position(expr, value, dim) if wide or _moved(ir, dim) else expr

    return replace(ir, body=map_body(ir.body, lambda s: (map_stmt(s, change),)))


def _moved(ir: KernelIR, dim: Dim) -> bool:
    """Whether a tile may begin behind its first lane."""
    if not isinstance(dim, str):
        return False
    begin = ir.axis(dim).begin
    return not isinstance(begin, Const) or begin.value != 0


def _position(expr: Apply, value: Expr, dim: Dim) -> Expr:
    axis, keep = int(expr.attr("axis")), bool(expr.attr("keepdim"))
    best = build.reduce(OF[expr.op], value, axis, True, expr.loc)
    hit = build.binary("eq", value, best, expr.loc)
    if is_float(value.type.dtype):
        hit = build.binary("logical_or", hit, build.unary("isnan", value, expr.loc), expr.loc)
    place = shapes.lanes(dim, expr.loc)
    for _ in range(value.type.rank - axis - 1):
        place = shapes.expand_dims(place, place.type.rank, expr.loc)
    first = build.where(hit, place, Const(MOST, Type((), "int32")), expr.loc)
    return build.reduce("min", first, axis, keep, expr.loc)
