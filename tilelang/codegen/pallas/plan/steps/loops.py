"""Loops: what the code that finds the steps computes, as expressions over the rows so far.

    for tm in hl.tile(offsets[g], offsets[g + 1])    ranges disjoint in g, every tile has a row

    stop  = where(end > begin, stop, seen)           tiles below `seen` have a row already,
    start = where(first < seen, seen - 1, seen)      only the last one may be shared

The loops that write the table, and the arithmetic of the rectangle, print these and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tilelang.codegen.pallas.plan.axis import AxisPlan, Line, Part, Range
from tilelang.codegen.pallas.plan.clamps import BOOL
from tilelang.codegen.pallas.plan.physical import Recorded, Rest, Tiles, scalar
from tilelang.codegen.pallas.plan.types import Column, Table, Tail
from tilelang.ir import Apply, Const, Expr, GridIndex, Load, Var
from tilelang.ir.integers import INT, add, const, maximum, minimum, sub

from .names import COUNT, seen

Axes = Mapping[str, AxisPlan]


@dataclass(frozen=True)
class Lines:
    """Lines of one column, in order."""

    axis: str
    lines: list[Line] = field(default_factory=list)

    def line(self, part: Part, value: Expr, axis: str = "") -> Expr:
        """The value by a name, unless it is as short as one."""
        if isinstance(value, Const | Var | GridIndex | Load):
            return value
        line = Line(axis or self.axis, part, value)
        if part != "runs" or line not in self.lines:
            self.lines.append(line)
        return line.name

    def range(self, first: Expr, stop: Expr, live: Expr | None = None) -> Range:
        return Range(tuple(self.lines), first, stop, live)


def with_loops(table: Table, axes: Axes) -> Table:
    """The table with what each of its columns visits."""
    columns = tuple(
        replace(c, visits=_visits(table, c, axes), row=_row(c, axes[c.axis])) for c in table.columns
    )
    table = replace(table, columns=columns)
    in_a_row = (
        replace(c, capped=_capped(table, c), stays=_stays(table, i, axes))
        for i, c in enumerate(table.phases)
    )
    table = replace(table, columns=(*table.outer, *in_a_row))
    columns = tuple(replace(c, risen=_risen(c), tail=_tail(table, c, axes)) for c in table.columns)
    table = replace(table, columns=columns)
    return _rectangle(table, axes) if table.steps == "rectangle" else table


def _row(column: Column, axis: AxisPlan) -> Expr | None:
    """The row that a tile begins with, where its range does."""
    if axis.length is None or axis.block is None:
        return None
    begins = [line.name for line in column.range.lines if line.part == "begin"]
    number = Apply("mul", (GridIndex(axis.name), const(axis.block)), INT)
    return add(begins[0] if begins else axis.begin, number)


def standing(table: Table, column: Column, axes: Axes) -> list[AxisPlan]:
    """The axes around a column that may be at a step which stands for an empty range, or for a
    tile that no range touches."""
    around = table.outer if column.phase is not None else table.columns
    return [
        axes[c.axis]
        for c in around[: table.columns.index(column)]
        if c.visit in ("cover", "sweep")
        or (c.visit == "at_least_one" and not axes[c.axis].nonempty)
    ]


def _visits(table: Table, column: Column, axes: Axes) -> Range:
    """The tiles of one iteration of the columns around: first <= t < stop.

    Nothing runs further in under a step that stands for an empty range or an untouched tile.
    """
    axis, found, made = axes[column.axis], column.range, Lines(column.axis, [*column.range.lines])
    first, stop, live = found.first, found.stop, found.live
    behind = sub(seen(column.axis), const(1))
    if live is None:
        return _named(made, column, first, stop)
    if column.visit == "cover":
        live = all_of([live, *_runs(table, column, axes, made)])
        if column.back and column.most < axis.limit:  # what is not below `seen` has one row at most
            stop = minimum(stop, add(first, const(column.most)))
        stop = made.line("stop", where(live, stop, seen(column.axis)))
        again = all_of([live, Apply("lt", (first, seen(column.axis)), BOOL)])
        start = where(again, first if column.back else behind, seen(column.axis))
        return _named(made, column, made.line("start", start), stop)
    if not column.certain:
        live = all_of([live, *_runs(table, column, axes, made)])
    if column.stand_in is not None:
        first = column.stand_in
        if axis.block is not None and axis.length is None:
            first = _or_stay(table, column, first, _runs(table, column, axes, made))
        first = made.line("first", first)
    if not column.certain:  # what has no tiles has seen none, wherever it begins
        stop = where(live, stop, const(0) if column.cursor else first)
    if column.stand_in is not None:
        stop = maximum(stop, add(first, const(1)))
    if column.cursor:
        first = made.line("first", maximum(first, behind))
    if table.capped and column is table.columns[-1] and column.phase is None:
        stop = minimum(stop, _room(table, column, first))
    return _named(made, column, first, made.line("stop", stop))


def _named(made: Lines, column: Column, first: Expr, stop: Expr) -> Range:
    """Loops in a row know each other's first and stop, which have lines therefore."""
    if column.phase is not None:
        first, stop = made.line("first", first), made.line("stop", stop)
    return made.range(first, stop)


def counts(table: Table, column: Column) -> bool:
    """Whether rows are counted where a loop over the column begins: the outermost has none yet."""
    return column.phase is not None or column.axis != table.columns[0].axis


def _room(table: Table, column: Column, first: Expr) -> Expr:
    """Where a loop from `first` on has filled the table."""
    rows = const(table.rows)
    return add(first, sub(rows, COUNT) if counts(table, column) else rows)


def _capped(table: Table, column: Column) -> Expr | None:
    """Where a loop in a row stops at most: the rows before it have taken their room."""
    visits = column.visits
    assert visits is not None
    return minimum(visits.stop, _room(table, column, visits.first)) if table.capped else None


def _stays(table: Table, position: int, axes: Axes) -> tuple[Expr | None, ...]:
    """Where every track is in the rows of a loop that is none of its own."""
    out: list[Expr | None] = []
    for track in table.tracks:
        own = table.phases_of(track)
        wait = row_before(track.name)
        for later in reversed([i for i in own if i > position]):
            column = table.phases[later]
            assert column.visits is not None
            first, stop = column.visits.first, column.visits.stop
            sure = column.visit in ("at_least_one", "sweep") or axes[column.axis].tiles is not None
            wait = first if sure else where(Apply("gt", (stop, first), BOOL), first, wait)
        out.append(None if position in own else wait)
    return tuple(out)


def _risen(column: Column) -> Expr | None:
    """The cursor behind the loop."""
    assert column.visits is not None
    return maximum(seen(column.axis), column.visits.stop) if column.cursor else None


def _tail(table: Table, column: Column, axes: Axes) -> Tail | None:
    """Tiles behind the last range; the tracks of other loops in a row stay."""
    if column.visit != "cover":
        return None
    outer = table.outer[: table.columns.index(column)]
    around = (_last(axes[c.axis]) or row_before(c.axis) for c in outer)
    at = (None if column.axis in t.axes else row_before(t.name) for t in table.tracks)
    limit = const(axes[column.axis].limit)
    return Tail(seen(column.axis), limit, tuple(around), tuple(at))


def _last(axis: AxisPlan) -> Expr | None:
    return None if axis.tiles is None else const(axis.first + axis.tiles - 1)


def row_before(track: str) -> Expr:
    """Where a track is in the row before; 0 if there is none."""
    return where(Apply("gt", (COUNT, const(0)), BOOL), before(track), const(0))


def _runs(table: Table, column: Column, axes: Axes, made: Lines) -> list[Expr]:
    """Whether each step around a column stands for something, with the lines that name these."""
    return [made.line("runs", a.tile.runs, a.name) for a in standing(table, column, axes)]


def _or_stay(table: Table, column: Column, first: Expr, runs: list[Expr]) -> Expr:
    """Under a step that stands for nothing, the tile of the step before: none goes back."""
    if not runs or table.steps == "rectangle":
        return first
    held = column.axis if column.phase is None else table.track(column.axis).name
    real = Apply("logical_or", (Apply("eq", (COUNT, const(0)), BOOL), all_of(runs)), BOOL)
    return where(real, first, before(held))


def before(held: str) -> Expr:
    """What the row before holds."""
    return scalar(Recorded(held, maximum(sub(COUNT, const(1)), 0)))


def all_of(conditions: Iterable[Expr]) -> Expr:
    """Every condition holds."""
    first, *rest = conditions
    for condition in rest:
        first = Apply("logical_and", (first, condition), BOOL)
    return first


def any_of(conditions: Iterable[Expr]) -> Expr:
    """One of the conditions holds."""
    first, *rest = conditions
    for condition in rest:
        first = Apply("logical_or", (first, condition), BOOL)
    return first


def where(condition: Expr, then: Expr, other: Expr) -> Expr:
    """One number or the other."""
    return Apply("where", (condition, then, other), INT)


# ---------------------------------------------------------------- the rectangle


def _rectangle(table: Table, axes: Axes) -> Table:
    """The step's columns by division; a dead step repeats the last live tile."""
    lines: list[Line] = []
    live: list[Expr] = []
    for position, column in enumerate(table.columns):
        made, visits = Lines(column.axis), column.visits
        assert visits is not None
        inner = math.prod(c.most for c in table.columns[position + 1 :])
        count = scalar(Tiles(COUNT, inner)) if inner > 1 else COUNT
        if position:
            count = made.line("step", scalar(Rest(count, column.most)))
        made.lines.extend(visits.lines)
        if live:  # under a dead outer step, stay where the last live one was
            count = made.line("step", where(all_of(live), count, const(column.most - 1)))
        index = add(count, visits.first)
        if column.range.live is not None:
            live.append(
                made.line("live", Apply("lt", (count, sub(visits.stop, visits.first)), BOOL))
            )
            last = maximum(sub(visits.stop, const(1)), visits.first)
            if column.range.last is not None and column.visit == "live":
                # an empty range stays at the index before it, so that none goes back
                last = column.range.last
            index = minimum(
                minimum(add(visits.first, count), last), max(axes[column.axis].limit - 1, 0)
            )
        lines += [*made.lines, Line(column.axis, "", index)]
    always = Const(True, BOOL)
    return replace(table, lines=tuple(lines), live=all_of(live) if live else always)
