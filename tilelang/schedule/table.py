"""Table: which steps a ragged nest has, and how many there can be."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.facts import Facts
from ..errors import PlanError
from ..ir import KernelIR
from .plan import AxisPlan, Column, Table
from .target import Target


def columns(
    ir: KernelIR,
    facts: Facts,
    names: tuple[str, ...],
    axes: Mapping[str, AxisPlan],
    helpers: Mapping[str, str],
    effects: Mapping[str, bool],
    steps: str,
) -> tuple[Column, ...]:
    """The columns of the step table, outer to inner.

    `helpers` says which columns must visit more than their ranges; `effects` says which loops
    stand in a body that does something else too, so that an empty range still needs one step.
    """
    out: list[Column] = []
    for name in names:
        axis = axes[name]
        # under a tile that no range touches, nothing is known of the ranges further in
        real = not any(stands_in(c, axes) for c in out)
        certain = axis.tiles is not None or (axis.nonempty and real)
        visit = "live"
        if steps == "table" and name in helpers:
            visit = helpers[name]
        elif not certain and (effects[name] or not real):
            visit = "at_least_one"
        tiles = axis.block is not None and axis.length is None
        rising = tiles and name != names[0] and _rises(facts, names, name)
        cursor = rising and visit in ("live", "cover") and steps == "table"
        out.append(Column(name, visit, cursor, certain, _most(ir, axis)))  # type: ignore[arg-type]
    return tuple(out)


def stands_in(column: Column, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether some steps of a column stand for a range or tile that is not there."""
    return replaces_empty(column, axes) or column.visit in ("cover", "sweep")


def replaces_empty(column: Column, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether an empty range of the column gets a step all the same."""
    return column.visit == "at_least_one" and not axes[column.axis].nonempty


def _rises(facts: Facts, names: tuple[str, ...], name: str) -> bool:
    """Whether the tiles of a column rise over the whole table: disjoint ranges all the way up."""
    position = names.index(name)
    if position == 0:
        return True
    outer = names[position - 1]
    return facts.axis(name).disjoint == outer and (position == 1 or _rises(facts, names, outer))


def _most(ir: KernelIR, axis: AxisPlan) -> int:
    """Steps that one iteration of the outer columns can have."""
    if axis.tiles is not None:
        return axis.tiles
    bound = ir.axis(axis.name).max_extent
    if axis.block is None:
        return max(bound or 1, 1)
    if bound is None:
        return max(axis.limit, 1)
    return max(min(-(-bound // axis.block) + 1, axis.limit), 1)


def table(
    facts: Facts, found: tuple[Column, ...], axes: Mapping[str, AxisPlan], steps: str
) -> Table | None:
    """The table of these columns, with a bound on its rows that holds for any sorted offsets.

    A range that is disjoint in g touches each of its `limit` tiles once, and one more for every
    boundary that two groups share; an empty range that needs a step adds one per group.  Where
    offsets that break the rules could ask for more, the table is capped.
    """
    if not found:
        return None
    if steps == "rectangle":
        total = 1
        for column in found:
            total *= column.most
        return Table(found, max(total, 1), False, "rectangle")
    total, before, capped = 1, 1, False
    for position, column in enumerate(found):
        axis = axes[column.axis]
        outer = found[position - 1].axis if position else None
        shared = axis.block is not None and outer is not None
        if column.visit == "sweep":
            before, total = total, total * axis.limit
        elif column.cursor and outer is not None:
            groups = _span(axes, outer)
            before, total = total, before * (axis.limit + groups - 1)
        elif shared and facts.axis(column.axis).disjoint == outer and outer is not None:
            tight = before * (axis.limit + 2 * _span(axes, outer))
            capped = capped or tight < total * axis.limit
            before, total = total, min(total * column.most, tight)
        else:
            capped = capped or (axis.block is not None and column.most < axis.limit)
            before, total = total, total * column.most
    sure = all(c.certain or c.visit in ("cover", "sweep", "at_least_one") for c in found)
    return Table(found, max(total, 1), capped, "table", sure)


def _span(axes: Mapping[str, AxisPlan], name: str) -> int:
    axis = axes[name]
    return axis.tiles if axis.tiles is not None else max(axis.limit, 1)


def check_fits(ir: KernelIR, table: Table, target: Target, scalar_bytes: int) -> None:
    """PlanError if the table does not fit scalar memory, with the sum and what to do."""
    if table.steps != "table":
        return
    need = table.rows * len(table.columns) * 4
    if need + scalar_bytes <= target.smem:
        return
    raise PlanError(
        f"the step table of {ir.name} needs {table.rows:,} rows of {len(table.columns)} numbers, "
        f"{need:,} bytes; {target} has {target.smem - scalar_bytes:,} bytes of scalar memory left",
        ir.loc,
        "use larger blocks, give hl.tile(..., max_extent=) a bound on the length of a group, "
        "or use steps='rectangle'",
    )
