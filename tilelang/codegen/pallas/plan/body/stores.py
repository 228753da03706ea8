"""Stores: a value that goes to part of an array -> writes of the block that the step sees."""

from __future__ import annotations

from tilelang import ir
from tilelang.analysis.uses import picks_rows
from tilelang.codegen.pallas.moves import MOVED
from tilelang.codegen.pallas.plan.axis import Mask
from tilelang.codegen.pallas.plan.physical import All, InRange, PExpr, Read, Select, Write
from tilelang.codegen.pallas.plan.types import in_scratch
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.codegen.pallas.plan.windows.types import Entry, Whole, Window
from tilelang.ir import Dim, Store, Type
from tilelang.ir.traversal import statements
from tilelang.schedule.refusal import Refused, Rule

from .layouts import apply, as_scratch, from_scratch, permuted
from .lower import Scope, lower, row_mask, selected
from .moved_rows import moved_rows
from .scatters import put_rows
from .shown import block_shape


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
    if isinstance(stmt.value, ir.Apply) and stmt.value.op == MOVED:
        return (moved_rows(scope, stmt, stmt.value),)
    window = arrays.find(stmt.tensor, stmt.index)
    chosen = selected(scope, window, stmt.index, stmt.tensor)
    shape, packed = block_shape(arrays, stmt.tensor, stmt.index)
    block = Type(shape, window.dtype)
    given = tuple(None if i in packed else d for i, d in enumerate(shape))
    value = _as_block(scope, stmt.value, given, stmt)
    if value.type.dtype != window.dtype:
        value = apply("cast", (value,), value.type.shape, window.dtype)
    if window.turned is not None:
        return _store_turned(scope, stmt, window, chosen, filled(value, block))
    masks: list[PExpr] = [row_mask(scope, shape, p, d) for p, d in packed.items() if d.rows > 1]
    why = [("row", stmt.tensor)] if masks else []
    masks += _lane_masks(arrays, shape)
    if stmt.mask is not None:
        masks.append(_aligned(scope, stmt.mask, given, stmt))
        why.append(("user", stmt.tensor))
    if not masks:
        return (Write(window.ref, chosen, filled(value, block), stmt.loc),)
    mask = masks[0]
    for more in masks[1:]:
        pairs = zip(mask.type.shape, more.type.shape, strict=True)
        both = tuple(b if a == 1 else a for a, b in pairs)
        mask = apply("logical_and", (mask, more), both, "bool")
    old = Read(window.ref, chosen, block)
    kept = apply("where", (mask, value, old), shape, window.dtype, (), stmt.loc, tuple(why))
    return (Write(window.ref, chosen, kept, stmt.loc),)


def _store_turned(
    scope: Scope, stmt: Store, window: Window, chosen: tuple[Select, ...], value: PExpr
) -> tuple[Write, ...]:
    """Every iteration of a loop within the step writes its part of the turned copy.

    After all of them the copy goes to the block.  Raises Refused if it may have gaps.
    """
    arrays, order, first = scope.arrays, window.turn, window.turn[0]
    entries = arrays.entries(stmt.tensor, stmt.index)
    _check_turned(arrays, stmt, entries, window)
    others = value.type.shape  # without the dimension that the loop indexes
    shape = (*others[:first], window.shown[first], *others[first:])
    turned = tuple(chosen[d] for d in order)
    source = Type(tuple(shape[d] for d in order), in_scratch(window.dtype))
    whole = tuple(All() if d == first else chosen[d] for d in order)
    copy = Read(window.ref, whole, source, turned=True)
    back = tuple(order.index(d) for d in range(len(order)))
    result = from_scratch(permuted(copy, back), window.dtype)
    select = tuple(All() if d == first else s for d, s in enumerate(chosen))
    for mask in _lane_masks(arrays, shape):
        old = Read(window.ref, select, Type(shape, window.dtype))
        result = apply("where", (mask, result, old), shape, window.dtype)
    return (
        Write(window.ref, turned, as_scratch(value), stmt.loc, turned=True),
        Write(window.ref, select, result, stmt.loc),
    )


def _check_turned(arrays: Arrays, stmt: Store, entries: tuple[Entry, ...], window: Window) -> None:
    """Refused unless the loop within the step stores to every position of its dimension."""
    assert window.turned is not None
    dim = window.turned.dim
    pairs = zip(entries, window.dims, strict=True)
    others = [pair for d, pair in enumerate(pairs) if d != dim]
    if any(isinstance(e, ir.At) and isinstance(d, Whole) for e, d in others):
        raise Refused(
            Rule.FORM,
            f"{stmt.tensor} is stored at another position by every iteration of a loop inside the "
            "step, besides those that one step runs",
            stmt.loc,
            "leave within out of the config",
        )
    if len(_left_out(arrays, window)) > 1:
        raise Refused(
            Rule.FORM,
            f"{stmt.tensor} is stored to by several statements, for all iterations of a loop at "
            "once, and each leaves out other rows",
            stmt.loc,
            "leave within out of the config",
        )
    match entries[dim]:
        case ir.At(ir.GridIndex(name)):
            axis = arrays.axes[name]
            every = axis.first == 0 and axis.tiles == window.shape[dim] and stmt.mask is None
        case _:
            every = False
    if not every:
        raise Refused(
            Rule.FORM,
            f"not every element of {stmt.tensor} that lies between those stored by one step is "
            "stored by it too",
            stmt.loc,
            "leave within out of the config",
        )


def _left_out(arrays: Arrays, window: Window) -> set[tuple[str, ...]]:
    """Of every store to a window the tiles of which it leaves out positions.

    What a copy holds there is not the block's, and no other store may bring it there.
    """
    stores = (s for s in statements(arrays.ir.body) if isinstance(s, Store))
    own = (s for s in stores if arrays.places.get((s.tensor, s.index, 0)) == window)
    along = ([e.axis for e in s.index if isinstance(e, ir.Along)] for s in own)
    return {tuple(a for a in names if not arrays.axes[a].owned) for names in along}


def _lane_masks(arrays: Arrays, shape: tuple[Dim, ...]) -> list[InRange]:
    """Which positions lie in the range of a tile that a step may not write as a whole."""
    masks: list[InRange] = []
    for dim in shape:
        if isinstance(dim, str) and not arrays.axes[dim].owned:
            lanes = tuple(d if d == dim else 1 for d in shape)
            masks.append(InRange(Mask(dim, "store"), Type(lanes, "bool")))
    return masks


def _aligned(scope: Scope, mask: ir.Expr, shape: tuple[Dim | None, ...], stmt: Store) -> PExpr:
    """A mask laid out as the stored value is, so that it combines with those of the block."""
    value = _as_block(scope, mask, shape, stmt)
    return value if value.type.shape else filled(value, Type((1,) * len(shape), "bool"))


def _as_block(scope: Scope, value: ir.Expr, shape: tuple[Dim | None, ...], stmt: Store) -> PExpr:
    """The stored value, laid out so that it broadcasts against the block; None: one position."""
    logical = value.type.shape
    if not logical:
        return lower(scope, value).expr
    want = _spread(logical, shape, stmt)
    rank = len(logical)
    if want == (*logical, 1):
        return lower(scope, value, "column").expr
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
