"""Scatters: `table[index, :] = value` -> rows stored one by one, in a block or where they lie."""

from __future__ import annotations

from collections.abc import Callable

from tilelang.codegen.pallas.plan import clamps
from tilelang.codegen.pallas.plan.types import (
    ByIndex,
    ByTile,
    Fetched,
    Part,
    PExpr,
    PutRows,
    Whole,
    Window,
    Write,
)
from tilelang.codegen.pallas.plan.windows.choose import Arrays, as_array, selects
from tilelang.codegen.pallas.target import MIB, padded_bytes
from tilelang.ir import Along, At, Dim, Expr, Gather, Index, Span, Store, Type
from tilelang.ir.integers import clamped
from tilelang.language.dtypes import itemsize
from tilelang.schedule.refusal import Refused, Rule

from .gathers import TOGETHER, extents
from .lane_index import lane_in_range, lane_of
from .lower import Scope


def put_rows(scope: Scope, store: Store, block: Callable[[tuple[Dim, ...]], PExpr]) -> Write:
    """`table[index, :] = value`, rows one by one; `block` lays the value out in a shape."""
    arrays = scope.arrays
    window = arrays.find(store.tensor, store.index)
    entries = as_array(arrays.hosts[store.tensor], store.index)
    at = next(d for d, entry in enumerate(entries) if isinstance(entry, Gather))
    shape = _stored(arrays, store, window, entries, at)
    place, live = _place_of(arrays, store, shape)
    narrow = len(shape) == 2 and itemsize(window.dtype) < 4
    tile = arrays.target.rows(itemsize(window.dtype)) if narrow else 1
    dim = window.dims[at]
    far = isinstance(dim, Fetched)
    tile = dim.rows if isinstance(dim, Fetched) else tile
    name = "_".join(("stored", store.tensor, *map(str, shape)))
    stored = Type(shape, window.dtype)
    rows = PutRows(
        place, live, store.combine, name, tile, stored, far, _together(arrays, stored, tile),
        _part(window, entries[-1]) if far else None,
    )  # fmt: skip
    select = () if far else selects(arrays, window, store.index, store.tensor)
    return Write(window.ref, select, block(shape), store.loc, rows)


def _part(window: Window, entry: Index) -> Part | None:
    if isinstance(entry, Span) and (entry.start, entry.stop) != (0, window.shape[-1]):
        return Part(entry.start, entry.stop)
    return None


def _together(arrays: Arrays, stored: Type, tile: int) -> int:
    """How many rows are on their way at once; with what lies beside them they fill two MiB."""
    lanes, *row = extents(stored, arrays.axes)
    size = padded_bytes((tile, *row), stored.dtype, arrays.target)
    return max(1, min(TOGETHER, lanes, 2 * MIB // size))


def _place_of(arrays: Arrays, store: Store, shape: tuple[Dim, ...]) -> tuple[Expr, Expr]:
    """The row that a lane goes to, and whether it goes anywhere."""

    def lane(expr: Expr) -> Expr:
        return lane_of(arrays, expr, store.loc)

    place: Expr | None = None
    inside: list[Expr] = []
    for entry, size in zip(store.index, arrays.ir.tensor(store.tensor).shape, strict=True):
        match entry:
            case Gather(expr):
                own = lane(expr)
                place = clamped(own, size)
                inside += [clamps.compare("ge", own, 0), clamps.compare("lt", own, size)]
            case _:
                pass
    if isinstance(shape[0], str):
        inside += lane_in_range(arrays.axes[shape[0]])
    if store.mask is not None:
        inside.append(lane(_rows_only(store, shape, store.mask)))
    live = clamps.both(inside, arrays.axes) or inside[0]
    assert place is not None
    return place, live


def _rows_only(store: Store, shape: tuple[Dim, ...], mask: Expr) -> Expr:
    """The mask, if it has one number for each lane, or one for all."""
    own = mask.type.shape
    lanes = own[:1] if len(own) == len(shape) else ()
    if lanes in ((), (1,), shape[:1]) and all(d == 1 for d in own[len(lanes) :]):
        return mask
    raise Refused(
        Rule.FORM,
        f"the mask of rows that are picked of {store.tensor} says which rows are stored, and not "
        "which columns",
        store.loc,
        "use a mask of shape [rows, 1], and hl.where with what is there for columns",
    )


def _stored(
    arrays: Arrays, store: Store, window: Window, entries: tuple[Index, ...], at: int
) -> tuple[Dim, ...]:
    """The shape of the rows that are stored: the lanes, then what a row holds of the others."""
    shape: list[Dim] = []
    legal = window.dtype != "bool"
    for d, (entry, dim) in enumerate(zip(entries, window.dims, strict=True)):
        match entry, dim:
            case Gather(expr), _:
                shape += expr.type.shape
                legal = legal and d == at
            case Along(axis), ByTile() | Whole() if d > at and arrays.axes[axis].owned:
                shape.append(axis)
            case Span(start, stop), _ if d > at:
                shape.append(stop - start)
            case At(), ByIndex():
                pass
            case _:
                legal = False
    if not legal or len(shape) < 2:
        raise Refused(
            Rule.FORM,
            f"rows of {store.tensor} can be stored to where an index array picks them along the "
            "first of two or more dimensions, and the others are whole or tiles of a static range",
            store.loc,
            "give the output a dimension of length 1 for single numbers",
        )
    return tuple(shape)
