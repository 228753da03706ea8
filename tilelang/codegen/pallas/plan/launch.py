"""Launch: one placed nest -> dims, table, windows, sections, scratch and memory of one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilelang.codegen.pallas.plan.body.gathers import buffers
from tilelang.codegen.pallas.plan.body.heads import copies, run_all
from tilelang.codegen.pallas.plan.body.lower import KeptValue
from tilelang.codegen.pallas.plan.body.sections import Key, split
from tilelang.codegen.pallas.plan.body.statements import Groups, Phase
from tilelang.codegen.pallas.plan.physical import exprs_of, walk_physical
from tilelang.codegen.pallas.plan.steps.loops import with_loops
from tilelang.codegen.pallas.plan.steps.moves import Order, first_visit, owns
from tilelang.codegen.pallas.plan.steps.revisits import (
    check_consecutive,
    check_exact,
    check_first_visit,
    check_stand_ins,
    check_stream,
)
from tilelang.codegen.pallas.plan.windows.exact import check_cuts
from tilelang.codegen.pallas.plan.windows.outputs import (
    all_windows,
    flat,
    initialised,
    lowered,
    selective,
    whole,
)
from tilelang.codegen.pallas.target import Target, scalar_bytes
from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, KernelIR, Stmt, Var, integers, statement_exprs, walk
from tilelang.ir.chain import Level, level_statements
from tilelang.ir.traversal import loads, statements
from tilelang.passes.drop_implied_masks import drop_implied_masks
from tilelang.passes.fill_pads import fill_pads
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .memory import estimate
from .placement import Placed
from .steps import table as tables
from .types import (
    AtDim,
    AxisPlan,
    Column,
    Condition,
    Dim,
    Ends,
    Enters,
    Form,
    HostArray,
    InPhase,
    InRange,
    Keep,
    Kept,
    Launch,
    PStmt,
    Runs,
    Scratch,
    Section,
    Table,
    Window,
    Write,
)


@dataclass(frozen=True)
class Planned:
    """A launch and the arrays that the host must prepare for it."""

    launch: Launch
    arrays: tuple[HostArray, ...]


def plan_launch(
    problem: Problem,
    config: Config,
    target: Target,
    placed: Placed,
    name: str,
    written: frozenset[str],
    later: frozenset[str] = frozenset(),
) -> Planned:
    """Everything about one launch.

    `written` and `later` are the tensors that earlier and later launches store to.

    Raises PlanError where the config cannot be honoured.
    """
    ir = problem.ir
    _check_config(ir, config, placed)
    levels, leaf = _masked(placed)
    placed = replace(placed, levels=levels, leaf=leaf)
    steps = config.steps or "table"
    arrays, order, groups = lowered(problem, target, placed)
    check_cuts(ir, arrays.windows)
    effects = _effects(groups, levels, placed.phases)
    again = written | later | arrays.read
    outputs, helpers = initialised(problem, arrays, order, steps, written, again, effects)
    columns = tables.columns(order, helpers, effects, steps)
    standing = [c.axis for c in columns if tables.replaces_empty(c, placed.axes)]
    for (tensor, _), window in arrays.windows.items():
        if window.output:
            if window.stream is not None:
                if not window.far:
                    check_stream(tensor, window, placed.axes)
                continue
            partly = selective(groups, window)
            if window.exact:
                check_exact(ir, tensor, window, columns, partly)
            partly = partly or window.exact
            check_first_visit(ir, tensor, outputs[window.ref], order)
            check_consecutive(ir, tensor, window, order, partly)
            how = "worklist" if placed.form == "grid" else steps
            check_stand_ins(tensor, window, order, standing, how)
    table = tables.table(columns, placed.axes, steps, arrays.tracks)
    if table is not None:
        needed = sum(scalar_bytes(ir.tensor(s).shape) for s in arrays.scalars)
        tables.check_fits(ir, table, target, needed)
        table = with_loops(table, placed.axes)
    windows = whole(all_windows(arrays, outputs, config))
    kept, sections = _sections(placed, levels, groups, windows, order, columns)
    sections = run_all(placed, windows, order, sections)
    everything = [stmt for s in sections for stmt in flat(s.body)]
    scratch = tuple(_scratch(k, placed) for k in kept) + copies(windows)
    scratch += buffers(everything, placed.axes, target)
    memory = estimate(ir, target, placed.axes, windows, scratch, sections, table, arrays.scalars)
    dims = _dims(placed, order, windows, table)
    launch = Launch(
        name, placed.form, tuple(placed.axes.values()), dims, table, arrays.scalars, windows,
        scratch, sections, memory, _cores(ir, config, target, dims), ir.loc,
        _prefetches(placed.form, dims, table, windows), _outer_first(placed.axes, dims),
    )  # fmt: skip
    return Planned(launch, tuple(arrays.hosts.values()))


def _check_config(ir: KernelIR, config: Config, placed: Placed) -> None:
    """PlanError for choices that this nest has no place for."""
    if placed.form == "grid" and (config.buffers or 2) > 2:
        raise Refused(
            Rule.CONFIG,
            f"buffers={config.buffers}, but a grid has at most two blocks of an input in flight",
            ir.loc,
            "use loop_type='outer_pipeline' for more",
        )


# ---------------------------------------------------------------- masks


def _masked(placed: Placed) -> tuple[tuple[Level, ...], tuple[Stmt, ...]]:
    for stmt in statements(level_statements(placed.levels, placed.leaf)):
        for expr in statement_exprs(stmt):
            for part in walk(expr):
                _check_position(placed, part, stmt.loc)
    partial = frozenset(n for n, a in placed.axes.items() if a.partial and a.block is not None)
    return drop_implied_masks(*fill_pads(placed.levels, placed.leaf, partial))


def _check_position(placed: Placed, expr: Expr, loc: Loc) -> None:
    """argmax counts from the tile's first lane, which must then be the first of the range."""
    if not (isinstance(expr, Apply) and expr.op in ("argmax", "argmin")):
        return
    dim = expr.args[0].type.shape[int(expr.attr("axis"))]  # type: ignore[call-overload]
    axis = placed.axes.get(dim) if isinstance(dim, str) else None
    if axis is None or axis.block is None:
        return
    low = integers.value_of(axis.begin)
    if low is None or low % axis.block:
        raise Refused(
            Rule.FORM,
            f"{expr.op} along {axis.user}, whose tiles may begin before its range, would count "
            "from the wrong position",
            loc,
            f"compute the maximum, then the smallest {axis.user}.index that reaches it",
        )


# ---------------------------------------------------------------- sections


def _effects(groups: Groups, levels: tuple[Level, ...], phases: tuple[str, ...]) -> dict[str, bool]:
    """Whether something happens in the body around each loop, besides the loop itself.

    Then an empty loop still needs one step, or those statements would never run.  Of loops in a
    row it is the last one.
    """
    out = {}
    for position, level in enumerate(levels):
        writes = [s for g in groups.before[:position] for s in g if isinstance(s, Write)]
        later = [s for g in groups.after[:position] for s in g if isinstance(s, Write | Keep)]
        out[level.axis] = bool(writes or later)
    between = [s for phase in groups.phases for s in phase.before]
    writes = [s for s in (*between, *_all(groups.before)) if isinstance(s, Write)]
    later = [s for s in _all(groups.after) if isinstance(s, Write | Keep)]
    return out | {p: p == phases[-1] and bool(writes or later) for p in phases}


def _all(groups: tuple[tuple[PStmt, ...], ...]) -> list[PStmt]:
    return [s for group in groups for s in group]


def _sections(
    placed: Placed,
    levels: tuple[Level, ...],
    groups: Groups,
    windows: tuple[Window, ...],
    order: Order,
    columns: tuple[Column, ...],
) -> tuple[tuple[KeptValue, ...], tuple[Section, ...]]:
    outputs = frozenset(w.ref for w in windows if w.output)
    parts = split(groups, outputs)
    sections = [_first_visit(w, order) for w in windows if w.init != "none" and w.stream is None]
    for key, body in parts.groups:
        for conditions, stmts in _by_condition(
            placed, levels, groups.phases, columns, key, body, windows
        ):
            sections.append(Section(conditions, stmts))
    used = {s.name for section in sections for s in flat(section.body) if isinstance(s, Keep)}
    return tuple(k for k in parts.kept if k.name in used), tuple(sections)


def _first_visit(window: Window, order: Order) -> Section:
    conditions = first_visit(window, order)
    assert conditions is not None, "check_first_visit comes before"
    return Section(conditions, (), title=window.ref, always=True)


def _by_condition(
    placed: Placed,
    levels: tuple[Level, ...],
    phases: tuple[Phase, ...],
    columns: tuple[Column, ...],
    key: Key,
    body: tuple[PStmt, ...],
    windows: tuple[Window, ...],
) -> list[tuple[tuple[Condition, ...], tuple[PStmt, ...]]]:
    """The statements of one group under the conditions of its place and of steps that are real.

    A step may stand for an empty range, or for a tile that no range touches; what would have an
    effect there runs only if the range holds the tile.
    """
    place = _place_conditions(placed, levels, key)
    owner = {c.name: i for i, level in enumerate(levels) for c in level.carries}
    owner |= {name: len(levels) for phase in phases for name in phase.carries}
    depth = {level.axis: i for i, level in enumerate(levels)}
    depth |= {phase.axis: len(levels) for phase in phases}
    harmful = [
        axis
        for axis in _unsure(placed, levels, columns, key)
        if any(_harmful(s, axis, windows, owner, depth[axis]) for s in flat(body))
    ]
    return [((*place, *(Runs(a) for a in harmful)), body)]


def _place_conditions(placed: Placed, levels: tuple[Level, ...], key: Key) -> tuple[Condition, ...]:
    level, outer = key.level, tuple(lv.axis for lv in levels if lv.axis in placed.columns)
    match key.kind:
        case "leaf":
            return ()
        case "phase":
            return (InPhase(key.phase),)
        case "enter":
            return (Enters(outer, key.phase),)
        case "before" | "after":
            pass
    deeper = [*(lv.axis for lv in levels[level + 1 :] if lv.axis), *placed.phases]
    end: Literal["first", "last"] = "first" if key.kind == "before" else "last"
    out: list[Condition] = []
    if any(a in placed.columns for a in deeper):
        outer = tuple(lv.axis for lv in levels[: level + 1] if lv.axis in placed.columns)
        inner = tuple(a for a in deeper if a in placed.columns)
        out.append(Ends(outer, inner, end))
    out += [AtDim(a, end) for a in deeper if a in placed.trailing]
    return tuple(out)


def _unsure(
    placed: Placed, levels: tuple[Level, ...], columns: tuple[Column, ...], key: Key
) -> list[str]:
    """Columns around this group whose step may lie outside of their range, though it is asked for.

    A range that is only empty under a tile that no range touches is not listed: that tile is.
    Tiles behind the last range get their steps under any index, be it one of no range.
    """
    axes, around = placed.axes, [lv.axis for lv in levels[: key.level + 1] if lv.axis]
    if key.kind == "phase":
        around.append(placed.phases[key.phase])
    tails = [i for i, c in enumerate(columns) if c.visit == "cover"]
    before_tail = columns[: tails[0]] if tails else ()
    nested = [c.axis for c in before_tail if c.phase is None]
    anything = {axis for axis in nested if axes[axis].tiles is None}
    return [
        c.axis
        for c in columns
        if c.axis in around and (c.axis in anything or tables.stands_in(c, axes))
    ]


def _harmful(
    stmt: PStmt, axis: str, windows: tuple[Window, ...], owner: Mapping[str, int], depth: int
) -> bool:
    """Whether the statement would change something in a step outside of the axis' range.

    A carry of a loop further in starts anew in every iteration of this one, so it does no harm.
    """
    if isinstance(stmt, Keep):
        return owner.get(stmt.name, depth + 1) <= depth and not _neutral(stmt, axis)
    if isinstance(stmt, Write) and not stmt.turned:
        window = next(w for w in windows if w.ref == stmt.ref)
        guarded = any(_is_range(e, axis) for x in exprs_of(stmt) for e in walk_physical(x))
        return axis not in window.axes or not guarded
    return False


def _neutral(keep: Keep, axis: str) -> bool:
    """acc + (something that is zero when no position is in range), or a fresh initial value."""
    value = keep.value
    if isinstance(value, Apply) and value.op == "add":
        left, right = value.args
        same = Kept(keep.name, value.type)
        return (left == same and _vanishes(right, axis)) or (
            right == same and _vanishes(left, axis)
        )
    return (
        isinstance(value, Apply)
        and value.op in ("full", "broadcast")
        and not any(isinstance(e, Var) for e in walk_physical(value))
    )


def _vanishes(expr: object, axis: str) -> bool:
    if not isinstance(expr, Apply):
        return False
    if expr.op in ("cast", "neg", "reshape", "transpose"):
        return _vanishes(expr.args[0], axis)
    if expr.op == "sum":
        return _zero_filled(expr.args[0], axis)
    if expr.op == "dot":
        return all(_zero_filled(a, axis) for a in expr.args)
    return False


def _zero_filled(expr: object, axis: str) -> bool:
    if isinstance(expr, Apply) and expr.op in ("cast", "transpose", "reshape"):
        return _zero_filled(expr.args[0], axis)
    if not (isinstance(expr, Apply) and expr.op == "where"):
        return False
    mask, _, other = expr.args
    zero = getattr(other, "value", None) == 0
    return zero and any(_is_range(e, axis) for e in walk_physical(mask))


def _is_range(expr: object, axis: str) -> bool:
    return isinstance(expr, InRange) and expr.mask.axis == axis


def _scratch(kept: KeptValue, placed: Placed) -> Scratch:
    axes = placed.axes
    each = tuple(axes[a].first + (axes[a].tiles or 1) for a in placed.within)
    shape = each + tuple(d if isinstance(d, int) else axes[d].block or 1 for d in kept.type.shape)
    dtype = "int32" if kept.type.dtype == "bool" else kept.type.dtype
    return Scratch(kept.name, shape, dtype)


# ---------------------------------------------------------------- dims and cores


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


def _cores(ir: KernelIR, config: Config, target: Target, dims: tuple[Dim, ...]) -> int:
    cores = config.cores or 1
    if cores == 1:
        return 1
    if cores > target.cores and target.name != "cpu":
        raise Refused(
            Rule.CONFIG,
            f"cores={cores}, but {target} runs a program on {target.cores} core",
            ir.loc,
        )
    if not any(d.semantics == "parallel" for d in dims):
        raise Refused(
            Rule.CONFIG,
            f"cores={cores}, but no parallel axis of {ir.name} owns its output blocks",
            ir.loc,
            "two cores may never write one block: use cores=1",
        )
    return cores


# ---------------------------------------------------------------- the call


def _prefetches(
    form: Form, dims: tuple[Dim, ...], table: Table | None, windows: tuple[Window, ...]
) -> bool:
    """A work list, an index map that reads memory, a block that only a grid pads to its size."""
    if form == "pipeline":
        return False
    reads = any(any(loads(n.expr)) for w in windows for n in w.numbers)
    pads = not dims and any(w.padded != w.shape for w in windows if w.stream is None)
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
