"""Outputs: the windows of a launch, and what the first visit of an output's block does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tilelang.analysis.uses import IndexedSite, picks, references
from tilelang.codegen.pallas.plan.body.registers import in_registers
from tilelang.codegen.pallas.plan.body.statements import Groups, lower_body
from tilelang.codegen.pallas.plan.physical import flat, parts_of
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.steps.moves import Order
from tilelang.codegen.pallas.plan.steps.revisits import (
    goes_anywhere,
    order_of,
    owns_around,
    packed_conflict,
    visits_all,
)
from tilelang.codegen.pallas.plan.types import All, AxisPlan, MovedRows, Read, Visit, Write
from tilelang.codegen.pallas.target import Target
from tilelang.ir.chain import level_statements
from tilelang.ir.names import unique
from tilelang.ir.traversal import loads
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

from .changed import refuse_late
from .choose import Arrays, survey
from .types import ByTile, Packed, Window
from .widened import rows_alone


def lowered(problem: Problem, target: Target, placed: Placed) -> tuple[Arrays, Order, Groups]:
    """The body on blocks of arrays.

    An output is seen whole if its block is picked by a number that follows no loop and a visit
    leaves part of it as it was: that block may have been visited before, and may still be on its
    way out.
    """
    found = _references(placed)

    def attempt(resident: frozenset[str]) -> tuple[Arrays, Order, Groups]:
        arrays = survey(problem.ir, target, placed, found, resident)
        order = order_of(placed, tuple(arrays.windows.values()))
        lifted, widened = _lifted(arrays, order), rows_alone(arrays)
        if lifted or widened:
            arrays = survey(problem.ir, target, placed, found, resident, lifted, widened)
            order = order_of(placed, tuple(arrays.windows.values()))
        body = lower_body(arrays, placed)
        return arrays, order, body if target.interpreted else in_registers(body)

    first = arrays, _, groups = attempt(frozenset())
    outputs = ((t, w) for (t, _), w in arrays.windows.items() if w.output and not w.far)
    loose = frozenset(t for t, w in outputs if goes_anywhere(w) and selective(groups, w))
    last = attempt(loose) if loose else first
    refuse_late(problem.ir, found, last[0].places)
    return last


def _references(placed: Placed) -> tuple[IndexedSite, ...]:
    """Every load and store of a nest, those of what its levels carry last."""
    carried = [(e, c) for level in placed.levels for c in level.carries for e in (c.init, c.next)]
    reads = ((load, c.loc) for e, c in carried for load in loads(e))
    body = references(level_statements(placed.levels, placed.leaf))
    sites = (IndexedSite(e.tensor, e.index, False, loc, picks(e)) for e, loc in reads)
    return (*body, *sites)


def _lifted(arrays: Arrays, order: Order) -> frozenset[str]:
    """Outputs of which single rows must be blocks of their own: no step could tell them apart."""
    outputs = ((t, w) for (t, _), w in arrays.windows.items() if w.output)
    packed = ((t, w) for t, w in outputs if isinstance(w.dims[-2], Packed))
    return frozenset(t for t, w in packed if packed_conflict(w, order))


def initialised(
    problem: Problem,
    arrays: Arrays,
    order: Order,
    steps: str,
    written: frozenset[str],
    again: frozenset[str],
    effects: Mapping[str, bool],
) -> tuple[dict[str, Window], dict[str, Visit]]:
    """Output windows with what their first visit does, and the columns that must visit more.

    `again` are tensors that this launch reads or that another launch stores to: what one store
    covers is then not all that matters.
    """
    ir, windows, helpers = problem.ir, dict[str, Window](), dict[str, Visit]()
    for (name, _), window in arrays.windows.items():
        if not window.output:
            continue
        tensor, ref = ir.tensor(name), window.ref
        covered = problem.facts.output(name).covered and name not in again
        before = tensor.mutated or name in written  # the array holds something already
        kept = replace(window, init="existing", existing=unique(ir, name, "in_ref"))
        windows[ref] = window
        if not window.stepped:
            nothing = tensor.fill is None and not before
            if not (nothing if window.far else covered and _owns_blocks(window, arrays.axes)):
                windows[ref] = kept
        elif window.exact:
            if before or (tensor.fill is not None and not covered):
                windows[ref] = replace(kept, init="none")
        elif covered:
            continue
        elif before:
            windows[ref] = kept
        elif tensor.fill is not None:
            found = _filled(arrays, order, window, steps, effects)
            filled = replace(window, init="fill", fill=tensor.fill)
            windows[ref] = kept if found is None else filled
            helpers |= found or {}
    return windows, helpers


def _filled(
    arrays: Arrays, order: Order, window: Window, steps: str, effects: Mapping[str, bool]
) -> dict[str, Visit] | None:
    """The columns that must visit more, so that first visits can fill an output; None: they cannot.

    A loop has a step whenever it is reached if its range is never empty, or the body around it does
    something else too.
    """
    axes = arrays.axes
    reached = {a for a, effect in effects.items() if effect}
    reached |= {n for n, axis in axes.items() if axis.tiles is not None or axis.nonempty}
    columns = [{c} for c in order.columns if c not in order.phases]
    columns += [{*order.phases}] if order.phases else []
    found = visits_all(
        window, order, lambda more: all(each & {*reached, *more} for each in columns)
    )
    if not found:
        return found
    skips = any(
        _needs_stand_in(order, a, effects) if how == "cover" else _needs_rising(arrays, order, a)
        for a, how in found.items()
    )
    return None if skips or steps == "rectangle" else found


def _needs_stand_in(order: Order, axis: str, effects: Mapping[str, bool]) -> bool:
    """Whether a step is needed where a column, or one around it, has an empty range.

    A column that covers has none there: it goes on behind the last tile that it was at.
    """
    around = (*(a for a in order.around(axis) if a in order.columns), axis)
    return any(effects.get(a, False) and not order.axes[a].nonempty for a in around)


def _owns_blocks(window: Window, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether every step of a pipeline inside the step writes the whole of its block."""
    dims = [d for d in window.dims if isinstance(d, ByTile)]
    packed = any(isinstance(d, Packed) and d.rows > 1 for d in window.dims)
    return not packed and all(axes[d.axis].owned for d in dims)


def _needs_rising(arrays: Arrays, order: Order, axis: str) -> bool:
    """Whether an output counts on the tiles of a column to rise from one outer step to the next."""
    outputs = [w for w in arrays.windows.values() if w.output and axis in w.axes]
    return not all(owns_around(w, order, axis) for w in outputs)


def all_windows(
    arrays: Arrays, outputs: Mapping[str, Window], config: Config
) -> tuple[Window, ...]:
    """Inputs, then copies of what outputs held before, then outputs."""
    found = list(dict.fromkeys(arrays.windows.values()))
    inputs = [replace(w, buffers=config.buffers if w.axes else None) for w in found if not w.output]
    written = [outputs[w.ref] for w in found if w.output]
    before = [
        replace(
            w,
            ref=w.existing,
            output=False,
            init="none",
            existing=None,
            passed=w.existing.removesuffix("_ref"),
            back=None if w.stepped else w.array,
            stream=None if w.exact else w.stream,
            far=w.exact or w.far,
            turned=None,
        )
        for w in written
        if w.existing is not None
    ]
    return (*inputs, *before, *written)


def early(groups: Groups, windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """The windows, with blocks of rows that are moved fetched early: several steps share them."""
    writes = (s.value for s in flat(groups.all) if isinstance(s, Write))
    refs = {v.source.ref for v in writes if isinstance(v, MovedRows)}
    return tuple(replace(w, early=w.ref in refs) for w in windows)


def selective(groups: Groups, window: Window) -> bool:
    """Whether some store to the window leaves part of the block as it was."""
    for stmt in flat(groups.all):
        if isinstance(stmt, Write) and stmt.ref == window.ref and not stmt.turned:
            reads = (e.ref for e in parts_of(stmt) if isinstance(e, Read) and not e.turned)
            whole = all(isinstance(s, All) for s in stmt.select) and stmt.rows is None
            whole = whole and not isinstance(stmt.value, MovedRows)
            if not whole or window.ref in reads:
                return True
    return False


def whole(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """The windows with their arrays' shapes rounded up to whole blocks of all windows on them."""

    def rounded(window: Window) -> Window:
        array = window.array if window.output else window.argument
        steps = (w.rounding for w in windows if array in (w.argument, w.array))
        pairs = zip(window.long, map(math.lcm, *steps), strict=True)
        return replace(window, whole=tuple(-(-size // step) * step for size, step in pairs))

    return tuple(map(rounded, windows))
