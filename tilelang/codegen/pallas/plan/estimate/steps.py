"""Steps: every step of a launch, in order, with where it is, as arrays.

    grid (tn: 2) x table (g, tm)     tn  0 0 0 1 1 1
                                     g   0 0 1 0 0 1
                                     tm  0 1 1 0 1 1

A launch with very many steps is listed in part: outer dimensions are cut short, and `times` says
how many steps each listed one stands for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from tilelang.codegen.pallas.plan.axis import AxisPlan, Range
from tilelang.codegen.pallas.plan.steps.conditions import (
    AtDim,
    Back,
    Clear,
    Condition,
    Ends,
    Enters,
    InPhase,
    RowStarts,
    Runs,
    Turns,
)
from tilelang.codegen.pallas.plan.types import Column, Launch, Number, Table, Window
from tilelang.ir import Apply, integers

from .numbers import Numbers, Places, value

LISTED = 4096  # steps; a launch of as many is in its steady state


@dataclass(frozen=True)
class TableRows:
    """The rows of a step table, where every loop is in them; `phase`: which loop in a row it is."""

    count: int
    at: Places
    phase: np.ndarray | None = None


@dataclass(frozen=True)
class Steps:
    """Where every listed step is.

    counts   axis of a dimension -> the number of its iteration, from 0 on
    row      of the table, which row it is
    times    steps that each stands for
    """

    launch: Launch
    count: int
    at: Places
    counts: Mapping[str, np.ndarray]
    extents: Mapping[str, int]
    rows: TableRows | None
    row: np.ndarray
    times: float

    def runs(self, conditions: tuple[Condition, ...]) -> np.ndarray:
        """The steps in which all of them hold."""
        found = np.ones(self.count, bool)
        for condition in conditions:
            found &= self._holds(condition)
        return found

    def moves(self, window: Window) -> np.ndarray:
        """The steps that show another block than the step before."""
        if window.held:
            return _first(self.count)
        at = self.at
        tracks = self.launch.table.tracks if self.launch.table is not None else ()
        for track in tracks:
            if track.name == window.track:
                shown = self.at.indices[_held(track.name)]
                at = replace(at, indices={**at.indices, **dict.fromkeys(track.axes, shown)})
        return self._changes(window.numbers, at)

    def _changes(self, numbers: tuple[Number, ...], at: Places) -> np.ndarray:
        found = _first(self.count)
        for number in numbers:
            shown = value(number.expr, at)
            if shown is None:  # a number that is read from memory is another one every time
                moving = [at.indices[a] for a in _axes(number) if a in at.indices]
            else:
                moving = [shown // number.rows]
            for each in moving:
                found |= differs(each, self.count)
        return found

    def _holds(self, condition: Condition) -> np.ndarray:
        match condition:
            case AtDim(axis, end):
                last = self.extents[axis] - 1
                return self.counts[axis] == (0 if end == "first" else last)
            case Turns(numbers, _) if numbers:
                return self._changes(numbers, self.at)
            case Turns():
                return self.row == 0
            case RowStarts(number=number):
                return self._changes((number,), self.at)
            case Runs():
                return np.ones(self.count, bool)
            case Clear(limits, clear):
                return self._clear(limits) == clear
            case Back():  # typical ranges lie one behind the other
                return np.zeros(self.count, bool)
            case Ends() | InPhase() | Enters():
                assert self.rows is not None
                return _of_rows(self.rows, condition)[self.row]
            case _:
                assert_never(condition)

    def _clear(self, limits: tuple[Apply, ...]) -> np.ndarray:
        """The steps in which comparisons hold; none, where data decides that has no values."""
        found = np.ones(self.count, bool)
        for limit in limits:
            here = value(limit, self.at)
            found &= np.zeros(self.count, bool) if here is None else np.asarray(here, bool)
        return found


def listed(launch: Launch, arrays: Numbers) -> Steps:
    """The steps of a launch."""
    axes = {a.name: a for a in launch.axes}
    rows = None if launch.table is None else _some(_rows(launch.table, axes, arrays))
    count = 1 if rows is None else max(rows.count, 1)
    names = [d.axis or "" for d in launch.dims]
    extents = [count if d.axis is None else max(d.extent or 1, 1) for d in launch.dims]
    kept, times = _cut([e if n else 1 for e, n in zip(extents, names, strict=True)], count)
    kept = [k if n else count for k, n in zip(kept, names, strict=True)]
    total = math.prod(kept)
    flat = np.arange(total)
    at: dict[str, np.ndarray] = {}
    for place, name in enumerate(names):
        at[name] = flat // math.prod(kept[place + 1 :]) % kept[place]
    row = at.pop("", np.zeros(total, np.int64))
    cut = {n: k for n, k in zip(names, kept, strict=True) if n}
    places = Places(axes, arrays)
    if rows is not None:
        places = _taken(rows.at, row)
    for name in launch.moving or tuple(at):
        if name in at:
            places = _with_dim(places, axes[name], at[name])
    for name in at:
        if name not in places.indices:
            places = _with_dim(places, axes[name], at[name])
    return Steps(launch, total, places, at, cut, rows, row, times)


def _with_dim(places: Places, axis: AxisPlan, count: np.ndarray) -> Places:
    """A dimension counts from the first tile on, which may move with other loops."""
    first = axis.first if axis.base is None else value(axis.base, places)
    return replace(
        places, indices={**places.indices, axis.name: count + (0 if first is None else first)}
    )


def _cut(extents: list[int], rows: int) -> tuple[list[int], float]:
    """Outer dimensions with fewer iterations, at least two, while there are too many steps."""
    kept, times = list(extents), 1.0
    for place, extent in enumerate(kept):
        others = math.prod(kept) // extent * rows
        if others * extent <= LISTED or extent <= 2:
            continue
        kept[place] = max(2, min(extent, LISTED // max(others, 1)))
        times *= extent / kept[place]
    return kept, times


def differs(number: np.ndarray | int, count: int) -> np.ndarray:
    """The steps in which it is another one than in the step before."""
    found = np.zeros(count, bool)
    if np.ndim(number):
        each = np.asarray(number)
        found[1:] = each[1:] != each[:-1]
    return found


def _first(count: int) -> np.ndarray:
    found = np.zeros(count, bool)
    found[:1] = True
    return found


def _axes(number: Number) -> list[str]:
    return sorted(integers.axes(number.expr))


# ---------------------------------------------------------------- the table


def _rows(table: Table, axes: Mapping[str, AxisPlan], arrays: Numbers) -> TableRows:
    """The rows, outer columns first; of loops in a row, those of each follow each other."""
    rows = TableRows(1, Places(axes, arrays))
    for column in table.outer:
        rows = _nested(rows, column)[0]
    if not table.phases:
        return rows
    around, each = rows, [_nested(rows, column) for column in table.phases]
    origin = np.concatenate([came for _, came in each])
    phase = np.repeat(np.arange(len(each)), [r.count for r, _ in each])
    order = np.lexsort((np.arange(len(origin)), phase, origin))
    at = _taken(around.at, origin[order])
    own = {
        column.axis: _spaced([r.count for r, _ in each], place, np.asarray(found))[order]
        for place, column in enumerate(table.phases)
        if (found := each[place][0].at.indices[column.axis]) is not None
    }
    found = TableRows(len(origin), at, phase[order])
    names = [c.axis for c in table.phases]
    held = {
        _held(t.name): _waiting(np.max([own[a] for a in t.axes], axis=0), origin[order])
        for t in table.tracks
    }
    alone = {a: _waiting(own[a], origin[order]) for a in names}
    return replace(found, at=replace(at, indices={**at.indices, **alone, **held}))


def _some(rows: TableRows) -> TableRows:
    """The rows; one at the begin of all, if typical ranges have none: a launch has a step."""
    if rows.count:
        return rows

    def begun(found: Mapping[str, np.ndarray | int]) -> dict[str, np.ndarray | int]:
        return {name: number if np.size(number) else 0 for name, number in found.items()}

    at = replace(rows.at, indices=begun(rows.at.indices), names=begun(rows.at.names))
    return TableRows(1, at, None if rows.phase is None else np.zeros(1, np.int64))


def _held(track: str) -> str:
    """What a track is called among the indices."""
    return f"track {track}"


def _spaced(counts: list[int], place: int, own: np.ndarray) -> np.ndarray:
    """The tiles of one loop in a row among the rows of all; -1 in those of others."""
    out = np.full(sum(counts), -1)
    begin = sum(counts[:place])
    out[begin : begin + counts[place]] = own
    return out


def _waiting(tiles: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """A track in rows of other loops is where it goes next in this iteration, else where it was."""
    count = len(tiles)
    if not count:
        return tiles
    place = np.where(tiles >= 0, np.arange(count), count)
    later = np.minimum.accumulate(place[::-1])[::-1]
    later = np.where((later < count) & (origin[np.minimum(later, count - 1)] == origin), later, -1)
    before = np.maximum.accumulate(np.where(tiles >= 0, np.arange(count), -1))
    use = np.where(later >= 0, later, np.maximum(before, 0))
    return np.maximum(tiles[use], 0)


def _nested(rows: TableRows, column: Column) -> tuple[TableRows, np.ndarray]:
    """The rows with one more column, and which of the rows before each came from."""
    first, count, at = _range(rows, column)
    came = np.repeat(np.arange(rows.count), count)
    since = np.arange(len(came)) - np.repeat(np.cumsum(count) - count, count)
    places = _taken(at, came)
    indices = {**places.indices, column.axis: first[came] + since}
    return TableRows(len(came), replace(places, indices=indices)), came


def _range(rows: TableRows, column: Column) -> tuple[np.ndarray, np.ndarray, Places]:
    """The first tile and how many there are, for every row so far; with the lines of the range."""
    found = column.range
    at = with_lines(found, rows.at)
    first, stop = value(found.first, at), value(found.stop, at)
    live = 1 if found.live is None else value(found.live, at)
    if first is None or stop is None or live is None:  # nobody knows: half of what it can be
        first, stop, live = 0, max(-(-column.most // 2), 1), 1
    first = np.broadcast_to(np.asarray(first, np.int64), rows.count)
    count = np.where(live, np.maximum(stop - first, 0), 0).astype(np.int64)
    count = np.broadcast_to(np.minimum(count, column.most), rows.count)
    if column.visit == "at_least_one":
        count = np.maximum(count, 1)
    elif column.visit == "sweep":
        limit = at.axes[column.axis].limit
        first, count = np.zeros_like(first), np.full_like(count, limit)
    return first, count, at


def with_lines(found: Range, at: Places) -> Places:
    """The places with the lines that a range is written in."""
    for line in found.lines:
        number = value(line.value, at)
        if number is not None:
            at = replace(at, names={**at.names, line.name.name: number})
    return at


def _taken(at: Places, place: np.ndarray) -> Places:
    def taken(found: Mapping[str, np.ndarray | int]) -> dict[str, np.ndarray | int]:
        return {k: np.asarray(v)[place] if np.ndim(v) else v for k, v in found.items()}

    return replace(at, indices=taken(at.indices), names=taken(at.names))


def _of_rows(rows: TableRows, condition: Ends | InPhase | Enters) -> np.ndarray:
    """The rows in which a condition about the table holds."""
    count = rows.count

    def new(outer: tuple[str, ...]) -> np.ndarray:
        found = _first(count)
        for axis in outer:
            found |= differs(rows.at.indices[axis], count)
        return found

    match condition:
        case InPhase(phase):
            assert rows.phase is not None
            return rows.phase == phase
        case Enters(outer, phase):
            assert rows.phase is not None
            before = np.concatenate([np.full(1, -1), rows.phase[:-1]])
            return (rows.phase >= phase) & (new(outer) | (before < phase))
        case Ends(outer, _, end):
            begins = new(outer)
            if end == "first":
                return begins
            last = np.ones(count, bool)
            last[:-1] = begins[1:]
            return last
        case _:
            assert_never(condition)
