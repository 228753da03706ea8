"""resized(launch, blocks) -> the launch with other blocks, by the rules that depend on blocks.

The structure stays: which loops there are, what a step does, which masks it has.  A loop over one
tile stays a loop, and masks that fall away stay.  What is chosen in the end is planned anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from tilelang.codegen.pallas.plan.axis import AxisPlan, extents
from tilelang.codegen.pallas.plan.lanes import with_tiles
from tilelang.codegen.pallas.plan.memory import estimate
from tilelang.codegen.pallas.plan.physical import Keep, flat
from tilelang.codegen.pallas.plan.steps import ranges
from tilelang.codegen.pallas.plan.steps import table as tables
from tilelang.codegen.pallas.plan.steps.revisits import fewest_fetched
from tilelang.codegen.pallas.plan.types import Dim, Launch, Plan, Table, Window
from tilelang.codegen.pallas.plan.windows.types import (
    Between,
    ByBlock,
    ByTile,
    Edge,
    Number,
    Packed,
    WindowDim,
)
from tilelang.codegen.pallas.plan.windows.unaligned import cut_rows, has_edge, next_to
from tilelang.codegen.pallas.target import scalar_bytes
from tilelang.ir import integers
from tilelang.schedule.refusal import Refusal, attempted

Axes = Mapping[str, AxisPlan]


def resized(plan: Plan, launch: Launch, blocks: Mapping[str, int]) -> Launch | None:
    """None where the structure would be another one, or memory does not suffice."""
    old = {a.name: a for a in launch.axes}
    changed = {n for n, a in old.items() if a.block is not None and a.block != blocks[n]}
    if not changed:
        return launch
    if any(_bound(old[n]) for n in changed) or any(_fixed(w, changed) for w in launch.windows):
        return None
    sized = {n: _sized(a, blocks[n]) if n in changed else a for n, a in old.items()}
    axes = with_tiles(ranges.with_ranges(sized))
    if not all(_has_edges(w, axes) for w in launch.windows):
        return None
    windows = tuple(_window(w, axes) for w in launch.windows)
    found = attempted(lambda: _launch(plan, launch, axes, windows))
    return None if isinstance(found, Refusal) else found


def _bound(axis: AxisPlan) -> bool:
    """Whether it has no loop, or one that other blocks would place elsewhere."""
    return axis.place == "single" or axis.base is not None or axis.length is not None


def _fixed(window: Window, changed: Set[str]) -> bool:
    """Whether some number of a block was made for the blocks that there were."""
    dims = (d for d in window.dims if isinstance(d, ByBlock | Packed))
    return any(not integers.axes(d.expr).isdisjoint(changed) for d in dims)


def _has_edges(window: Window, axes: Axes) -> bool:
    """Whether what lies beside its tiles is still whole blocks, fewer positions than a tile has."""
    return all(has_edge(axes[d.axis], d.block) for d in window.dims if isinstance(d, Edge))


def _sized(axis: AxisPlan, block: int) -> AxisPlan:
    low, high = integers.value_of(axis.begin), integers.value_of(axis.end)
    length = axis.limit * axis.size
    tiles, first = axis.tiles, axis.first
    if tiles is not None and low is not None and high is not None:
        first = low // block
        tiles = max(-(-high // block) - first, 1)
    return replace(axis, block=block, limit=max(-(-length // block), 1), tiles=tiles, first=first)


def _window(window: Window, axes: Axes) -> Window:
    def dim(found: WindowDim, size: int, number: Number) -> tuple[WindowDim, Number]:
        match found:
            case ByTile(axis) if axis in axes:
                return replace(found, block=axes[axis].size), number
            case Between(axis, shift, tile=tile):
                cut = cut_rows(axes[axis], shift, tile, size)
                return cut, replace(number, expr=cut.first)
            case Edge(axis, _, block, after):
                beside = next_to(axes[axis], block, after, size)
                return beside, replace(number, expr=beside.number)
            case _:
                return found, number

    made = map(dim, window.dims, window.shape, window.numbers)
    dims, numbers = zip(*made, strict=True)
    return replace(window, dims=dims, numbers=numbers)


def _launch(plan: Plan, launch: Launch, axes: Axes, windows: tuple[Window, ...]) -> Launch:
    kernel, target = plan.ir, plan.target
    table = None if launch.table is None else _table(launch.table, axes)
    if table is not None:
        needed = sum(scalar_bytes(kernel.tensor(s).shape) for s in launch.scalars)
        tables.check_fits(kernel, table, target, needed)
    kept = {s.name: s for section in launch.sections for s in flat(section.body) if type(s) is Keep}
    scratch = tuple(
        replace(s, shape=(*s.shape[: -len(held)], *held)) if (held := _held(kept.get(s.name), axes))
        else s
        for s in launch.scratch
    )  # fmt: skip
    memory = estimate(
        kernel, target, axes, launch.form, windows, scratch, launch.sections, table, launch.scalars
    )
    dims = _dims(launch.dims, windows, axes)
    return replace(
        launch, axes=tuple(axes.values()), dims=dims, table=table, windows=windows,
        scratch=scratch, memory=memory,
    )  # fmt: skip


def _held(keep: Keep | None, axes: Axes) -> tuple[int, ...]:
    return () if keep is None else extents(keep.value.type, axes)


def _table(table: Table, axes: Axes) -> Table:
    columns = []
    for column in table.columns:
        axis = axes[column.axis]
        found = ranges.swept(axis) if column.visit == "sweep" else axis.range
        columns.append(replace(column, range=found, most=tables.most(axis)))
    made = tables.table(tuple(columns), axes, table.steps, table.tracks)
    assert made is not None
    return replace(made, noted=table.noted)


def _dims(dims: tuple[Dim, ...], windows: tuple[Window, ...], axes: Axes) -> tuple[Dim, ...]:
    """Parallel dimensions come in the order in which the fewest bytes are fetched."""
    extents = [d if d.axis is None else replace(d, extent=axes[d.axis].tiles) for d in dims]
    count = 0
    while count < len(dims) and extents[count].semantics == "parallel" and extents[count].axis:
        count += 1
    by = {d.axis or "": d for d in extents}
    columns = {name for name, axis in axes.items() if axis.place == "table"}
    inner = {d.axis or "" for d in extents[count:] if d.extent != 1}
    deeper = columns | inner
    owning = [d.axis or "" for d in extents[:count]]
    return (*(by[a] for a in fewest_fetched(owning, deeper, windows, axes)), *extents[count:])
