"""Work list: the step table as arrays, which XLA makes of all rows of a column at once.

    for g in hl.grid(G): for tm in hl.tile(offsets[g], offsets[g + 1])

    tm_live = end > begin                        of every g
    tm_seen = running maximum of the stops before it: tiles below it have a row already
    first, count = maximum(first, seen - 1), where(live, clip(stop - first, 0, limit), 0)

The rows of all ranges follow each other: the emitter has a function that expands first and count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilelang.codegen.pallas.plan.axis import AxisPlan, Line, Part, line_name
from tilelang.codegen.pallas.plan.physical import OverRows, scalar
from tilelang.codegen.pallas.plan.reads import varies
from tilelang.codegen.pallas.plan.types import Column, Launch, Listed, Table, Track
from tilelang.ir import Apply, Expr, GridIndex
from tilelang.ir.integers import clamped, const, maximum, minimum, sub

from .loops import BOOL, all_of, any_of, standing, where
from .names import AWAY, COUNT, PHASE, ROW, TILE, seen


def with_list(launch: Launch, table: Table) -> Table:
    """The table with what a work list has of its columns and tracks."""
    axes = {a.name: a for a in launch.axes}
    columns = tuple(
        replace(c, listed=_listed(launch, table, c, axes))
        if i or axes[c.axis].tiles is None or c.phase is not None
        else c
        for i, c in enumerate(table.columns)
    )
    tracks = tuple(replace(t, listed=_of_track(table, t)) for t in table.tracks)
    return replace(table, columns=columns, tracks=tracks, shown=_shown(table, axes))


def _shown(table: Table, axes: Mapping[str, AxisPlan]) -> tuple[tuple[str, Expr], ...]:
    """A grid has a step even if the list is empty, and that must show some block."""
    last = table.columns[-1].axis
    found = [(t.name, t.axes) for t in table.tracks] or [(last, (last,))]
    sizes = {name: min(axes[a].limit for a in own) for name, own in found}
    shown = tuple((name, clamped(GridIndex(name), size)) for name, size in sizes.items())
    return () if table.sure else shown


def _listed(launch: Launch, table: Table, column: Column, axes: Mapping[str, AxisPlan]) -> Listed:
    axis, lines = axes[column.axis], [*column.range.lines]
    outer = [c for c in table.outer if table.columns.index(c) < table.columns.index(column)]
    real = [Apply("lt", (ROW, COUNT), BOOL)] if _spare(table, len(outer), axes) else []
    if column.range.live is None:
        many = axis.limit if column.visit == "sweep" else axis.tiles or 0
        first, count = (_over("filled", e) for e in (column.range.first, const(many)))
    else:
        standing_in = [a.tile.runs for a in standing(table, column, axes)]
        live = all_of([column.range.live, *standing_in, *real])
        first, count = _ragged(column, axis, live, lines)
    if not outer:
        first, count = _over("alone", first), _over("alone", count)
    elif _alike(launch, column, axis):
        first, count = _over("alike", first), _over("alike", count)
    if real and (column.range.live is None or column.visit == "at_least_one"):
        count = where(real[0], count, const(0))
    if column.phase is not None:
        if outer and _only_ends_differ(launch, column, axis):
            first = _over("alike", first)
        first = _line(lines, axis, "first", first)
    rest, left = None, const(0)
    if column.visit == "cover":
        rest = Line(axis.name, "rest", _over("largest", line_name(axis.name, "stop")))
        left = sub(const(axis.limit), rest.name)
    if column.phase is not None or rest is not None:
        count = _line(lines, axis, "count", count)
    rows, stays = _most(table, column, axes), _stays(table, column)
    return Listed(tuple(lines), first, count, rows, rest, left, stays)


def _spare(table: Table, columns: int, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether the first columns may leave rows of the list unused: their ranges are data."""
    return any(axes[c.axis].tiles is None for c in table.columns[:columns])


def _over(what: str, value: Expr) -> Expr:
    how: Any = what
    return scalar(OverRows(how, value))


def _line(lines: list[Line], axis: AxisPlan, part: Part, value: Expr) -> Expr:
    lines.append(Line(axis.name, part, value))
    return lines[-1].name


def _alike(launch: Launch, column: Column, axis: AxisPlan) -> bool:
    """Whether the range is the same in every row, and numbers say so."""
    arrays = column.visit == "sweep" or axis.tiles is not None
    return not (arrays or varies(launch, axis.begin) or varies(launch, axis.end))


def _only_ends_differ(launch: Launch, column: Column, axis: AxisPlan) -> bool:
    differ = axis.tiles is None and varies(launch, axis.end)
    return differ and not (varies(launch, axis.begin) or _follows(column))


def _follows(column: Column) -> bool:
    """Whether a range's first tile depends on the ranges before it."""
    return column.visit == "cover" or column.cursor


def _ragged(column: Column, axis: AxisPlan, live: Expr, lines: list[Line]) -> tuple[Expr, Expr]:
    """The first tile of every row's range, and how many there are."""
    first, stop = column.range.first, column.range.stop
    live = _line(lines, axis, "live", live)
    if _follows(column):
        stop = _line(lines, axis, "stop", where(live, stop, const(0)))
        first = _behind(column, axis, first, stop, live, lines)
        if column.visit == "cover":
            stop = where(live, stop, seen(axis.name))
    most = axis.limit if axis.block is not None else column.most
    count = minimum(maximum(sub(stop, first), 0), most)
    if column.visit != "cover":
        count = where(live, count, const(0))
    if column.stand_in is not None:
        first = _line(lines, axis, "first", column.stand_in)
        count = maximum(count, 1)
    return first, count


def _behind(
    column: Column, axis: AxisPlan, first: Expr, stop: Expr, live: Expr, lines: list[Line]
) -> Expr:
    """Tiles rise over the whole list: every range begins where the ones before it ended."""
    so_far = _line(lines, axis, "seen", maximum(_over("running", stop), 0))
    below = _line(lines, axis, "seen", _over("before", so_far))
    shared = sub(below, const(1))
    if column.visit == "cover":
        again = all_of([live, Apply("lt", (first, below), BOOL)])
        return _line(lines, axis, "start", where(again, shared, below))
    return _line(lines, axis, "start", maximum(first, shared))


def _most(table: Table, column: Column, axes: Mapping[str, AxisPlan]) -> int:
    """How many rows the list can need once this column is there."""
    position = table.columns.index(column)
    if column.phase is not None or position + 1 == len(table.columns):
        return table.rows
    total = 1
    for each in table.columns[: position + 1]:
        limit = axes[each.axis].limit
        total *= limit if each.visit == "sweep" else each.most
        total += limit if each.visit == "cover" else 0
    return min(total, table.rows)


# ---------------------------------------------------------------- loops in a row


def _of_track(table: Table, track: Track) -> Expr | None:
    """The tile of a track: its loop's, else the next one; -1: that of the row before."""
    own = table.phases_of(track)
    if len(own) == len(table.phases):
        return None
    mine = any_of([Apply("eq", (PHASE, const(i)), BOOL) for i in own])
    return where(mine, TILE, AWAY)


def _stays(table: Table, column: Column) -> tuple[Expr, ...]:
    """Where every track is in the rows of one loop in a row."""
    if column.phase is None:
        return ()
    out: list[Expr] = []
    for track in table.tracks:
        own = table.phases_of(track)
        wait = _over("nowhere", line_name(column.axis, "first"))
        waits = column.phase not in own
        for later in reversed([i for i in own if i > column.phase and waits]):
            name = table.phases[later].axis
            first, count = line_name(name, "first"), line_name(name, "count")
            wait = where(Apply("gt", (count, const(0)), BOOL), first, wait)
        out.append(wait)
    return tuple(out)
