"""Layouts: values of any rank -> arrays of rank 2 or more, the shapes that vector registers like.

A value of rank 1 is printed as a row (1, n) or a column (n, 1), never as a vector: reductions over
the last dimension give columns, and reductions over rows give rows, with keepdims, as an expert
would write them.  `x[:, None]` of a column is then the column itself, and costs nothing.

layout   logical shape -> physical shape
scalar   ()      -> ()           a number in scalar memory or a register
unit     ()      -> (1, 1)       a number computed from vectors
row      (n,)    -> (1, n)
column   (.., n) -> (.., n, 1)
plain    rank 2+ -> unchanged
free     rank 1  -> either: indices, masks and constants are made in the layout that is wanted
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tilelang.codegen.pallas.plan.physical import Inner, Keep, Kept, PExpr, PStmt, Read, Select
from tilelang.codegen.pallas.plan.rewriting import rewrite
from tilelang.codegen.pallas.plan.types import in_scratch
from tilelang.errors import Loc
from tilelang.ir import Apply, Const, Dim, Type

Layout = Literal["scalar", "unit", "row", "column", "plain", "free"]


@dataclass(frozen=True)
class Value:
    """A physical expression and how it lays out the logical value."""

    expr: PExpr
    layout: Layout
    logical: tuple[Dim, ...]


def apply(
    op: str,
    args: tuple[PExpr, ...],
    shape: tuple[Dim, ...],
    dtype: str,
    attrs: tuple[tuple[str, object], ...] = (),
    loc: Loc | None = None,
    masks: tuple[tuple[str, str], ...] = (),
) -> Apply:
    """An op on physical values; Apply is shared with the IR, whose operands are logical ones."""
    operands: Any = args
    return Apply(op, operands, Type(shape, dtype), attrs, loc, masks)


def as_scratch(value: PExpr) -> PExpr:
    """A value as scratch memory holds it."""
    held, kind = in_scratch(value.type.dtype), value.type
    return value if held == kind.dtype else apply("cast", (value,), kind.shape, held)


def from_scratch(value: PExpr, dtype: str) -> PExpr:
    """What scratch memory holds of a value of that dtype, as the value."""
    held = value.type
    if held.dtype == dtype:
        return value
    return apply("ne", (value, Const(0, Type((), held.dtype))), held.shape, dtype)


def as_held(stmt: PStmt) -> PStmt:
    """The statement with what it keeps, and what it reads of that, as scratch memory holds them."""

    def read(expr: PExpr) -> PExpr:
        if not isinstance(expr, Kept) or in_scratch(expr.type.dtype) == expr.type.dtype:
            return expr
        held = replace(expr.type, dtype=in_scratch(expr.type.dtype))
        return from_scratch(replace(expr, type=held), expr.type.dtype)

    return _kept_as_held(rewrite(stmt, read))


def _kept_as_held(stmt: PStmt) -> PStmt:
    match stmt:
        case Keep():
            return replace(stmt, value=as_scratch(stmt.value))
        case Inner():
            return replace(stmt, body=tuple(map(_kept_as_held, stmt.body)))
        case _:
            return stmt


def of_copy(ref: str, select: tuple[Select, ...], kind: Type) -> PExpr:
    """A part of a block's turned copy, which scratch memory holds."""
    held = replace(kind, dtype=in_scratch(kind.dtype))
    return from_scratch(Read(ref, select, held, turned=True), kind.dtype)


def permuted(value: PExpr, perm: tuple[int, ...]) -> PExpr:
    """A transposition of any rank, of bools as integers: Mosaic has none of masks that are held."""
    shape = tuple(value.type.shape[d] for d in perm)
    held = as_scratch(value)
    moved = apply("transpose", (held,), shape, held.type.dtype, (("perm", perm),))
    return from_scratch(moved, value.type.dtype)


def physical_shape(shape: tuple[Dim, ...], layout: Layout) -> tuple[Dim, ...]:
    """The shape of the array that holds a value of that logical shape."""
    match layout:
        case "unit":
            return (1, 1)
        case "row":
            return (1, *shape)
        case "column":
            return (*shape, 1)
        case _:
            return shape


def relayout(value: Value, want: Layout) -> Value:
    """The value in another layout; a transpose between row and column."""
    have = value.layout
    if have == want or (have in ("scalar", "unit") and want in ("scalar", "unit", "row", "column")):
        return value
    if {have, want} <= {"row", "column"} and len(value.logical) == 1:
        turned = value.expr if value.logical == (1,) else permuted(value.expr, (1, 0))
        return Value(turned, want, value.logical)
    shape = physical_shape(value.logical, want)
    return Value(apply("reshape", (value.expr,), shape, value.expr.type.dtype), want, value.logical)


def laid_out(value: PExpr, logical: Type, shape: tuple[Dim, ...]) -> Value:
    """An array of that shape as a value."""
    layouts: tuple[Layout, ...] = ("column", "row") if logical.rank == 1 else ("plain", "column")
    if logical.rank == 0:
        return Value(value, "unit", ())
    for layout in layouts:
        if shape == physical_shape(logical.shape, layout):
            return Value(value, layout, logical.shape)
    want: Layout = "row" if logical.rank == 1 else "plain"
    reshaped = apply("reshape", (value,), physical_shape(logical.shape, want), logical.dtype)
    return Value(reshaped, want, logical.shape)
