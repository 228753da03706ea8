"""Gathers: `table[index, :]` -> rows fetched one by one into scratch memory and read there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilelang.codegen.pallas.plan.physical import COPIES
from tilelang.codegen.pallas.plan.types import (
    AxisPlan,
    Bind,
    Fetched,
    Inner,
    Part,
    PStmt,
    Row,
    Scratch,
    TakeRows,
    Write,
)
from tilelang.codegen.pallas.plan.windows.choose import Arrays, as_array, selects
from tilelang.codegen.pallas.row_loads import by_row
from tilelang.codegen.pallas.target import MIB, Target, padded_bytes, whole_lanes
from tilelang.ir import (
    Assign,
    At,
    Dim,
    Gather,
    Load,
    Span,
    Type,
    Var,
)
from tilelang.ir.integers import clamped
from tilelang.language.dtypes import itemsize, wide_of
from tilelang.schedule.refusal import Refused, Rule

from .lane_index import lane_of
from .layouts import Layout, Value, physical_shape
from .lower import Scope

TOGETHER = 16  # register tiles of narrow types that are on their way at once, at most


# ---------------------------------------------------------------- one statement for each gather


# ---------------------------------------------------------------- the fetch


def fetches(arrays: Arrays, load: Load) -> bool:
    """Whether a load is put together row by row."""
    return by_row(load, arrays.scalars)


def take_rows(scope: Scope, stmt: Assign, load: Load) -> tuple[PStmt, ...]:
    """`name = table[index, :]`, rows one by one."""
    arrays = scope.arrays
    if load.tensor in arrays.scalars:
        return _numbers(scope, stmt, load)
    at = next(d for d, entry in enumerate(load.index) if isinstance(entry, Gather))
    before = [e for e in load.index[:at] if not isinstance(e, At)]
    several = sum(isinstance(entry, Gather) for entry in load.index) > 1
    if before or several or load.type.dtype == "bool":
        raise Refused(
            Rule.FORM,
            f"rows of {load.tensor} can be picked along one dimension, with single positions in "
            "the dimensions before it",
            load.loc or stmt.loc,
            "make the picked dimension the first one, e.g. with a view of the table",
        )
    entry = load.index[at]
    assert isinstance(entry, Gather)
    place = lane_of(arrays, entry.expr, load.loc or stmt.loc)
    shape = arrays.ir.tensor(load.tensor).shape
    place = clamped(place, shape[at])
    window = arrays.find(load.tensor, load.index)
    entries = as_array(arrays.hosts[load.tensor], load.index)
    where = next(d for d, e in enumerate(entries) if isinstance(e, Gather))
    narrow = len(entries) - where == 2 and itemsize(window.dtype) < 4
    tile = arrays.target.rows(itemsize(window.dtype)) if narrow else 1
    dim = window.dims[where]
    far = isinstance(dim, Fetched)
    tile = dim.rows if isinstance(dim, Fetched) else tile
    select = () if far else selects(arrays, window, load.index, load.tensor)
    if len(load.type.shape) < 2 or any(isinstance(s, Row) for s in select):
        raise Refused(
            Rule.FORM,
            f"rows of {load.tensor} are picked, and of each row single positions that no block "
            "can hold",
            load.loc or stmt.loc,
            "load whole rows, and take the position from them",
        )
    part, kept = _parts(load, arrays.ir.tensor(load.tensor).shape[-1], arrays.target)
    value = TakeRows(
        window.ref, place, where, select, stmt.name, far, tile, shape[at],
        Type(load.type.shape, load.type.dtype), wide_of(window.dtype) if tile > 1 else window.dtype,
        part if far else None, kept if far else None,
    )  # fmt: skip
    return _bound(scope, stmt, value, "plain")


def _parts(load: Load, size: int, target: Target) -> tuple[Part | None, Part | None]:
    """What is copied of the last dimension, and what of that is kept; None: all of it."""
    span = load.index[-1]
    if not isinstance(span, Span) or (span.start, span.stop) == (0, size):
        return None, None
    first, stop = whole_lanes(span, size, target)
    kept = Part(span.start - first, span.stop - first)
    part = Part(first, stop) if (first, stop) != (0, size) else None
    return part or Part(0, size), kept if kept != Part(0, stop - first) else None


def _numbers(scope: Scope, stmt: Assign, load: Load) -> tuple[PStmt, ...]:
    """Numbers of an array in scalar memory: the column of one number for each lane."""
    arrays = scope.arrays
    number = lane_of(arrays, load, load.loc or stmt.loc)
    shape = physical_shape(load.type.shape, "column")
    dtype = number.type.dtype
    value = TakeRows("", number, 0, (), stmt.name, False, 1, 1, Type(shape, dtype), dtype)
    return _bound(scope, stmt, value, "column")


def _bound(scope: Scope, stmt: Assign, value: TakeRows, layout: Layout) -> tuple[PStmt, ...]:
    logical: tuple[Dim, ...] = stmt.value.type.shape
    scope.locs[stmt.name] = stmt.loc
    scope.names[stmt.name] = Value(Var(stmt.name, value.type), layout, logical)
    return (Bind(stmt.name, value, stmt.loc, stmt.user),)


# ---------------------------------------------------------------- scratch memory


def buffers(
    stmts: Iterable[PStmt], axes: Mapping[str, AxisPlan], target: Target
) -> tuple[Scratch, ...]:
    """Where rows are put together, tiles that hold a row each, and the semaphore of the copies."""
    out: dict[str, Scratch] = {}
    stmts = tuple(stmts)
    values = [s.value for s in stmts if not isinstance(s, Inner)]
    takes = [e for e in values if isinstance(e, TakeRows)]
    stores = [s.rows for s in stmts if isinstance(s, Write) and s.rows is not None]
    for rows in stores:
        shape = extents(rows.type, axes)
        out[rows.name] = Scratch(rows.name, shape, rows.held)
        if rows.far and rows.changes:
            row = (rows.tile, *shape[1:]) if len(shape) == 2 else shape[1:]
            out[rows.places] = Scratch(rows.places, (rows.together, *row), rows.type.dtype)
    for take in takes:
        rows = extents(take.type, axes)
        if take.part is not None:
            rows = (*rows[:-1], take.part.stop - take.part.start)
        out[take.rows] = Scratch(take.rows, rows, take.held)
        if take.far and take.tile > 1:
            shape = (together(take, rows, target), take.tile, rows[-1])
            out[take.tiles] = Scratch(take.tiles, shape, take.type.dtype)
    if any(rows.far for rows in (*takes, *stores)):
        out[COPIES] = Scratch(COPIES, (), "semaphore")
    return tuple(out.values())


def extents(value: Type, axes: Mapping[str, AxisPlan]) -> tuple[int, ...]:
    """The shape in numbers."""
    return tuple(d if isinstance(d, int) else axes[d].block or 1 for d in value.shape)


def together(take: TakeRows, rows: tuple[int, ...], target: Target) -> int:
    """How many tiles are on their way at once; they fill two MiB or less."""
    size = padded_bytes((take.tile, rows[-1]), take.type.dtype, target)
    return max(1, min(TOGETHER, rows[0], 2 * MIB // size))
