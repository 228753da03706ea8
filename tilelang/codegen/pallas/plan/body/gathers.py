"""Gathers: `table[index, :]` -> rows fetched one by one into scratch memory and read there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilelang import ir
from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan, extents
from tilelang.codegen.pallas.plan.moved import MovedRows
from tilelang.codegen.pallas.plan.physical import Part, PStmt, RowsFrom, TakeRows, parts_of
from tilelang.codegen.pallas.plan.types import Scratch
from tilelang.codegen.pallas.plan.windows.choose import as_array, selects
from tilelang.codegen.pallas.plan.windows.types import Fetched, WindowDim
from tilelang.codegen.pallas.target import MIB, Target, padded_bytes, whole_lanes
from tilelang.ir import Type, integers
from tilelang.ir.integers import clamped
from tilelang.language.dtypes import itemsize, wide_of
from tilelang.schedule.refusal import Refused, Rule

from .lane_index import lane_of
from .layouts import Layout, Value, physical_shape
from .lower import Scope

# Copies that are on their way at once, at most.  A guess: no device was there to measure it.
MOST_COPIES, MOST_BYTES = 16, 2 * MIB


def take_rows(scope: Scope, stmt: ir.Assign, load: ir.Load) -> tuple[PStmt, ...]:
    """`name = table[index, :]`, rows one by one."""
    arrays, loc = scope.arrays, load.loc or stmt.loc
    kernel = arrays.ir
    if load.tensor in arrays.scalars:  # the column of one number for each lane
        number = lane_of(arrays, load, loc)
        dtype = number.type.dtype
        column = Type(physical_shape(load.type.shape, "column"), dtype)
        held = wide_of(dtype)  # numbers are stored one by one, in 32 bits
        if held != dtype:
            number = ir.Apply("cast", (number,), Type((), held))
        value = TakeRows("", number, 0, (), stmt.name, False, 1, 1, column, held)
        return _bound(scope, stmt, value, "column")
    rows = [d for d, e in enumerate(load.index) if isinstance(e, ir.Gather)]
    before = [e for e in load.index[: rows[0]] if not isinstance(e, ir.At)]
    entry = load.index[rows[0]]
    if before or len(rows) > 1 or load.type.dtype == "bool":
        raise Refused(
            Rule.FORM,
            f"rows of {load.tensor} can be picked along one dimension, with single positions in "
            "the dimensions before it",
            loc,
            "make the picked dimension the first one, e.g. with a view of the table",
        )
    assert isinstance(entry, ir.Gather)
    size = kernel.tensor(load.tensor).shape[rows[0]]
    place = clamped(lane_of(arrays, entry.expr, loc), size)
    window = arrays.find(load.tensor, load.index)
    entries = as_array(arrays.hosts[load.tensor], load.index)
    where = next(d for d, e in enumerate(entries) if isinstance(e, ir.Gather))
    far = isinstance(window.dims[where], Fetched)
    select = () if far else selects(arrays, window, load.index, load.tensor)
    if len(load.type.shape) < 2 or any(isinstance(s, physical.Row) for s in select):
        raise Refused(
            Rule.FORM,
            f"rows of {load.tensor} are picked, and of each row single positions that no block "
            "can hold",
            loc,
            f"pass it as float32: {load.tensor}.astype(np.float32)"
            if len(load.index) == 1
            else "load whole rows, and take the position from them",
        )
    tile = register_rows(window.dims[where], len(entries) - where, window.dtype, arrays.target)
    held = wide_of(window.dtype) if tile > 1 else window.dtype
    last = kernel.tensor(load.tensor).shape[-1]
    part, kept = _parts(load, last, arrays.target) if far else (None, None)
    value = TakeRows(
        window.ref, place, where, select, stmt.name, far, tile, size, load.type, held, part, kept
    )
    if far and tile > 1:
        value = _tiles(value, arrays.axes, arrays.target)
    return _bound(scope, stmt, value, "plain")


def _tiles(take: TakeRows, axes: Mapping[str, AxisPlan], target: Target) -> TakeRows:
    """Copies of register tiles: so many at once, and which lane each of them is for."""
    count = extents(take.type, axes)[0]
    copies = most_copies(count, (take.tile, _row(take, axes)), take.type.dtype, target)
    lane = integers.add(integers.mul(physical.FIRST, copies), physical.SLOT)
    return replace(take, together=copies, lane=integers.minimum(lane, count - 1))


def _row(take: TakeRows, axes: Mapping[str, AxisPlan]) -> int:
    """Numbers of a row that is put together."""
    whole = extents(take.type, axes)[-1]
    return whole if take.part is None else take.part.stop - take.part.start


def register_rows(dim: WindowDim, place: int, dtype: str, target: Target) -> int:
    """Rows of the register tile that a row is read with, where it cannot be read alone; else 1.

    `place` counts the dimension that is picked from from the last.
    """
    if isinstance(dim, Fetched):
        return dim.rows
    return target.rows(itemsize(dtype)) if place == 2 and itemsize(dtype) < 4 else 1


def _parts(load: ir.Load, size: int, target: Target) -> tuple[Part | None, Part | None]:
    """What is copied of the last dimension, and what of that is kept; None: all of it."""
    span = load.index[-1]
    if not isinstance(span, ir.Span) or (span.start, span.stop) == (0, size):
        return None, None
    first, stop = whole_lanes(span, size, target)
    kept = Part(span.start - first, span.stop - first)
    return Part(first, stop), kept if kept != Part(0, stop - first) else None


def _bound(scope: Scope, stmt: ir.Assign, value: TakeRows, layout: Layout) -> tuple[PStmt, ...]:
    scope.locs[stmt.name] = stmt.loc
    shape = stmt.value.type.shape
    scope.names[stmt.name] = Value(ir.Var(stmt.name, value.type), layout, shape)
    return (physical.Bind(stmt.name, value, stmt.loc, stmt.user),)


def buffers(stmts: Iterable[PStmt], axes: Mapping[str, AxisPlan]) -> tuple[Scratch, ...]:
    """Where rows are put together, tiles that hold a row each, and the semaphore of the copies."""
    stmts = tuple(stmts)
    values = [s.value for s in stmts if not isinstance(s, physical.Inner)]
    takes = [v for v in values if isinstance(v, TakeRows)]
    stores = [s.rows for s in stmts if isinstance(s, physical.Write) and s.rows is not None]
    found: list[Scratch] = []
    for rows in stores:
        shape = extents(rows.type, axes)
        found.append(Scratch(rows.name, shape, rows.held))
        if rows.far and rows.changes:
            row = (rows.tile, *shape[1:]) if len(shape) == 2 else shape[1:]
            found.append(Scratch(rows.places, (rows.together, *row), rows.type.dtype))
    for take in takes:
        shape = (*extents(take.type, axes)[:-1], _row(take, axes))
        found.append(Scratch(take.rows, shape, take.held))
        if take.far and take.tile > 1:
            found.append(
                Scratch(take.tiles, (take.together, take.tile, shape[-1]), take.type.dtype)
            )
    moves = (v for v in values if isinstance(v, MovedRows))
    found += [Scratch(v.name, v.held, "int32") for v in moves]
    cuts = (e for s in stmts for e in parts_of(s) if isinstance(e, RowsFrom))
    found += [Scratch(e.name, e.held(*extents(e.type, axes)), "int32") for e in cuts]
    if any(rows.far for rows in (*takes, *stores)):
        found.append(Scratch(physical.COPIES, (), "semaphore"))
    return tuple({scratch.name: scratch for scratch in found}.values())


def most_copies(rows: int, tile: tuple[int, ...], dtype: str, target: Target) -> int:
    """How many of these rows are on their way at once, each with what lies beside it."""
    return max(1, min(MOST_COPIES, rows, MOST_BYTES // padded_bytes(tile, dtype, target)))
