"""Neighbours: what a step asks of the table besides its own row.

before = maximum(n - 1, 0)               conditions compare the rows beside the step's
live = n < steps                         whether the step stands for anything
rows = first, min(end - first, block)    of a tile that begins where its range does
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.clamps import BOOL
from tilelang.codegen.pallas.plan.types import Column, Launch, Rows, Table
from tilelang.ir import Apply, GridIndex
from tilelang.ir.integers import add, const, maximum, minimum, sub

from .conditions import Condition, Ends, Enters, Turns
from .loops import where
from .names import COUNT, STEP
from .worklist import with_list


def with_steps(launch: Launch) -> Launch:
    """The launch with everything that its text says of steps."""
    axes = tuple(_counted(launch, a) if a.place == "stream" else a for a in launch.axes)
    table = launch.table
    if table is None:
        return replace(launch, axes=axes)
    named = {a.name: a for a in launch.axes}
    columns = tuple(replace(c, rows=_rows(c, named[c.axis])) for c in table.columns)
    table = _beside(replace(table, columns=columns), launch)
    if launch.worklist:
        live = None if table.sure else Apply("lt", (STEP, COUNT), BOOL)
        length = COUNT if table.sure else maximum(COUNT, 1)
        table = replace(with_list(launch, table), live=live, length=length)
    return replace(launch, axes=axes, table=table)


def _counted(launch: Launch, axis: AxisPlan) -> AxisPlan:
    """How many steps a pipeline inside the step has."""
    count = sub(axis.range.stop, axis.range.first)
    if launch.form == "pipeline" and axis.tiles is not None:
        # JAX 0.10.2's interpreter fails on a constant number of steps inside another pipeline
        count = where(Apply("ge", (STEP, const(0)), BOOL), count, const(0))
    return replace(axis, range=replace(axis.range, count=count))


def _rows(column: Column, axis: AxisPlan) -> Rows | None:
    """As far as the range goes; a step that stands for an empty range has a row that exists."""
    if axis.length is None or axis.block is None:
        return None
    first = GridIndex(axis.name)
    count = minimum(sub(minimum(axis.end, axis.length), first), axis.block)
    if column.visit == "live":
        return Rows(first, count)
    return Rows(minimum(first, max(axis.length - 1, 0)), maximum(count, 1))


def _beside(table: Table, launch: Launch) -> Table:
    """The table with the rows beside a step's, as far as conditions ask for them."""
    conditions = [c for section in launch.sections for c in section.conditions]
    turns = any(isinstance(c, Turns) and c.axis is None and c.numbers for c in conditions)
    rows = table.steps != "rectangle"  # there, no row is looked up to see where a loop ends
    before = turns or (rows and _asks(conditions, "first"))
    after = rows and _asks(conditions, "last")
    return replace(
        table,
        before=maximum(sub(STEP, const(1)), 0) if before else None,
        after=minimum(add(STEP, const(1)), sub(COUNT, const(1))) if after else None,
    )


def _asks(conditions: Iterable[Condition], end: str) -> bool:
    for condition in conditions:
        match condition:
            case Ends(outer, _, asked) if outer and asked == end:
                return True
            case Enters() if end == "first":
                return True
            case _:
                pass
    return False
