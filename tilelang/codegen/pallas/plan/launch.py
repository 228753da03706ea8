"""Launch: one placed nest -> dims, table, windows, sections, scratch and memory of one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, assert_never

from tilelang import ir
from tilelang.codegen.pallas.target import Target, scalar_bytes
from tilelang.ir import Apply, KernelIR, integers
from tilelang.ir.traversal import loads
from tilelang.passes.drop_implied_masks import drop_implied_masks
from tilelang.passes.fill_pads import fill_pads
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .axis import AxisPlan, extents
from .body.all_lanes import in_all_lanes
from .body.gathers import buffers
from .body.heads import copies, iterations, unrolled
from .body.late_carries import spread_late_carries
from .body.layouts import as_held
from .body.sections import split
from .body.statements import Groups, Key, Lowered
from .memory import UNKNOWN, estimate
from .moved import MovedRows
from .parts import Parts
from .physical import (
    GroupSum,
    InRange,
    Keep,
    Kept,
    PExpr,
    PStmt,
    Rest,
    Write,
    flat,
    parts_of,
    walk_physical,
)
from .placement import Placed
from .rewriting import rewrite
from .steps import revisits
from .steps import table as tables
from .steps.comes_back import noted as seen_of
from .steps.comes_back import returns
from .steps.conditions import AtDim, Condition, Ends, Enters, InPhase, Runs
from .steps.loops import with_loops
from .steps.moves import Order, first_visit, owns
from .steps.neighbours import with_steps
from .steps.parts import parts_of_table
from .types import Column, Dim, Form, Launch, Scratch, Section, Table, in_scratch
from .windows.choose import Arrays
from .windows.exact import check_starts
from .windows.flowing import flowing
from .windows.outputs import all_windows, early, initialised, lowered, selective, whole
from .windows.types import HostArray, Window
from .windows.unaligned import check_cuts

IN_ALL_LANES = "a column in all lanes, so that no use has to spread it"
BY_PHASES = "products of all iterations, before what waits for them"


def plan_launch(
    problem: Problem,
    config: Config,
    target: Target,
    placed: Placed,
    name: str,
    written: frozenset[str],
    later: frozenset[str],
) -> tuple[Launch, tuple[HostArray, ...]]:
    """Everything about one launch, and the arrays that the host must prepare for it.

    `written` and `later` are the tensors that earlier and later launches store to.

    Raises Refused where the config cannot be honoured.
    """
    kernel, axes = problem.ir, placed.axes
    _check_config(kernel, config, placed)
    placed = _masked(placed)
    steps = config.steps or "table"
    arrays, order, groups = lowered(problem, target, placed)
    check_starts(kernel, arrays.windows)
    check_cuts(kernel, config, arrays.windows.values())
    effects = _effects(groups, placed)
    again = written | later | arrays.read
    outputs, helpers = initialised(problem, arrays, order, steps, written, again, effects)
    columns = tables.columns(order, helpers, effects, steps)
    order = replace(order, swept=frozenset(c.axis for c in columns if c.visit == "sweep"))
    how = "worklist" if placed.form == "grid" else steps
    outputs = _checked_outputs(arrays, outputs, groups, order, columns, how)
    table = tables.table(columns, axes, steps, arrays.tracks)
    if table is not None:
        noted = [each for w in arrays.windows.values() for each in w.noted]
        noted += dict.fromkeys(seen_of(w.again) for w in outputs.values() if w.again)
        table = replace(with_loops(table, axes), noted=tuple(noted))
        needed = sum(scalar_bytes(kernel.tensor(s).shape) for s in arrays.scalars)
        tables.check_fits(kernel, table, target, needed)
    windows = whole(all_windows(arrays, outputs, config))
    windows = early(groups, windows) if placed.form == "pipeline" else windows
    _check_bools(problem, target, windows)
    kept, sections = _sections(placed, groups, windows, order, columns)
    spread, sections = in_all_lanes(kept, sections, axes, target.lanes)
    every, sections = unrolled(placed, target, windows, order, spread, sections)
    why = {old.name: IN_ALL_LANES for old, new in zip(kept, spread, strict=True) if old != new}
    why |= {k.name: BY_PHASES for k in every[len(kept) :]}
    scratch = tuple(_scratch(k, placed, why.get(k.name, "")) for k in every) + copies(windows)
    scratch += buffers([stmt for s in sections for stmt in flat(s.body)], axes)
    dims = _dims(placed, order, windows, table)
    called = {w.ref: tensor for (tensor, _), w in arrays.windows.items()}
    parts = _parts(config, target, table, dims, windows, order, placed.form, called)
    cores = _cores(kernel, config, target, dims, placed.form, parts)
    made = Launch(
        name, placed.form, tuple(axes.values()), dims, table, arrays.scalars, windows,
        scratch, sections, UNKNOWN, cores, kernel.loc,
        _prefetches(placed.form, dims, table, windows), _outer_first(axes, dims),
        parts=parts,
    )  # fmt: skip
    bodies = (replace(s, body=_held(s.body, axes, target)) for s in sections)
    made = flowing(with_steps(replace(made, sections=tuple(bodies))), target, config)
    memory = estimate(
        kernel, target, axes, placed.form, made.windows, scratch, sections, table, arrays.scalars
    )
    return replace(made, memory=memory), tuple(arrays.hosts.values())


def _checked_outputs(
    arrays: Arrays, outputs: Mapping[str, Window], groups: Groups, order: Order,
    columns: tuple[Column, ...], how: str,
) -> dict[str, Window]:  # fmt: skip
    """The windows of outputs, those with what comes back; Refused where steps would lose what
    others store."""
    found = dict(outputs)
    for (tensor, _), window in arrays.windows.items():
        if not window.output or window.far:
            continue
        if window.stream is not None:
            revisits.check_stream(tensor, window, order.axes)
            continue
        partly = selective(groups, window)
        if window.exact:
            revisits.check_exact(arrays.ir, tensor, window, columns, partly)
        revisits.check_first_visit(arrays.ir, tensor, outputs[window.ref], order)
        own, partly = outputs[window.ref], partly or window.exact
        again = revisits.check_consecutive(arrays.ir, tensor, own, order, partly, how)
        found[window.ref] = replace(own, again=again)
        revisits.check_stand_ins(tensor, window, order, columns, how)
    return found


def _held(body: Lowered, axes: Mapping[str, AxisPlan], target: Target) -> Lowered:
    """The statements, with values as memory and registers of the target hold them."""
    held = tuple(map(as_held, _with_rests(body, axes)))
    return held if target.interpreted else spread_late_carries(held)


def _with_rests(body: tuple[PStmt, ...], axes: Mapping[str, AxisPlan]) -> tuple[PStmt, ...]:
    """Indices are never negative where they count from 0 on: there, chips have `%` as they do."""

    def change(expr: PExpr) -> PExpr:
        match expr:
            case Apply("mod", (ir.GridIndex(axis) as index, ir.Const(by)), ir.Type(())):
                return Rest(index, int(by)) if axes[axis].counts and by > 0 else expr
            case _:
                return expr

    return tuple(rewrite(stmt, change) for stmt in body)


def _check_config(kernel: KernelIR, config: Config, placed: Placed) -> None:
    """Refused for choices that this nest has no place for."""
    if placed.form == "grid" and (config.buffers or 2) > 2:
        raise Refused(
            Rule.FORM,
            f"buffers={config.buffers}, but a grid has at most two blocks of an input in flight",
            kernel.loc,
            "use loop_type='outer_pipeline' for more",
        )


def _masked(placed: Placed) -> Placed:
    """The nest with masks where lanes of a tile that are not in its range would count."""
    partial = frozenset(n for n, a in placed.axes.items() if a.partial and a.block is not None)
    levels, leaf = drop_implied_masks(*fill_pads(placed.levels, placed.leaf, partial))
    return replace(placed, levels=levels, leaf=leaf)


def _check_bools(problem: Problem, target: Target, windows: tuple[Window, ...]) -> None:
    """Refused for tiles of bools that ragged loops change in place: no TPU copies them."""
    held = any(w.dtype == "bool" for w in windows)
    if target.interpreted or not held or not any(f.ragged for f in problem.facts.axes):
        return
    stored = {s.tensor for s in ir.every_store(problem.ir.body)}
    tensor = next(t for t in problem.ir.tensors if t.dtype == "bool" and t.name in stored)
    raise Refused(
        Rule.FORM,
        f"{tensor.name} is bool and changed in place, and a TPU copies no bools",
        tensor.loc,
        f"pass {tensor.name} as int8, or return a new array",
    )


def _effects(groups: Groups, placed: Placed) -> dict[str, bool]:
    """Whether something happens in the body around each loop, besides the loop itself.

    Then an empty loop still needs one step, or those statements would never run.  Of loops in a
    row it is the last one.  A box is there, too, if no row goes to it.
    """

    def effect(depth: int, *kinds: str) -> bool:
        around = (part for part in groups.parts if part[0].kind in kinds and part[0].level < depth)
        return any(
            isinstance(stmt, Write) or (key.kind == "after" and isinstance(stmt, Keep))
            for key, stmts in around
            for stmt in stmts
        )

    found = {lv.axis: effect(i, "before", "after") for i, lv in enumerate(placed.levels)}
    row = effect(len(placed.levels), "before", "enter", "after")
    moves = (s.value for s in groups.all if isinstance(s, Write) and isinstance(s.value, MovedRows))
    boxes = {c: True for move in moves if move.to_box for c in placed.columns if c != move.groups}
    return found | {p: p == placed.phases[-1] and row for p in placed.phases} | boxes


def _sections(
    placed: Placed,
    groups: Groups,
    windows: tuple[Window, ...],
    order: Order,
    columns: tuple[Column, ...],
) -> tuple[tuple[Kept, ...], tuple[Section, ...]]:
    """The values in scratch memory, and the sections: those of first visits come first.

    A step may stand for an empty range, or for a tile that no range touches; what would have an
    effect there runs only if the range holds the tile.
    """
    groups = split(groups, frozenset(w.ref for w in windows if w.output))
    sections: list[Section] = []
    for window in windows:
        if window.init != "none" and window.stepped:
            conditions = first_visit(window, order)
            assert conditions is not None, "check_first_visit comes before"
            sections.append(Section(conditions, (), title=window.ref, always=True))
    for window in (w for w in windows if w.again):
        for back in returns(window, order):
            conditions = (*(first_visit(window, order) or ()), back)
            sections.append(Section(conditions, (), title=window.ref, always=True))
    for key, body in groups.parts:
        runs = (
            Runs(axis)
            for axis in _unsure(placed, columns, key)
            if any(_harmful(s, axis, windows, _carried(placed, axis)) for s in flat(body))
        )
        sections.append(Section((*_place_conditions(placed, key), *runs), body))
    used = {s.name for section in sections for s in flat(section.body) if isinstance(s, Keep)}
    return tuple(k for k in groups.kept if k.name in used), tuple(sections)


def _place_conditions(placed: Placed, key: Key) -> tuple[Condition, ...]:
    def columns(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(a for a in axes if a in placed.columns)

    axes = tuple(level.axis for level in placed.levels)
    match key.kind:
        case "leaf":
            return ()
        case "phase":
            return (InPhase(key.phase),)
        case "enter":
            return (Enters(columns(axes), key.phase),)
        case "before" | "after":
            pass
        case never:
            assert_never(never)
    deeper = (*axes[key.level + 1 :], *placed.phases)
    end: Literal["first", "last"] = "first" if key.kind == "before" else "last"
    inner = columns(deeper)
    ends = (Ends(columns(axes[: key.level + 1]), inner, end),) if inner else ()
    return (*ends, *(AtDim(a, end) for a in deeper if a in placed.trailing))


def _unsure(placed: Placed, columns: tuple[Column, ...], key: Key) -> list[str]:
    """Columns around this group whose step may lie outside of their range, though it is asked for.

    A range that is only empty under a tile that no range touches is not listed: that tile is.
    Tiles behind the last range get their steps under any index, be it one of no range.
    """
    axes, around = placed.axes, {level.axis for level in placed.levels[: key.level + 1]}
    if key.kind == "phase":
        around.add(placed.phases[key.phase])
    tails = [i for i, c in enumerate(columns) if c.visit == "cover"]
    before_tail = columns[: tails[0]] if tails else ()
    anything = {c.axis for c in before_tail if c.phase is None and axes[c.axis].tiles is None}
    return [
        c.axis
        for c in columns
        if c.axis in around and (c.axis in anything or tables.stands_in(c, axes))
    ]


def _carried(placed: Placed, axis: str) -> set[str]:
    """What the loop over an axis carries, and the loops around it.

    A carry of a loop further in starts anew in every iteration of this one.
    """
    found: set[str] = set()
    for level in placed.levels:
        found |= {c.name for c in level.carries}
        if level.axis == axis:
            return found
    rows = (s for s in placed.leaf if isinstance(s, ir.Loop) and s.axis in placed.phases)
    return found | {c.name for loop in rows for c in loop.carries}


def _harmful(stmt: PStmt, axis: str, windows: tuple[Window, ...], carried: set[str]) -> bool:
    """Whether the statement would change something in a step outside of the axis' range."""
    match stmt:
        case Keep():
            return stmt.name in carried and not _neutral(stmt, axis)
        case Write(turned=False):
            window = next(w for w in windows if w.ref == stmt.ref)
            masked = any(_is_range(e, axis) for e in parts_of(stmt))
            return axis not in window.axes or not masked
        case _:
            return False


def _neutral(keep: Keep, axis: str) -> bool:
    """acc + (something that is zero when no position is in range), or a fresh initial value."""
    same = Kept(keep.name, keep.value.type)
    match keep.value:
        case Apply("add", (left, right)):
            return (left == same and _zero(right, axis)) or (right == same and _zero(left, axis))
        case Apply("full" | "broadcast") as value:
            return not any(isinstance(e, ir.Var) for e in walk_physical(value))
        case _:
            return False


def _zero(expr: PExpr, axis: str) -> bool:
    """Whether a value is zero when no position is in range: other lanes are, and what is summed.

    Of a product both factors must be, because 0 * NaN is NaN.
    """
    match expr:
        case Apply("cast" | "neg" | "reshape" | "transpose" | "sum", (value,)):
            return _zero(value, axis)
        case Apply("dot", (left, right)):
            return _zero(left, axis) and _zero(right, axis)
        case GroupSum(_, rows):  # what is not finite it takes to no other group
            return _zero(rows, axis)
        case Apply("where", (mask, _, ir.Const(0))):
            return any(_is_range(e, axis) for e in walk_physical(mask))
        case _:
            return False


def _is_range(expr: PExpr, axis: str) -> bool:
    return isinstance(expr, InRange) and expr.mask.axis == axis


def _scratch(kept: Kept, placed: Placed, why: str) -> Scratch:
    shape = (*iterations(placed), *extents(kept.type, placed.axes))
    return Scratch(kept.name, shape, in_scratch(kept.type.dtype), why)


def _dims(
    placed: Placed, order: Order, windows: tuple[Window, ...], table: Table | None
) -> tuple[Dim, ...]:
    outputs = [w for w in windows if w.output]

    def semantics(axis: str) -> Literal["parallel", "arbitrary"]:
        own = all(owns(w, axis, placed.axes) for w in outputs)
        return "parallel" if own and placed.axes[axis].kind == "parallel" else "arbitrary"

    dims = [Dim(a, placed.axes[a].tiles, semantics(a)) for a in order.outward]
    if table is not None:
        extent = table.rows if table.steps == "rectangle" else None
        dims.append(Dim(None, extent, "arbitrary"))
    dims += [Dim(a, placed.axes[a].tiles, "arbitrary") for a in order.trailing]
    return tuple(dims)


def _parts(
    config: Config, target: Target, table: Table | None, dims: tuple[Dim, ...],
    windows: tuple[Window, ...], order: Order, form: Form, called: Mapping[str, str],
) -> Parts | str:  # fmt: skip
    """How cores share the rows of a table, where no dimension is shared; why not, or "" """
    cores = config.cores or target.cores
    if cores == 1 or form == "grid" or table is None or table.steps == "rectangle":
        return ""
    return "" if _shared(dims) else parts_of_table(table, dims, windows, order, cores, called)


def _cores(
    kernel: KernelIR, config: Config, target: Target, dims: tuple[Dim, ...], form: Form,
    parts: Parts | str,
) -> int:  # fmt: skip
    """The cores that a pipeline is split over: as many as there are, where steps can be shared.

    A grid needs no word for it: the compiler splits a parallel dimension.
    """
    apart = isinstance(parts, Parts)
    if config.cores is None:
        shared = apart or _shared(dims)
        return target.cores if form == "pipeline" and shared and not target.interpreted else 1
    cores = config.cores
    if cores == 1:
        return 1
    if cores > target.cores and not target.interpreted:
        raise Refused(
            Rule.CONFIG,
            f"cores={cores}, but {target} runs a program on {target.cores} core",
            kernel.loc,
        )
    if not apart and not any(d.semantics == "parallel" for d in dims):
        why = f": {parts}" if parts else ""
        raise Refused(
            Rule.FORM,
            f"cores={cores}, but no parallel axis of {kernel.name} owns its output blocks{why}",
            kernel.loc,
            "two cores may never write one block: use cores=1",
        )
    return cores


def _shared(dims: tuple[Dim, ...]) -> bool:
    """Whether cores can share a dimension."""
    return any(d.semantics == "parallel" and (d.extent or 0) > 1 for d in dims)


def _prefetches(
    form: Form, dims: tuple[Dim, ...], table: Table | None, windows: tuple[Window, ...]
) -> bool:
    """A work list, an index map that reads memory, a block that only a grid pads to its size."""
    if form == "pipeline":
        return False
    reads = any(any(loads(n.expr)) for w in windows for n in w.numbers)
    pads = not dims and any(w.padded != w.shape for w in windows if w.stepped)
    return table is not None or reads or pads


def _outer_first(axes: Mapping[str, AxisPlan], dims: tuple[Dim, ...]) -> tuple[str, ...]:
    found: list[str] = []

    def visit(axis: str) -> None:
        base = axes[axis].base
        for outer in sorted(integers.axes(base)) if base is not None else ():
            visit(outer)
        if axis not in found and axes[axis].place == "dim":
            found.append(axis)

    for dim in dims:
        if dim.axis is not None:
            visit(dim.axis)
    return tuple(found)
