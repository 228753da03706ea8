"""Batches: a product of several batch dimensions, as one of a single one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelang.codegen.pallas.plan.axis import AxisPlan, extents
from tilelang.codegen.pallas.plan.physical import PExpr
from tilelang.ir import Apply, Dim, Type

from .layouts import Value, apply, permuted


def one_batch(expr: Apply, sides: tuple[PExpr, ...], axes: Mapping[str, AxisPlan]) -> Value:
    """The product of operands that are laid out; libtpu 0.0.42.1 has "up to 1 batch dim".

    A reshape of leading dimensions moves nothing.
    """
    batch: tuple[tuple[int, ...], tuple[int, ...]] = expr.attr("batch")
    count = len(batch[0])
    flat: list[PExpr] = []
    for value, dims, along in zip(sides, batch, expr.attr("contract"), strict=True):
        free = (d for d in range(value.type.rank) if d not in (*dims, along))
        moved = _in_order(value, (*dims, *free, along))
        shape = _one_leading(moved.type, count, axes)
        flat.append(apply("reshape", (moved,), shape, moved.type.dtype))
    last = tuple(side.type.rank - 1 for side in flat)
    attrs = (("contract", last), ("batch", ((0,), (0,))))
    shape, kind = _one_leading(expr.type, count, axes), expr.type
    product = apply("dot", tuple(flat), shape, kind.dtype, attrs, expr.loc, expr.masks)
    return Value(apply("reshape", (product,), kind.shape, kind.dtype), "plain", kind.shape)


def _in_order(value: PExpr, perm: tuple[int, ...]) -> PExpr:
    return value if perm == tuple(range(len(perm))) else permuted(value, perm)


def _one_leading(kind: Type, count: int, axes: Mapping[str, AxisPlan]) -> tuple[Dim, ...]:
    """The shape with its leading dimensions as one."""
    return (math.prod(extents(kind, axes)[:count]), *kind.shape[count:])
