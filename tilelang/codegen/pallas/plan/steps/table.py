"""Table: which steps a ragged nest has, and how many there can be."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelang.codegen.pallas.plan.types import AxisPlan, Column, Table, Track, Visit
from tilelang.codegen.pallas.target import Target
from tilelang.ir import KernelIR
from tilelang.schedule.refusal import Need, Refused, Rule

from . import ranges
from .moves import Order


def columns(
    order: Order, helpers: Mapping[str, Visit], effects: Mapping[str, bool], steps: str
) -> tuple[Column, ...]:
    """The columns of the step table, outer to inner.

    `helpers` says which columns must visit more than their ranges; `effects` says which loops
    stand in a body that does something else too, so that an empty range still needs one step.  Of
    loops in a row, the last one has that step: it comes when all of them are through.
    """
    out: list[Column] = []
    for name in order.columns:
        axis = order.axes[name]
        phase = order.phases.index(name) if name in order.phases else None
        # under a tile that no range touches, nothing is known of the ranges further in
        real = not any(stands_in(c, order.axes) for c in out if c.phase is None)
        certain = axis.tiles is not None or (axis.nonempty and real)
        last = phase is None or name == order.phases[-1]
        visit: Visit = "live"
        if steps == "table" and name in helpers:
            visit = helpers[name]
        elif not certain and last and (effects[name] or not real):
            visit = "at_least_one"
        rises = order.rises(name)
        cursor = visit == "cover" or (rises and visit == "live" and steps == "table")
        back = visit == "cover" and not rises
        found = ranges.swept(axis) if visit == "sweep" else axis.range
        stand_in = ranges.stand_in(axis) if visit == "at_least_one" else None
        out.append(Column(name, visit, found, cursor, certain, most(axis), phase, back, stand_in))
    return tuple(out)


def stands_in(column: Column, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether some steps of a column stand for a range or tile that is not there."""
    return replaces_empty(column, axes) or column.visit in ("cover", "sweep")


def replaces_empty(column: Column, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether an empty range of the column gets a step all the same."""
    return column.visit == "at_least_one" and not axes[column.axis].nonempty


def most(axis: AxisPlan) -> int:
    """Steps that one iteration of the outer columns can have."""
    if axis.tiles is not None:
        return axis.tiles
    if axis.block is None:
        return axis.max_extent or 1
    most = axis.limit
    if axis.max_extent is not None:
        most = min(-(-axis.max_extent // axis.block) + 1, most)
    return max(most, 1)


def table(
    found: tuple[Column, ...],
    axes: Mapping[str, AxisPlan],
    steps: str,
    tracks: tuple[Track, ...] = (),
) -> Table | None:
    """The table of these columns, with a bound on its rows that holds for any sorted offsets.

    A range that is disjoint in g touches each of its `limit` tiles once, and one more for every
    boundary that two groups share; an empty range that needs a step adds one per group.  Where
    offsets that break the rules could ask for more, the table is capped.
    """
    if not found:
        return None
    if steps == "rectangle":
        return Table(found, max(math.prod(c.most for c in found), 1), False, "rectangle")
    total, before, capped = 1, 1, False
    nested = [c for c in found if c.phase is None]
    for outer, column in zip([None, *nested], nested, strict=False):
        rows, tight = _rows(axes, column, outer, total, before)
        capped = capped or tight
        before, total = total, rows
    last = nested[-1] if nested else None
    ends = [_rows(axes, c, last, total, before) for c in found if c.phase is not None]
    if ends:
        total, capped = sum(rows for rows, _ in ends), capped or any(tight for _, tight in ends)
    has_steps = {c.axis: c.certain or c.visit != "live" for c in found}
    sure = all(has_steps[c.axis] for c in nested)
    sure = sure and (not ends or any(has_steps[c.axis] for c in found if c.phase is not None))
    return Table(found, max(total, 1), capped, "table", sure, tracks)


def _rows(
    axes: Mapping[str, AxisPlan], column: Column, outer: Column | None, total: int, before: int
) -> tuple[int, bool]:
    """How many rows there are with this column, and whether offsets could ask for more.

    `total` rows without it, `before` without the column around it, `outer`, too.
    """
    axis = axes[column.axis]
    if column.visit == "sweep":
        return total * axis.limit, False
    if column.back:  # every tile that no range touches has a row of its own
        return total * column.most + axis.limit, column.most < axis.limit
    if column.cursor and outer is not None:
        return total + axis.limit - 1, False
    if axis.block is not None and outer is not None and outer.axis in axis.rises:
        tight = before * (axis.limit + 2 * _per_iteration(axes[outer.axis], outer))
        return min(total * column.most, tight), tight < total * axis.limit
    return total * column.most, axis.block is not None and column.most < axis.limit


def _per_iteration(axis: AxisPlan, column: Column) -> int:
    """Steps of a column in one iteration of the columns before it."""
    if axis.tiles is not None:
        return axis.tiles
    return column.most if axis.limit == ranges.UNBOUNDED else max(axis.limit, 1)


def check_fits(ir: KernelIR, table: Table, target: Target, scalar_bytes: int) -> None:
    """Refused if the table does not fit scalar memory, with the sum and what to do."""
    if table.steps != "table" or target.interpreted:  # the interpreter has room for any
        return
    need = table.rows * table.width * 4
    if need + scalar_bytes <= target.smem or scalar_bytes > target.smem:
        return  # tensors that do not fit by themselves are refused with their sum
    raise Refused(
        Rule.FORM,
        f"the step table of {ir.name} needs {table.rows:,} rows of {table.width} numbers, "
        f"{need:,} bytes; {target} has {target.smem - scalar_bytes:,} bytes of scalar memory left",
        ir.loc,
        "use larger blocks, give hl.tile(..., max_extent=) a bound on the length of a group, "
        "or use steps='rectangle'",
        Need("larger", tuple(c.axis for c in table.columns)),
    )
