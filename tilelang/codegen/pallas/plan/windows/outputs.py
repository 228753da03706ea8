"""Outputs: the windows of a launch, and what the first visit of an output's block does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tilelang.analysis.uses import Reference, references
from tilelang.codegen.pallas.plan.body.statements import Groups, lower_body
from tilelang.codegen.pallas.plan.physical import flat, parts_of
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.steps.moves import Order
from tilelang.codegen.pallas.plan.steps.visits import (
    goes_anywhere,
    moves_with_all,
    order_of,
    packed_conflict,
    visits_all,
    window_axes,
)
from tilelang.codegen.pallas.plan.types import (
    AxisPlan,
    ByTile,
    Packed,
    Read,
    Visit,
    Window,
    Write,
)
from tilelang.codegen.pallas.target import Target
from tilelang.ir import KernelIR
from tilelang.ir.chain import level_statements
from tilelang.ir.names import unique
from tilelang.ir.traversal import loads
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

from .choose import Arrays, Wishes, survey
from .types import UNCUT
from .widened import rows_alone


def lowered(problem: Problem, target: Target, placed: Placed) -> tuple[Arrays, Order, Groups]:
    """The body on blocks of arrays.

    An output is seen whole if its block is picked by a number that follows no loop and a visit
    leaves part of it as it was: that block may have been visited before, and may still be on its
    way out.
    """
    found = _references(placed)
    arrays, order = _surveyed(problem, target, placed, found, frozenset())
    groups = lower_body(arrays, placed)
    loose = frozenset(
        tensor
        for (tensor, _), window in arrays.windows.items()
        if window.output and not window.far and goes_anywhere(window) and selective(groups, window)
    )
    if not loose:
        return arrays, order, groups
    arrays, order = _surveyed(problem, target, placed, found, loose)
    groups = lower_body(arrays, placed)
    return arrays, order, groups


def _references(placed: Placed) -> tuple[Reference, ...]:
    """Every load and store of a nest, those of what its levels carry last."""
    body = references(level_statements(placed.levels, placed.leaf))
    carried = ((c, level) for level in placed.levels for c in level.carries)
    loads_of = ((load, c.loc) for c, _ in carried for e in (c.init, c.next) for load in loads(e))
    return (*body, *(Reference(load.tensor, load.index, False, loc) for load, loc in loads_of))


def _surveyed(
    problem: Problem,
    target: Target,
    placed: Placed,
    found: tuple[Reference, ...],
    resident: frozenset[str],
) -> tuple[Arrays, Order]:
    """The windows, chosen anew where their first choice shows that arrays must change for them."""
    arrays = survey(problem.ir, target, placed, found, Wishes(resident=resident))
    order = order_of(placed, tuple(arrays.windows.values()))
    lifted = frozenset(
        tensor
        for (tensor, _), window in arrays.windows.items()
        if window.output
        and isinstance(window.dims[-2], Packed)
        and packed_conflict(window, order, placed.axes, problem.facts)
    )
    widened = rows_alone(arrays)
    if lifted or widened:
        arrays = survey(problem.ir, target, placed, found, Wishes(lifted, widened, resident))
        order = order_of(placed, tuple(arrays.windows.values()))
    return arrays, order


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
    ir, facts = problem.ir, problem.facts
    windows: dict[str, Window] = {}
    helpers: dict[str, Visit] = {}
    for (name, _), window in arrays.windows.items():
        if not window.output:
            continue
        tensor, covered = ir.tensor(name), facts.output(name).covered and name not in again
        if window.stream is not None:
            nothing = tensor.fill is None and not tensor.mutated and name not in written
            whole = nothing if window.far else covered and _owns_blocks(window, arrays.axes)
            windows[window.ref] = window if whole else _read_back(ir, name, window)
            continue
        if window.exact:
            before = tensor.mutated or name in written or (tensor.fill is not None and not covered)
            kept = unique(ir, name, "in_ref") if before else None
            windows[window.ref] = replace(window, existing=kept, fill=tensor.fill or 0)
            continue
        if not covered and (tensor.mutated or name in written):
            windows[window.ref] = replace(
                window, init="existing", existing=unique(ir, name, "in_ref")
            )
            continue
        if tensor.fill is None or covered:
            windows[window.ref] = window
            continue
        sure = all(any(_has_steps(arrays, effects, c) for c in each) for each in order.loops)
        everywhere, help_here = visits_all(window, order, arrays.axes, facts, sure)
        skips = any(
            effects.get(a, False) and how == "cover" and not arrays.axes[a].nonempty
            for a, how in help_here.items()
        )
        skips = skips or any(
            how == "sweep" and _needs_rising(arrays, order, a) for a, how in help_here.items()
        )
        if everywhere and not skips and not (help_here and steps == "rectangle"):
            windows[window.ref] = replace(window, init="fill", fill=tensor.fill)
            helpers |= help_here
        else:
            windows[window.ref] = replace(
                window, init="existing", existing=unique(ir, name, "in_ref"), fill=tensor.fill
            )
    return windows, helpers


def _has_steps(arrays: Arrays, effects: Mapping[str, bool], name: str) -> bool:
    """Whether the loop has a step whenever it is reached."""
    axis = arrays.axes[name]
    return axis.tiles is not None or axis.nonempty or effects.get(name, False)


def _owns_blocks(window: Window, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether every step of a pipeline inside the step writes the whole of its block."""
    dims = [d for d in window.dims if isinstance(d, ByTile)]
    packed = any(isinstance(d, Packed) and d.rows > 1 for d in window.dims)
    return not packed and all(axes[d.axis].owned for d in dims)


def _read_back(ir: KernelIR, name: str, window: Window) -> Window:
    """An output that starts from what the array holds, earlier pipelines' rows included."""
    fill = ir.tensor(name).fill or 0
    return replace(window, init="existing", existing=unique(ir, name, "in_ref"), fill=fill)


def _needs_rising(arrays: Arrays, order: Order, axis: str) -> bool:
    """Whether an output counts on the tiles of a column to rise from one outer step to the next."""
    outputs = [window_axes(w) for w in arrays.windows.values() if w.output]
    return any(axis in moving and not moves_with_all(order, moving, axis) for moving in outputs)


def all_windows(
    arrays: Arrays, outputs: Mapping[str, Window], config: Config
) -> tuple[Window, ...]:
    """Inputs, then copies of what outputs held before, then outputs."""
    found = list(dict.fromkeys(arrays.windows.values()))
    inputs = [replace(w, buffers=config.buffers) for w in found if not w.output]
    written = [outputs[w.ref] for w in found if w.output]
    before = [
        replace(
            w,
            ref=w.existing,
            output=False,
            init="none",
            existing=None,
            passed=w.existing.removesuffix("_ref"),
            back=w.array if w.stream is not None else None,
            stream=UNCUT if w.exact else w.stream,
            turned=None,
        )
        for w in written
        if w.existing is not None
    ]
    return (*inputs, *before, *written)


def selective(groups: Groups, window: Window) -> bool:
    """Whether some store to the window leaves part of the block as it was."""
    for stmt in flat(groups.all):
        if isinstance(stmt, Write) and stmt.ref == window.ref and not stmt.turned:
            partial = any(type(s).__name__ != "All" for s in stmt.select)
            partial = partial or stmt.rows is not None
            reads = [e for e in parts_of(stmt) if isinstance(e, Read) and not e.turned]
            if partial or any(e.ref == window.ref for e in reads):
                return True
    return False


def whole(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """The windows with their arrays' shapes rounded up to whole blocks of all windows on them."""

    def rounded(window: Window) -> Window:
        array = window.array if window.output else window.argument
        steps = (w.rounding for w in windows if array in (w.argument, w.array))
        pairs = zip(window.shape, map(math.lcm, *steps), strict=True)
        return replace(window, whole=tuple(-(-size // step) * step for size, step in pairs))

    return tuple(map(rounded, windows))
