"""Stores: a value that goes to part of an array -> writes of the block that the step sees."""

from __future__ import annotations

from dataclasses import replace

from tilelang.analysis.uses import picks_rows
from tilelang.codegen.pallas.plan.types import (
    All,
    InRange,
    Mask,
    Packed,
    PExpr,
    Read,
    Row,
    Select,
    Whole,
    Window,
    Write,
)
from tilelang.codegen.pallas.plan.windows.choose import Arrays, as_array, selects
from tilelang.ir import Along, At, Dim, Expr, GridIndex, Index, Store, Type
from tilelang.schedule.refusal import Refused, Rule

from .layouts import Value, apply
from .lower import Scope, lower, row_mask
from .scatters import put_rows


def filled(value: PExpr, want: Type) -> PExpr:
    """The value broadcast to the whole shape, for places that store it."""
    if value.type.shape == want.shape:
        return value
    return apply("broadcast", (value,), want.shape, want.dtype)


def stores(scope: Scope, stmt: Store) -> tuple[Write, ...]:
    arrays = scope.arrays
    if picks_rows(stmt.index):

        def laid_out(shape: tuple[Dim, ...]) -> PExpr:
            value = _as_block(scope, stmt.value, shape, stmt)
            return filled(value, Type(shape, value.type.dtype))

        return (put_rows(scope, stmt, laid_out),)
    window = arrays.find(stmt.tensor, stmt.index)
    chosen = tuple(
        replace(s, expr=lower(scope, s.expr).expr) if isinstance(s, Row) else s  # type: ignore[arg-type]
        for s in selects(arrays, window, stmt.index, stmt.tensor)
    )
    shape, picked, masks = _block(scope, stmt)
    block = Type(shape, window.dtype)
    given = tuple(None if i in picked else d for i, d in enumerate(shape))
    value = _as_block(scope, stmt.value, given, stmt)
    if value.type.dtype != window.dtype:
        value = apply("cast", (value,), value.type.shape, window.dtype)
    if window.turned is not None:
        return _store_turned(scope, stmt, window, chosen, filled(value, block))
    if not masks:
        return (Write(window.ref, chosen, filled(value, block), stmt.loc),)
    mask = masks[0]
    for more in masks[1:]:
        pairs = zip(mask.type.shape, more.type.shape, strict=True)
        both = tuple(_broadcast_dim(a, b) for a, b in pairs)
        mask = apply("logical_and", (mask, more), both, "bool")
    old = Read(window.ref, chosen, block)
    kept = apply("where", (mask, value, old), shape, window.dtype)
    return (Write(window.ref, chosen, kept, stmt.loc),)


def _store_turned(
    scope: Scope, stmt: Store, window: Window, chosen: tuple[Select, ...], value: PExpr
) -> tuple[Write, ...]:
    """Every iteration of a loop within the step writes its part of the turned copy.

    After all of them the copy goes to the block.  Raises PlanError if it may have gaps.
    """
    arrays, first = scope.arrays, window.turn[0]
    entries = as_array(arrays.hosts[stmt.tensor], stmt.index)
    _check_turned(arrays, stmt, entries, window)
    shown = [(e, d) for e, d in zip(entries, window.block, strict=True) if d is not None]
    axes = [e.axis if isinstance(e, Along) else None for e, _ in shown]
    masks = [
        _lane_mask(axis, position, len(shown))
        for position, axis in enumerate(axes)
        if axis is not None and not arrays.axes[axis].owned
    ]
    sizes = iter(value.type.shape)
    shape = tuple(d if i == first else next(sizes) for i, (_, d) in enumerate(shown))
    turned = tuple(chosen[d] for d in window.turn)
    order = window.turn
    source = Type(tuple(shape[d] for d in order), window.dtype)
    whole = tuple(All() if d == first else s for d, s in zip(order, turned, strict=True))
    copy = Read(window.ref, whole, source, turned=True)
    back = tuple(order.index(d) for d in range(len(order)))
    result = apply("transpose", (copy,), shape, window.dtype, (("perm", back),))
    select = tuple(All() if d == first else s for d, s in enumerate(chosen))
    for mask in masks:
        old = Read(window.ref, select, Type(shape, window.dtype))
        result = apply("where", (mask, result, old), shape, window.dtype)
    return (
        Write(window.ref, turned, value, stmt.loc, turned=True),
        Write(window.ref, select, result, stmt.loc),
    )


def _check_turned(arrays: Arrays, stmt: Store, entries: tuple[Index, ...], window: Window) -> None:
    """PlanError unless the loop within the step stores to every position of its dimension."""
    assert window.turned is not None
    dim = window.turned.dim
    pairs = zip(entries, window.dims, strict=True)
    others = [pair for d, pair in enumerate(pairs) if d != dim]
    if any(isinstance(e, At) and isinstance(d, Whole) for e, d in others):
        raise Refused(
            Rule.FORM,
            f"{stmt.tensor} is stored at another position by every iteration of a loop inside the "
            "step, besides those that one step runs",
            stmt.loc,
            "leave within out of the config",
        )
    entry, size = entries[dim], window.shape[dim]
    whole = False
    if isinstance(entry, At) and isinstance(entry.expr, GridIndex):
        axis = arrays.axes[entry.expr.axis]
        whole = axis.first == 0 and axis.tiles == size
    if whole and stmt.mask is None:
        return
    raise Refused(
        Rule.FORM,
        f"not every element of {stmt.tensor} that lies between those stored by one step is stored "
        "by it too",
        stmt.loc,
        "leave within out of the config",
    )


def _broadcast_dim(a: Dim, b: Dim) -> Dim:
    return b if a == 1 else a


def _block(scope: Scope, stmt: Store) -> tuple[tuple[Dim, ...], set[int], list[PExpr]]:
    """The physical shape that a store writes, and the masks of what it may change there.

    Between them: the dimensions of the block in which a single position is meant.
    """
    arrays = scope.arrays
    window = arrays.find(stmt.tensor, stmt.index)
    entries = as_array(arrays.hosts[stmt.tensor], stmt.index)
    shape: list[Dim] = []
    packed: list[tuple[int, Packed]] = []
    guarded: list[tuple[int, str]] = []
    for entry, dim, size in zip(entries, window.dims, window.shape, strict=True):
        match entry:
            case At(expr) if isinstance(dim, Packed):
                packed.append((len(shape), replace(dim, expr=expr)))
                shape.append(dim.rows)
            case At():
                continue
            case Along(axis):
                if not arrays.axes[axis].owned:
                    guarded.append((len(shape), axis))
                shape.append(axis)
            case _:
                shape.append(getattr(entry, "stop", size) - getattr(entry, "start", 0))
    rows = [(p, dim) for p, dim in packed if dim.rows > 1]
    masks: list[PExpr] = [row_mask(scope, tuple(shape), p, dim) for p, dim in rows]
    masks += [_lane_mask(axis, position, len(shape)) for position, axis in guarded]
    if stmt.mask is not None:
        masks.append(_aligned(lower(scope, stmt.mask), tuple(shape), len(shape)))
    return tuple(shape), {p for p, _ in packed}, masks


def _lane_mask(axis: str, position: int, rank: int) -> InRange:
    """Which positions of dimension `position` lie in the range of the axis."""
    shape = tuple(axis if i == position else 1 for i in range(rank))
    return InRange(Mask(axis, "store"), Type(shape, "bool"))


def _aligned(value: Value, shape: tuple[Dim, ...], rank: int) -> PExpr:
    """A mask with the rank of the block, so that it combines with the others."""
    have = value.expr.type.shape
    if len(have) == rank or not have:
        return value.expr if have else filled(value.expr, Type((1,) * rank, "bool"))
    want = (*(1,) * (rank - len(have)), *have)
    return apply("reshape", (value.expr,), want, value.expr.type.dtype)


def _as_block(scope: Scope, value: Expr, shape: tuple[Dim | None, ...], stmt: Store) -> PExpr:
    """The stored value, laid out so that it broadcasts against the block; None: one position."""
    logical = value.type.shape
    if not logical:
        return lower(scope, value).expr
    want = _spread(logical, shape, stmt)
    rank = len(logical)
    if rank >= 2 and want == logical:
        return lower(scope, value, "plain").expr
    if want == (*logical, 1):
        return lower(scope, value, "column").expr
    if rank == 1 and want == (1, *logical):
        return lower(scope, value, "row").expr
    lowered = lower(scope, value, "row" if rank == 1 else "plain").expr
    if lowered.type.shape == want:
        return lowered
    return apply("reshape", (lowered,), want, lowered.type.dtype)


def _spread(
    logical: tuple[Dim, ...], shape: tuple[Dim | None, ...], stmt: Store
) -> tuple[Dim, ...]:
    """The value's shape with a 1 where a dimension of the block has no counterpart in it."""
    out: list[Dim] = []
    rest = list(logical)
    for dim in reversed(shape):
        if rest and dim is not None and rest[-1] in (dim, 1):
            out.insert(0, rest.pop())
        else:
            out.insert(0, 1)
    if rest:
        raise Refused(Rule.FORM, f"the value stored to {stmt.tensor} has no legal layout", stmt.loc)
    return tuple(out)
