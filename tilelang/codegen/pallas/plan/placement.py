"""Placement: where every loop of a launch runs: grid dimension, step table, or inside the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilelang.analysis.facts import Facts
from tilelang.analysis.uses import extent, shift_of
from tilelang.codegen.pallas.plan.steps.ranges import UNBOUNDED, with_ranges
from tilelang.codegen.pallas.plan.windows.exact import begin_with_range
from tilelang.codegen.pallas.plan.windows.turned import all_at_once
from tilelang.ir import (
    Apply,
    Axis,
    Const,
    Expr,
    GridIndex,
    KernelIR,
    Loop,
    Stmt,
    TileScalar,
    integers,
    statements,
)
from tilelang.ir.chain import Level, chain, interchange
from tilelang.ir.traversal import rewrite, rewrite_stmt
from tilelang.passes.write_out import drop_unused, write_out
from tilelang.schedule.config import Config
from tilelang.schedule.fixed_ranges import Span, span
from tilelang.schedule.refusal import Refused, Rule

from .lanes import with_tiles
from .loop_order import defined_first, moved_by
from .types import AxisPlan, Form, Place


@dataclass(frozen=True)
class Placed:
    """A launch's loops after placement.

    outward   axes that became outer grid dimensions, outermost first
    columns   axes of the step table, outer to inner
    phases    the last columns, if their loops stand in a row in `leaf` and do not nest
    trailing  ordered static axes, the innermost grid dimensions
    within    parallel axes of which every step runs all iterations
    levels    the sequential axes (columns and trailing) with their statements
    """

    form: Form
    axes: Mapping[str, AxisPlan]
    outward: tuple[str, ...]
    columns: tuple[str, ...]
    trailing: tuple[str, ...]
    within: tuple[str, ...]
    levels: tuple[Level, ...]
    leaf: tuple[Stmt, ...]
    inner: Literal["fori_loop", "unroll"]
    phases: tuple[str, ...] = ()


def place(
    ir: KernelIR,
    facts: Facts,
    config: Config,
    blocks: Mapping[str, int],
    loop: Loop,
    fold: bool = True,
) -> Placed | None:
    """Places the loops of one top-level nest; None if it never runs.

    `fold`: loops in a row become rows of the step table where they can, and no loops in the step.

    Raises PlanError for a loop_type that the nest cannot honour.
    """
    placed = _place(ir, facts, config, blocks, loop, fold, moving=True)
    if placed is None:
        return None
    bases = {n: integers.axes(a.base) for n, a in placed.axes.items() if a.base is not None}
    elsewhere = {n for n, a in placed.axes.items() if a.place in ("table", "within")}
    if any(not {n, *over}.isdisjoint(elsewhere) for n, over in bases.items()):
        return _place(ir, facts, config, blocks, loop, fold, moving=False)
    return placed


def _place(
    ir: KernelIR,
    facts: Facts,
    config: Config,
    blocks: Mapping[str, int],
    loop: Loop,
    fold: bool,
    moving: bool,
) -> Placed | None:
    """The same; `moving`: ranges that move with outer indices have a fixed number of tiles."""
    loop = defined_first(ir, facts, loop)
    names = _axes_of((loop,))
    trips = {n: _trips(ir, facts, n, blocks) for n in names}
    grids: dict[str, Expr] = {
        n: integers.const(ir.axis(n).static[0])  # type: ignore[index]
        for n, count in trips.items()
        if count == 1 and ir.axis(n).kind == "grid"
    }
    ir = _with_constants(ir, grids)
    spans = _spans(ir, names, blocks) if moving else {}
    trips |= {n: found.length // blocks[n] for n, found in spans.items()}
    once = {n for n in names if trips[n] == 1}
    never = {n for n in names if trips[n] == 0}
    body = drop_unused(write_out((loop,), once, never, grids))
    loops = [s for s in body if isinstance(s, Loop)]
    if not body:
        return None
    dynamic = {n for n in names if trips[n] is None or (facts.axis(n).ragged and n not in spans)}
    fold = fold and config.steps != "rectangle"
    loop_type = config.loop_type or _default_loop_type(dynamic, body, fold)
    levels, leaf = _chain(facts, dynamic, body, loops, loop_type)
    fold = fold and loop_type in ("outer_pipeline", "worklist")
    phases = _in_a_row(leaf, dynamic) if fold else ()
    chained = [level.axis for level in levels if level.axis]
    columns = _columns(ir, facts, [*chained, *phases], dynamic)
    outward = tuple(a for a in chained if facts.axis(a).independent and a not in columns)
    rest = [*(a for a in chained if a not in outward), *phases]
    last = len(rest) - 1 if phases else max((rest.index(c) for c in columns), default=-1)
    columns, trailing = tuple(rest[: last + 1]), tuple(rest[last + 1 :])
    _check_loop_type(ir, dynamic, loop_type, columns, names - set(chained) - set(phases) - once)
    levels, leaf = interchange(levels, leaf, outward)
    streams = _streams(leaf) if loop_type == "emit_pipeline" else set()
    _check_streams(ir, loop_type, streams)
    within = all_at_once(ir, facts, config, names - once, outward, streams)
    _check_phases(ir, config, phases, within)
    outward = tuple(a for a in outward if a not in within)
    places = _places(names, once | never, outward + trailing, columns, streams, within)
    axes = {
        n: _axis_plan(ir, facts, ir.axis(n), blocks, places[n], trips[n], spans.get(n))
        for n in sorted(names)
    }
    if loop_type == "worklist":
        _check_worklist(ir, config, columns)
    if config.windows == "exact":
        axes = begin_with_range(ir, facts, config, loop_type, axes, columns)
    axes = with_tiles(with_ranges(axes, {n: ir.axis(n).max_extent or 1 for n in axes}))
    folded = loop_type == "outer_pipeline" or (loop_type == "emit_pipeline" and columns)
    form: Form = "pipeline" if folded else "grid"
    inner: Literal["fori_loop", "unroll"] = "unroll" if loop_type == "unroll" else "fori_loop"
    return Placed(form, axes, outward, columns, trailing, within, levels, leaf, inner, phases)


def _check_phases(
    ir: KernelIR, config: Config, phases: tuple[str, ...], within: tuple[str, ...]
) -> None:
    """PlanError for choices that loops in a row, which are steps, have no place for."""
    chosen = "within" if within else "windows='exact'" if config.windows == "exact" else ""
    if phases and chosen:
        first, second = (ir.axis(n).user for n in phases[:2])
        raise Refused(
            Rule.CONFIG,
            f"{chosen} is not possible where loops in a row, over {first} and {second}, are steps",
            ir.axis(phases[0]).loc,
            f"leave {chosen.split('=')[0]} out, or make a kernel of each loop",
        )


def _spans(ir: KernelIR, names: set[str], blocks: Mapping[str, int]) -> dict[str, Span]:
    """Tile axes whose ranges move with outer indices and are cut by no tile."""
    found = {n: span(ir, ir.axis(n), blocks) for n in sorted(names) if ir.axis(n).kind == "tile"}
    return {n: s for n, s in found.items() if s is not None and s.divisible(blocks[n])}


def _check_worklist(ir: KernelIR, config: Config, columns: tuple[str, ...]) -> None:
    if not columns:
        raise Refused(
            Rule.CONFIG,
            f"loop_type='worklist', but no loop of {ir.name} that steps could be made of has "
            "bounds read from memory",
            ir.loc,
            "leave loop_type out",
        )
    if config.steps == "rectangle":
        raise Refused(
            Rule.CONFIG,
            "a work list has live steps only, so steps='rectangle' says nothing",
            ir.loc,
            "leave steps out, or use loop_type='outer_pipeline'",
        )


def _streams(leaf: tuple[Stmt, ...]) -> set[str]:
    """Innermost loops of the step."""
    loops = [s for s in statements(leaf) if isinstance(s, Loop)]
    return {s.axis for s in loops if not any(isinstance(i, Loop) for i in s.body)}


def _check_streams(ir: KernelIR, loop_type: str, streams: set[str]) -> None:
    if loop_type != "emit_pipeline" or streams:
        return
    raise Refused(
        Rule.CONFIG,
        f"loop_type='emit_pipeline', but no loop of {ir.name} is left to run inside the step",
        ir.loc,
        "use loop_type='outer_pipeline', or leave loop_type out",
    )


def _with_constants(ir: KernelIR, index: Mapping[str, Expr]) -> KernelIR:
    """The kernel with the index of every `hl.grid` axis that runs once written out."""

    def change(expr: Expr) -> Expr | None:
        return index.get(expr.axis) if isinstance(expr, GridIndex) else None

    axes = tuple(
        replace(a, begin=rewrite(a.begin, change), end=rewrite(a.end, change)) for a in ir.axes
    )
    return replace(ir, axes=axes, body=tuple(rewrite_stmt(s, change) for s in ir.body))


def _axes_of(body: tuple[Stmt, ...]) -> set[str]:
    return {s.axis for s in statements(body) if isinstance(s, Loop)}


def _trips(ir: KernelIR, facts: Facts, name: str, blocks: Mapping[str, int]) -> int | None:
    axis = ir.axis(name)
    if axis.kind == "tile" and extent(ir, axis) == 0:
        return 0
    fixed = axis.static
    if fixed is None or facts.axis(name).ragged:
        return None
    begin, end = fixed
    if end <= begin:
        return 0
    if axis.kind == "grid":
        return end - begin
    shift = shift_of(ir, axis)
    if shift is not None and not isinstance(shift, Const):
        return None
    moved = integers.value_of(shift) or 0 if shift is not None else 0
    return -(-(end + moved) // blocks[name]) - (begin + moved) // blocks[name]


def _default_loop_type(dynamic: set[str], body: tuple[Stmt, ...], fold: bool) -> str:
    loops = [s for s in body if isinstance(s, Loop)]
    while len(loops) == 1:
        if loops[0].axis in dynamic:
            return "outer_pipeline"
        body = loops[0].body
        loops = [s for s in body if isinstance(s, Loop)]
    return "outer_pipeline" if fold and _in_a_row(body, dynamic) else "grid"


def _in_a_row(body: tuple[Stmt, ...], dynamic: set[str]) -> tuple[str, ...]:
    """Loops that follow each other, some of them over ranges read from memory, none with loops."""
    loops = [s for s in body if isinstance(s, Loop)]
    nested = any(isinstance(s, Loop) for loop in loops for s in loop.body)
    if len(loops) < 2 or nested or dynamic.isdisjoint(loop.axis for loop in loops):
        return ()
    return tuple(loop.axis for loop in loops)


def _chain(
    facts: Facts, dynamic: set[str], body: tuple[Stmt, ...], loops: list[Loop], loop_type: str
) -> tuple[tuple[Level, ...], tuple[Stmt, ...]]:
    """The chain of the nest; a level without an axis first if statements surround the loop."""

    def stays_inside(loop: Loop) -> bool:
        fact = facts.axis(loop.axis)
        inside = loop_type in ("fori_loop", "unroll")
        if loop_type == "emit_pipeline":
            inside = not any(isinstance(s, Loop) for s in loop.body)
        return inside and (loop.axis in dynamic or fact.kind == "ordered")

    if len(loops) != 1 or stays_inside(loops[0]):
        return (Level("", (), (), ()),), body
    levels, leaf = chain(loops[0], stays_inside)
    position = body.index(loops[0])
    before, after = body[:position], body[position + 1 :]
    if before or after:
        return (Level("", (), before, after), *levels), leaf
    return levels, leaf


def _columns(ir: KernelIR, facts: Facts, chained: list[str], dynamic: set[str]) -> set[str]:
    """Axes whose tiles are known only when the kernel runs, and all that these depend on."""
    found = dynamic.intersection(chained)
    needed = {d for a in found for d in (*facts.axis(a).depends, *moved_by(ir, a))}
    return found | (needed & set(chained))


def _check_loop_type(
    ir: KernelIR, dynamic: set[str], loop_type: str, columns: tuple[str, ...], inner: set[str]
) -> None:
    if loop_type == "grid" and columns:
        ragged = next(c for c in columns if c in dynamic)
        raise Refused(
            Rule.CONFIG,
            f"loop_type='grid' needs static bounds, but those of {ir.axis(ragged).user} are read "
            "from memory",
            ir.axis(ragged).loc,
            "use loop_type='outer_pipeline'",
        )
    for name in sorted(inner):
        if loop_type == "unroll" and name in dynamic:
            raise Refused(
                Rule.CONFIG,
                f"loop_type='unroll' needs static bounds, but those of {ir.axis(name).user} are "
                "read from memory",
                ir.axis(name).loc,
                "use loop_type='outer_pipeline' or 'fori_loop'",
            )


def _places(
    names: set[str],
    once: set[str],
    dims: tuple[str, ...],
    columns: tuple[str, ...],
    streams: set[str],
    within: tuple[str, ...],
) -> dict[str, Place]:
    def where(name: str) -> Place:
        if name in once:
            return "single"
        if name in columns:
            return "table"
        if name in streams:
            return "stream"
        if name in within:
            return "within"
        return "dim" if name in dims else "inner"

    return {n: where(n) for n in names}


def _at_edge(ir: KernelIR, expr: Expr, block: int, blocks: Mapping[str, int]) -> bool:
    """Whether a bound is certainly a multiple of the block: no tile is cut by it."""
    value = integers.value_of(expr)
    if value is not None:
        return value % block == 0
    match expr:
        case TileScalar(name, "begin"):
            return blocks[name] % block == 0 and _at_edge(ir, ir.axis(name).begin, block, blocks)
        case TileScalar(name, "end"):
            return blocks[name] % block == 0 and _at_edge(ir, ir.axis(name).end, block, blocks)
        case Apply("minimum" | "maximum" | "add" | "sub", (left, right)):
            return _at_edge(ir, left, block, blocks) and _at_edge(ir, right, block, blocks)
        case _:
            return False


def _axis_plan(
    ir: KernelIR,
    facts: Facts,
    axis: Axis,
    blocks: Mapping[str, int],
    where: Place,
    trips: int | None,
    moving: Span | None,
) -> AxisPlan:
    fact = facts.axis(axis.name)
    if axis.kind == "grid":
        first = axis.static[0] if axis.static else 0
        return AxisPlan(
            axis.name, axis.user, fact.kind, fact.why, where, None, axis.begin, axis.end, None,
            first, trips, fact.limit or UNBOUNDED, False, True, fact.nonempty, axis.loc,
        )  # fmt: skip
    block, size = blocks[axis.name], extent(ir, axis)
    shift = shift_of(ir, axis)
    begin, end = axis.begin, axis.end
    if shift is not None:
        begin, end = (integers.fold(integers.add(shift, e)) for e in (begin, end))
    if moving is not None:
        base = moving.base(block)
        first = integers.value_of(base)
        return AxisPlan(
            axis.name, axis.user, fact.kind, fact.why, where, block, begin, end, shift,
            first or 0, trips, -(-size // block), False, True, fact.nonempty, axis.loc,
            base=base if first is None else None,
        )  # fmt: skip
    low, high = integers.value_of(begin), integers.value_of(end)
    static = low is not None and high is not None and not fact.ragged
    starts, ends = (_at_edge(ir, e, block, blocks) for e in (begin, end))
    exact = starts and ends
    owned = starts and (ends or (static and high == size))
    return AxisPlan(
        axis.name, axis.user, fact.kind, fact.why, where, block, begin, end, shift,
        (low or 0) // block if static else 0, trips, -(-size // block), not exact, owned,
        fact.nonempty, axis.loc,
    )  # fmt: skip
