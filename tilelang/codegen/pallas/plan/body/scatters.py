"""Scatters: `table[index, :] = value` -> rows stored one by one, in a block or where they lie."""

from __future__ import annotations

from collections.abc import Callable

from tilelang import ir
from tilelang.codegen.pallas.plan import clamps
from tilelang.codegen.pallas.plan.axis import extents
from tilelang.codegen.pallas.plan.physical import FIRST, Part, PExpr, PutRows, Write
from tilelang.codegen.pallas.plan.windows.choose import Arrays, selects
from tilelang.codegen.pallas.plan.windows.types import (
    ByIndex,
    ByTile,
    Entry,
    Fetched,
    Whole,
    Window,
    WindowDim,
)
from tilelang.ir import Dim, Expr, Store, Type, integers
from tilelang.ir.integers import clamped
from tilelang.language.dtypes import itemsize
from tilelang.schedule.refusal import Refused, Rule

from .gathers import most_copies, register_rows
from .lane_index import lane_in_range, lane_of
from .lower import Scope


def put_rows(scope: Scope, store: Store, block: Callable[[tuple[Dim, ...]], PExpr]) -> Write:
    """`table[index, :] = value`, rows one by one; `block` lays the value out in a shape."""
    arrays = scope.arrays
    window = arrays.find(store.tensor, store.index)
    entries = arrays.entries(store.tensor, store.index)
    at = next(d for d, entry in enumerate(entries) if isinstance(entry, ir.Gather))
    shape = _stored(arrays, store, window, entries, at)
    place, live = _place_of(arrays, store, shape)
    far = isinstance(window.dims[at], Fetched)
    tile = register_rows(window.dims[at], len(shape), window.dtype, arrays.target)
    name = "_".join(("stored", store.tensor, *map(str, shape)))
    stored, part = Type(shape, window.dtype), None
    lanes, *row = extents(stored, arrays.axes)
    copies = most_copies(lanes, (tile, *row), window.dtype, arrays.target)
    match entries[-1]:
        case ir.Span(start, stop) if far and (start, stop) != (0, window.shape[-1]):
            part = Part(start, stop)
        case _:
            pass
    stop = integers.add(FIRST, integers.const(copies))
    stop = integers.minimum(stop, lanes) if lanes % copies else stop
    combine = store.combine
    if window.dtype == "uint32" and combine in ("maximum", "minimum"):
        combine = f"unsigned_{combine}"
    rows = PutRows(place, live, combine, name, tile, stored, far, copies, part, stop, store.tensor)
    select = () if far else selects(arrays, window, store.index, store.tensor)
    return Write(window.ref, select, block(shape), store.loc, rows)


def _place_of(arrays: Arrays, store: Store, shape: tuple[Dim, ...]) -> tuple[Expr, Expr]:
    """The row that a lane goes to, and whether it goes anywhere."""

    def lane(expr: Expr) -> Expr:
        return lane_of(arrays, expr, store.loc)

    sizes = zip(store.index, arrays.ir.tensor(store.tensor).shape, strict=True)
    expr, size = next((e.expr, s) for e, s in sizes if isinstance(e, ir.Gather))
    own = lane(expr)
    inside: list[Expr] = [clamps.compare("ge", own, 0), clamps.compare("lt", own, size)]
    if isinstance(shape[0], str):
        inside += lane_in_range(arrays.axes[shape[0]])
    if store.mask is not None:
        inside.append(lane(_rows_only(store, shape, store.mask)))
    return clamped(own, size), clamps.both(inside, arrays.axes) or inside[0]


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
    arrays: Arrays, store: Store, window: Window, entries: tuple[Entry, ...], at: int
) -> tuple[Dim, ...]:
    """The shape of the rows that are stored: the lanes, then what a row holds of the others."""
    shape: list[Dim] = []
    legal, pairs = True, tuple(zip(entries, window.dims, strict=True))
    _check_bools_and_places(arrays, store, window, pairs)
    for d, (entry, dim) in enumerate(pairs):
        match entry, dim:
            case ir.Gather(expr), _:
                shape += expr.type.shape
                legal = legal and d == at
            case ir.Along(axis), ByTile() | Whole() if d > at and arrays.axes[axis].owned:
                shape.append(axis)
            case ir.Span(start, stop), _ if d > at:
                shape.append(stop - start)
            case ir.At(), ByIndex():
                pass
            case _:
                legal = False
    if not legal or len(shape) < 2:
        raise Refused(
            Rule.FORM,
            f"rows of {store.tensor} can be stored to where an index array picks them along the "
            "first of two or more dimensions, and the others are whole or tiles of a static range",
            store.loc,
            _instead(store, entries[at + 1 :]),
        )
    _check_part(arrays, store, window, entries[-1])
    return tuple(shape)


def _check_part(arrays: Arrays, store: Store, window: Window, last: Entry) -> None:
    """Refused for a part of single rows that fits a register of several: Mosaic cannot place it."""
    lanes, target = arrays.target.lanes, arrays.target
    narrow = isinstance(last, ir.Span) and last.stop - last.start <= lanes < window.shape[-1]
    alone = itemsize(window.dtype) == 4 and len(window.shape) == 2  # else by whole register tiles
    if narrow and alone and not window.far and not target.interpreted:
        raise Refused(
            Rule.FORM,
            f"rows of {store.tensor} are picked by an index array, and {lanes} of its "
            f"{window.shape[-1]} columns, or fewer, are stored of each",
            store.loc,
            f"store the whole rows, or more than {lanes} columns of them",
        )


def _check_bools_and_places(
    arrays: Arrays, store: Store, window: Window, pairs: tuple[tuple[Entry, WindowDim], ...]
) -> None:
    name = store.tensor
    if window.dtype == "bool":
        raise Refused(
            Rule.FORM,
            f"{name} is bool, and a TPU stores no single rows of bools to an argument",
            store.loc,
            f"pass {name} as int8, or return a new array",
        )
    held = any(isinstance(e, ir.At) and isinstance(dim, Whole) for e, dim in pairs)
    if held and not arrays.several.get(name):
        raise Refused(
            Rule.FORM,
            f"two positions of {name} are read from memory, and single rows of a dimension as "
            "short as the second are not copied to where arrays lie",
            store.loc,
            f"let the dimensions be one: pass {name}.reshape(P * B, ...), and store at p * B + b",
        )
    if held:
        raise Refused(
            Rule.FORM,
            f"rows of {name} are stored where an index array picks them, and {name} is also used "
            "at another place in the same loop nest",
            store.loc,
            "use it in a top-level loop of its own",
        )


def _instead(store: ir.Store, behind: tuple[Entry, ...]) -> str:
    """How such rows are stored, or added to; `behind`: the positions behind the one picked."""
    if not isinstance(store.index[0], ir.Gather):
        return (
            f"let the dimension of {store.tensor} that is picked be its first one, store v.T, and "
            "return the transposition"
        )
    match behind:
        case (ir.At(ir.Const(int(c))),):
            return f"store a part of the rows: {_with_columns(store, f'{c}:{c + 1}')}"
        case (ir.At() | ir.Along(),):
            return (
                "loop over the other dimension with hl.grid, let it be the first one, as in "
                f"{store.tensor}[i, ids[t]] = v, and return the transposition"
            )
        case _:
            return f"give {store.tensor} a dimension of length 1: {_with_columns(store, ':')}"


def _with_columns(store: ir.Store, part: str) -> str:
    """How rows of one number are stored, or added to."""
    if store.combine is None:
        return f"{store.tensor}[ids[t], {part}] = v[:, None]"
    op = {"maximum": "max", "minimum": "min"}.get(store.combine, store.combine)
    whole = "slice(None)" if part == ":" else f"slice({part.replace(':', ', ')})"
    return f"hl.atomic_{op}({store.tensor}, [ids[t], {whole}], v[:, None])"
