"""Placement: where every loop of a launch runs: grid dimension, step table, or inside the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal

from tilelang.codegen.pallas.plan.steps.ranges import UNBOUNDED, with_ranges
from tilelang.codegen.pallas.plan.windows.exact import begin_with_range
from tilelang.codegen.pallas.plan.windows.turned import all_at_once
from tilelang.ir import (
    Apply,
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
from tilelang.ir.traversal import map_range, rewrite, rewrite_body
from tilelang.passes.drop_unused import drop_unused
from tilelang.passes.write_out import write_out
from tilelang.schedule.config import Config
from tilelang.schedule.fixed_ranges import Span, span
from tilelang.schedule.problem import Problem
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


@dataclass(frozen=True)
class Nest:
    """The loops of a launch, without those that run once or never: they are written out.

    problem  the kernel with the index of every `hl.grid` that runs once as a number
    trips    how often every loop runs, None if that is known only when the kernel runs
    spans    ranges that move with outer indices, and have a fixed number of tiles all the same
    dynamic  loops whose steps a table must list
    """

    problem: Problem
    body: tuple[Stmt, ...]
    trips: Mapping[str, int | None]
    spans: Mapping[str, Span]
    dynamic: frozenset[str]

    @property
    def loops(self) -> frozenset[str]:
        """The axes that still have a loop."""
        return frozenset(n for n, count in self.trips.items() if count not in (0, 1))


@dataclass(frozen=True)
class Arrangement:
    """Where each loop of a nest runs; fields as in Placed.

    streams  loops inside the step that are pipelines of their own
    inner    the other loops there
    """

    loop_type: str
    levels: tuple[Level, ...]
    leaf: tuple[Stmt, ...]
    outward: tuple[str, ...]
    columns: tuple[str, ...]
    trailing: tuple[str, ...]
    phases: tuple[str, ...]
    within: tuple[str, ...]
    streams: frozenset[str]
    inner: frozenset[str]

    def place(self, name: str) -> Place:
        """Where a loop runs that is not written out."""
        if name in self.columns:
            return "table"
        if name in self.streams:
            return "stream"
        if name in self.within:
            return "within"
        return "dim" if name in self.outward or name in self.trailing else "inner"


def place(
    problem: Problem, config: Config, blocks: Mapping[str, int], loop: Loop, fold: bool = True
) -> Placed | None:
    """Places the loops of one top-level nest; None if it never runs.

    `fold`: loops in a row become rows of the step table where they can, and no loops in the step.

    Raises PlanError for a loop_type that the nest cannot honour.
    """
    loop = defined_first(problem, loop)
    trips = {n: _trips(problem, n, blocks) for n in sorted(_axes_of((loop,)))}
    grids = {n for n, count in trips.items() if count == 1 and problem.axis(n).kind == "grid"}
    numbers = {n: integers.const((problem.axis(n).static or (0, 1))[0]) for n in grids}
    problem = _with_constants(problem, numbers)
    nest = _nest(problem, loop, trips, numbers, _spans(problem, trips, blocks), blocks)
    if not nest.body:
        return None
    arranged = _arranged(nest, config, fold)
    if _moves_with_steps(nest, arranged, blocks):
        nest = _nest(problem, loop, trips, numbers, {}, blocks)
        arranged = _arranged(nest, config, fold)
    _check(problem.ir, nest, config, arranged)
    return _placed(nest, config, blocks, arranged)


def _nest(
    problem: Problem,
    loop: Loop,
    trips: Mapping[str, int | None],
    numbers: Mapping[str, Expr],
    spans: Mapping[str, Span],
    blocks: Mapping[str, int],
) -> Nest:
    trips = {**trips, **{n: found.length // blocks[n] for n, found in spans.items()}}
    once, never = ({n for n, count in trips.items() if count == many} for many in (1, 0))
    body = drop_unused(write_out((loop,), once, never, dict(numbers)))
    ragged = {n for n in trips if problem.fact(n).ragged and n not in spans}
    unknown = {n for n, count in trips.items() if count is None}
    return Nest(problem, body, trips, spans, frozenset(ragged | unknown))


def _arranged(nest: Nest, config: Config, fold: bool) -> Arrangement:
    """Where the loops run: loops of the table and all that they depend on first, then the rest."""
    fold = fold and config.steps != "rectangle"
    loop_type = config.loop_type or _default_loop_type(nest, fold)
    levels, leaf = _chain(nest, loop_type)
    fold = fold and loop_type in ("outer_pipeline", "worklist")
    phases = _in_a_row(leaf, nest.dynamic) if fold else ()
    chained = [level.axis for level in levels if level.axis]
    needed = _columns(nest, [*chained, *phases])
    outward = tuple(a for a in chained if nest.problem.fact(a).independent and a not in needed)
    rest = [*(a for a in chained if a not in outward), *phases]
    last = len(rest) - 1 if phases else max((rest.index(c) for c in needed), default=-1)
    levels, leaf = interchange(levels, leaf, outward)
    streams = _streams(leaf) if loop_type == "emit_pipeline" else frozenset()
    within = all_at_once(nest.problem, config, nest.loops, outward, streams)
    return Arrangement(
        loop_type=loop_type,
        levels=levels,
        leaf=leaf,
        outward=tuple(a for a in outward if a not in within),
        columns=tuple(rest[: last + 1]),
        trailing=tuple(rest[last + 1 :]),
        phases=phases,
        within=within,
        streams=streams,
        inner=nest.loops.difference(chained, phases),
    )


def _moves_with_steps(nest: Nest, arranged: Arrangement, blocks: Mapping[str, int]) -> bool:
    """Whether a range moves with a loop that is no dimension of the grid, or is of one itself."""
    elsewhere = {*arranged.columns, *arranged.within}
    bases = {n: found.base(blocks[n]) for n, found in nest.spans.items()}
    return any(
        not {n, *integers.axes(base)}.isdisjoint(elsewhere)
        for n, base in bases.items()
        if integers.value_of(base) is None
    )


def _check(ir: KernelIR, nest: Nest, config: Config, arranged: Arrangement) -> None:
    """PlanError for what the config asks of loops that cannot run that way."""
    _check_loop_type(ir, nest.dynamic, arranged)
    _check_streams(ir, arranged.loop_type, arranged.streams)
    _check_phases(ir, config, arranged.phases, arranged.within)
    if arranged.loop_type == "worklist":
        _check_worklist(ir, config, arranged.columns)


def _placed(nest: Nest, config: Config, blocks: Mapping[str, int], arranged: Arrangement) -> Placed:
    problem, loop_type = nest.problem, arranged.loop_type
    places: dict[str, Place] = {
        n: arranged.place(n) if n in nest.loops else "single" for n in nest.trips
    }
    axes = {n: _axis_plan(nest, n, blocks, where) for n, where in places.items()}
    if config.windows == "exact":
        axes = begin_with_range(problem, config, loop_type, axes, arranged.columns)
    axes = with_tiles(with_ranges(axes, {n: problem.axis(n).max_extent or 1 for n in axes}))
    folded = loop_type == "outer_pipeline" or (loop_type == "emit_pipeline" and arranged.columns)
    return Placed(
        form="pipeline" if folded else "grid",
        axes=axes,
        outward=arranged.outward,
        columns=arranged.columns,
        trailing=arranged.trailing,
        within=arranged.within,
        levels=arranged.levels,
        leaf=arranged.leaf,
        inner="unroll" if loop_type == "unroll" else "fori_loop",
        phases=arranged.phases,
    )


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


def _spans(problem: Problem, names: Iterable[str], blocks: Mapping[str, int]) -> dict[str, Span]:
    """Tile axes whose ranges move with outer indices and are cut by no tile."""
    tiles = (problem.axis(n) for n in names if problem.axis(n).kind == "tile")
    found = {axis.name: span(problem, axis, blocks) for axis in tiles}
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


def _streams(leaf: tuple[Stmt, ...]) -> frozenset[str]:
    """Innermost loops of the step."""
    loops = [s for s in statements(leaf) if isinstance(s, Loop)]
    return frozenset(s.axis for s in loops if not any(isinstance(i, Loop) for i in s.body))


def _check_streams(ir: KernelIR, loop_type: str, streams: Set[str]) -> None:
    if loop_type != "emit_pipeline" or streams:
        return
    raise Refused(
        Rule.CONFIG,
        f"loop_type='emit_pipeline', but no loop of {ir.name} is left to run inside the step",
        ir.loc,
        "use loop_type='outer_pipeline', or leave loop_type out",
    )


def _with_constants(problem: Problem, index: Mapping[str, Expr]) -> Problem:
    """The kernel with the index of every `hl.grid` axis that runs once written out."""
    if not index:
        return problem

    def change(expr: Expr) -> Expr | None:
        return index.get(expr.axis) if isinstance(expr, GridIndex) else None

    ir = problem.ir
    axes = tuple(map_range(a, lambda e: rewrite(e, change)) for a in ir.axes)
    return Problem(replace(ir, axes=axes, body=rewrite_body(ir.body, change)), problem.facts)


def _axes_of(body: tuple[Stmt, ...]) -> set[str]:
    return {s.axis for s in statements(body) if isinstance(s, Loop)}


def _trips(problem: Problem, name: str, blocks: Mapping[str, int]) -> int | None:
    axis = problem.axis(name)
    if axis.kind == "tile" and problem.extent(name) == 0:
        return 0
    fixed = axis.static
    if fixed is None or problem.fact(name).ragged:
        return None
    begin, end = fixed
    if end <= begin:
        return 0
    if axis.kind == "grid":
        return end - begin
    shift = problem.shift(name)
    if shift is not None and not isinstance(shift, Const):
        return None
    moved = integers.value_of(shift) or 0 if shift is not None else 0
    return -(-(end + moved) // blocks[name]) - (begin + moved) // blocks[name]


def _default_loop_type(nest: Nest, fold: bool) -> str:
    body = nest.body
    loops = [s for s in body if isinstance(s, Loop)]
    while len(loops) == 1:
        if loops[0].axis in nest.dynamic:
            return "outer_pipeline"
        body = loops[0].body
        loops = [s for s in body if isinstance(s, Loop)]
    return "outer_pipeline" if fold and _in_a_row(body, nest.dynamic) else "grid"


def _in_a_row(body: tuple[Stmt, ...], dynamic: Set[str]) -> tuple[str, ...]:
    """Loops that follow each other, some of them over ranges read from memory, none with loops."""
    loops = [s for s in body if isinstance(s, Loop)]
    nested = any(isinstance(s, Loop) for loop in loops for s in loop.body)
    if len(loops) < 2 or nested or dynamic.isdisjoint(loop.axis for loop in loops):
        return ()
    return tuple(loop.axis for loop in loops)


def _chain(nest: Nest, loop_type: str) -> tuple[tuple[Level, ...], tuple[Stmt, ...]]:
    """The chain of the nest; a level without an axis first if statements surround the loop."""
    body = nest.body
    loops = [s for s in body if isinstance(s, Loop)]

    def stays_inside(loop: Loop) -> bool:
        inside = loop_type in ("fori_loop", "unroll")
        if loop_type == "emit_pipeline":
            inside = not any(isinstance(s, Loop) for s in loop.body)
        return inside and (
            loop.axis in nest.dynamic or nest.problem.fact(loop.axis).kind == "ordered"
        )

    if len(loops) != 1 or stays_inside(loops[0]):
        return (Level("", (), (), ()),), body
    levels, leaf = chain(loops[0], stays_inside)
    position = body.index(loops[0])
    before, after = body[:position], body[position + 1 :]
    if before or after:
        return (Level("", (), before, after), *levels), leaf
    return levels, leaf


def _columns(nest: Nest, chained: list[str]) -> set[str]:
    """Axes whose tiles are known only when the kernel runs, and all that these depend on."""
    problem, found = nest.problem, nest.dynamic.intersection(chained)
    needed = {d for a in found for d in (*problem.fact(a).depends, *moved_by(problem, a))}
    return {*found, *needed.intersection(chained)}


def _check_loop_type(ir: KernelIR, dynamic: Set[str], arranged: Arrangement) -> None:
    loop_type, columns = arranged.loop_type, arranged.columns
    if loop_type == "grid" and columns:
        ragged = next(c for c in columns if c in dynamic)
        raise Refused(
            Rule.CONFIG,
            f"loop_type='grid' needs static bounds, but those of {ir.axis(ragged).user} are read "
            "from memory",
            ir.axis(ragged).loc,
            "use loop_type='outer_pipeline'",
        )
    for name in sorted(arranged.inner):
        if loop_type == "unroll" and name in dynamic:
            raise Refused(
                Rule.CONFIG,
                f"loop_type='unroll' needs static bounds, but those of {ir.axis(name).user} are "
                "read from memory",
                ir.axis(name).loc,
                "use loop_type='outer_pipeline' or 'fori_loop'",
            )


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


def _axis_plan(nest: Nest, name: str, blocks: Mapping[str, int], where: Place) -> AxisPlan:
    problem, axis, fact = nest.problem, nest.problem.axis(name), nest.problem.fact(name)
    plan = AxisPlan(
        name=name,
        user=axis.user,
        kind=fact.kind,
        why=fact.why,
        place=where,
        block=None,
        begin=axis.begin,
        end=axis.end,
        shift=None,
        first=axis.static[0] if axis.static else 0,
        tiles=nest.trips[name],
        limit=fact.limit or UNBOUNDED,
        partial=False,
        owned=True,
        nonempty=fact.nonempty,
        loc=axis.loc,
    )
    if axis.kind == "grid":
        return plan
    block, size, shift = blocks[name], problem.extent(name), problem.shift(name)
    plan = replace(plan, block=block, shift=shift, limit=-(-size // block))
    if shift is not None:
        begin, end = (integers.fold(integers.add(shift, e)) for e in (axis.begin, axis.end))
        plan = replace(plan, begin=begin, end=end)
    if name in nest.spans:
        base = nest.spans[name].base(block)
        first = integers.value_of(base)
        return replace(plan, first=first or 0, base=base if first is None else None)
    return _cut(problem, plan, block, size, blocks)


def _cut(
    problem: Problem, plan: AxisPlan, block: int, size: int, blocks: Mapping[str, int]
) -> AxisPlan:
    """The axis with tiles that are blocks of a dimension: its range may cut the outer ones."""
    low, high = integers.value_of(plan.begin), integers.value_of(plan.end)
    static = low is not None and high is not None and not problem.fact(plan.name).ragged
    starts, ends = (_at_edge(problem.ir, e, block, blocks) for e in (plan.begin, plan.end))
    return replace(
        plan,
        first=(low or 0) // block if static else 0,
        partial=not (starts and ends),
        owned=starts and (ends or (static and high == size)),
    )
