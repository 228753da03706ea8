"""Placement: where every loop of a launch runs: grid dimension, step table, or inside the step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from tilelang.codegen.pallas.plan.steps.ranges import UNBOUNDED, with_ranges
from tilelang.codegen.pallas.plan.windows.exact import begin_with_range
from tilelang.codegen.pallas.plan.windows.turned import all_at_once
from tilelang.errors import Loc
from tilelang.ir import Apply, Axis, Expr, GridIndex, KernelIR, Loop, Stmt, TileScalar, integers
from tilelang.ir.chain import Chain, Level, chain, interchange
from tilelang.ir.traversal import (
    definitions,
    inlined,
    map_range,
    rewrite,
    rewrite_body,
    statements,
)
from tilelang.passes.drop_unused import drop_unused
from tilelang.passes.write_out import write_out
from tilelang.schedule.config import Config
from tilelang.schedule.fixed_ranges import FixedRange, fixed_range
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule
from tilelang.schedule.rows import InTile

from .lanes import with_tiles
from .left_over import check_left_over
from .loop_order import defined_first, moved_by
from .types import AxisPlan, Form, Place

Blocks = Mapping[str, int]
ROWS_AT = ("single", "dim", "table")  # where all steps of a tile are one


@dataclass(frozen=True)
class Placed:
    """A launch's loops after placement.

    levels    the sequential axes (columns and trailing) with their statements
    outward   axes that became outer grid dimensions, outermost first
    columns   axes of the step table, outer to inner
    trailing  ordered static axes, the innermost grid dimensions
    phases    the last columns, if their loops stand in a row in `leaf` and do not nest
    within    parallel axes of which every step runs all iterations
    rows      loops inside of the step that go through rows of the tile that it is at
    cuts      whether moved tiles are cut from arrays with the rows that they have; None: where the
              target has such copies
    """

    loop_type: str
    levels: tuple[Level, ...]
    leaf: tuple[Stmt, ...]
    outward: tuple[str, ...]
    columns: tuple[str, ...]
    trailing: tuple[str, ...]
    phases: tuple[str, ...]
    within: tuple[str, ...]
    rows: Mapping[str, InTile] = field(default_factory=dict)
    axes: Mapping[str, AxisPlan] = field(default_factory=dict)
    cuts: bool | None = False

    @property
    def form(self) -> Form:
        folded = self.loop_type == "emit_pipeline" and self.columns
        return "pipeline" if folded or self.loop_type == "outer_pipeline" else "grid"

    @property
    def inner(self) -> Literal["fori_loop", "unroll"]:
        """How loops inside the step are printed."""
        return "unroll" if self.loop_type == "unroll" else "fori_loop"

    def at(self, place: Place) -> tuple[str, ...]:
        """The axes that run there."""
        return tuple(sorted(n for n, axis in self.axes.items() if axis.place == place))


@dataclass(frozen=True)
class Nest:
    """The loops of a launch, without those that run once or never: they are written out.

    problem  the kernel with the index of every `hl.grid` that runs once as a number
    trips    how often every loop runs, None if that is known only when the kernel runs
    fixed    ranges that move with outer indices, and have a fixed number of tiles all the same
    """

    problem: Problem
    blocks: Blocks
    body: tuple[Stmt, ...]
    trips: Mapping[str, int | None]
    fixed: Mapping[str, FixedRange]

    @property
    def loops(self) -> frozenset[str]:
        """The axes that still have a loop."""
        return frozenset(n for n, count in self.trips.items() if count not in (0, 1))

    @property
    def dynamic(self) -> frozenset[str]:
        """Loops whose steps a table must list."""
        ragged = (n for n in self.trips if self.problem.fact(n).ragged and n not in self.fixed)
        unknown = (n for n, count in self.trips.items() if count is None)
        return frozenset((*ragged, *unknown)) - self.problem.rows.keys()


def place(
    problem: Problem, config: Config, blocks: Blocks, loop: Loop, fold: bool = True
) -> Placed | None:
    """Places the loops of one top-level nest; None if it never runs.

    `fold`: loops in a row become rows of the step table where they can, and no loops in the step.

    Raises Refused for a loop_type that the nest cannot honour.
    """
    loop = defined_first(problem, loop)
    names = sorted({loop.axis, *(s.axis for s in _loops(statements(loop.body)))})
    trips = {n: _trips(problem, n, blocks) for n in names}
    indices = {
        n: integers.const((problem.axis(n).static or (0, 1))[0])
        for n, count in trips.items()
        if count == 1 and problem.axis(n).kind == "grid"
    }
    problem = _with_constants(problem, indices)

    def nest_of(fixed: Mapping[str, FixedRange]) -> Nest:
        counts = trips | {n: found.length // blocks[n] for n, found in fixed.items()}
        once, never = ({n for n, count in counts.items() if count == many} for many in (1, 0))
        body = drop_unused(write_out((loop,), once, never, dict(indices)))
        return Nest(problem, blocks, body, counts, fixed)

    nest = nest_of(_fixed(problem, trips, blocks))
    if not nest.body:
        return None
    placed = _arranged(nest, config, fold)
    if _moves_with_steps(placed):
        nest = nest_of({})
        placed = _arranged(nest, config, fold)
    _check(problem.ir, config, placed, nest.dynamic)
    axes = placed.axes
    check_left_over(problem, axes)
    if config.windows == "exact":
        axes = begin_with_range(problem, config, placed.loop_type, axes)
    check_tiles(problem, axes)
    return replace(placed, axes=with_tiles(with_ranges(axes)), cuts=_cuts(config, placed))


def _cuts(config: Config, placed: Placed) -> bool | None:
    """Steps of a pipeline over a table note which rows they have; loops in a row have others."""
    able = placed.loop_type == "outer_pipeline" and config.steps != "rectangle"
    if not able or not placed.columns or placed.phases:
        return False
    return {None: None, "cut": True}.get(config.windows, False)


# ---------------------------------------------------------------- the nest


def _trips(problem: Problem, name: str, blocks: Blocks) -> int | None:
    axis = problem.axis(name)
    if axis.kind == "tile" and problem.extent(name) == 0:
        return 0
    if axis.static is None or problem.fact(name).ragged:
        return 1 if _one_tile(problem, axis, blocks) else None
    begin, end = axis.static
    if end <= begin:
        return 0
    if axis.kind == "grid":
        return end - begin
    shift = integers.value_of(problem.shift(name) or integers.const(0))
    if shift is None:
        return None
    return -(-(end + shift) // blocks[name]) - (begin + shift) // blocks[name]


def _one_tile(problem: Problem, axis: Axis, blocks: Blocks) -> bool:
    """Whether its range is never empty and lies in the only tile that the dimension has.

    It may end anywhere in that tile, or begin there: masks say where.  What memory holds may leave
    a range empty all the same, if it is wrong.
    """
    if axis.kind != "tile" or not problem.fact(axis.name).nonempty or problem.shift(axis.name):
        return False
    return axis.name not in problem.read and problem.extent(axis.name) <= blocks[axis.name]


def _with_constants(problem: Problem, indices: Mapping[str, Expr]) -> Problem:
    """The kernel with the index of every `hl.grid` axis that runs once written out."""
    if not indices:
        return problem

    def change(expr: Expr) -> Expr | None:
        return indices.get(expr.axis) if isinstance(expr, GridIndex) else None

    ir = problem.ir
    axes = tuple(map_range(a, lambda e: rewrite(e, change)) for a in ir.axes)
    return replace(problem, ir=replace(ir, axes=axes, body=rewrite_body(ir.body, change)))


def _fixed(problem: Problem, names: Iterable[str], blocks: Blocks) -> dict[str, FixedRange]:
    """Tile axes whose ranges move with outer indices and are cut by no tile."""
    tiles = (problem.axis(n) for n in names if problem.axis(n).kind == "tile")
    found = {axis.name: fixed_range(problem, axis, blocks) for axis in tiles}
    return {n: s for n, s in found.items() if s is not None and s.divisible(blocks[n])}


# ---------------------------------------------------------------- where its loops run


def _arranged(nest: Nest, config: Config, fold: bool) -> Placed:
    """Where the loops run: loops of the table and all that they depend on first, then the rest."""
    problem, fold = nest.problem, fold and config.steps != "rectangle"
    loop_type = config.loop_type or _default_loop_type(nest, fold)
    levels, leaf = _chain(nest, loop_type)
    fold = fold and loop_type in ("outer_pipeline", "worklist")
    phases = _in_a_row(leaf, nest.dynamic) if fold else ()
    chained = [level.axis for level in levels if level.axis]
    needed = _needed(nest, {*chained, *phases})
    outward = tuple(a for a in chained if problem.fact(a).independent and a not in needed)
    rest = (*(a for a in chained if a not in outward), *phases)
    count = len(rest) if phases else 1 + max((rest.index(c) for c in needed), default=-1)
    columns, trailing = rest[:count], rest[count:]
    levels, leaf = interchange(levels, leaf, outward)
    innermost = {s.axis for s in _loops(statements(leaf)) if not _loops(s.body)}
    streams = innermost - problem.rows.keys() if loop_type == "emit_pipeline" else set[str]()
    within = all_at_once(problem, config, nest.loops, outward, streams)
    outward = tuple(a for a in outward if a not in within)
    places: tuple[tuple[Place, Collection[str]], ...] = (
        ("table", columns),
        ("stream", streams),
        ("within", within),
        ("dim", (*outward, *trailing)),
        ("inner", nest.loops),
    )

    def place_of(name: str) -> Place:
        for place, names in places:
            if name in names:
                return place
        return "single"

    axes = {n: _axis_plan(nest, n, place_of(n)) for n in nest.trips}
    rows = {
        name: row
        for name, row in problem.rows.items()
        if name in axes and axes[name].place == "inner" and axes[row.tile].place in ROWS_AT
    }
    axes |= {name: _counted(axes[name], axes[row.tile]) for name, row in rows.items()}
    return Placed(loop_type, levels, leaf, outward, columns, trailing, phases, within, rows, axes)


def _loops(body: Iterable[Stmt]) -> list[Loop]:
    return [s for s in body if isinstance(s, Loop)]


def _default_loop_type(nest: Nest, fold: bool) -> str:
    body = nest.body
    while len(loops := _loops(body)) == 1:
        if loops[0].axis in nest.dynamic:
            return "outer_pipeline"
        body = loops[0].body
    return "outer_pipeline" if fold and _in_a_row(body, nest.dynamic) else "grid"


def _in_a_row(body: tuple[Stmt, ...], dynamic: Set[str]) -> tuple[str, ...]:
    """Loops that follow each other, some of them over ranges read from memory, none with loops."""
    loops = _loops(body)
    nested = any(_loops(loop.body) for loop in loops)
    if len(loops) < 2 or nested or dynamic.isdisjoint(loop.axis for loop in loops):
        return ()
    return tuple(loop.axis for loop in loops)


def _chain(nest: Nest, loop_type: str) -> Chain:
    """The chain of the nest; a level without an axis first if statements surround the loop."""

    def stays_inside(loop: Loop) -> bool:
        if loop.axis in nest.problem.rows:
            return True
        inside = loop_type in ("fori_loop", "unroll")
        if loop_type == "emit_pipeline":
            inside = not any(s.axis not in nest.problem.rows for s in _loops(loop.body))
        return inside and (
            loop.axis in nest.dynamic or nest.problem.fact(loop.axis).kind == "ordered"
        )

    levels, leaf = chain(Loop("", nest.body, (), nest.problem.ir.loc), stays_inside)
    alone = len(levels) > 1 and not levels[0].before and not levels[0].after
    return levels[1:] if alone else levels, leaf


def _needed(nest: Nest, chained: Set[str]) -> set[str]:
    """Axes whose tiles are known only when the kernel runs, and all that these depend on.

    That is what moves the tiles that their ranges are read of, too, also where there is one.
    """
    problem, found = nest.problem, nest.dynamic & chained
    tiles = {t for a in found for t in (a, *problem.fact(a).depends)}
    return {*found, *({*tiles, *(d for t in tiles for d in moved_by(problem, t))} & chained)}


def _moves_with_steps(placed: Placed) -> bool:
    """Whether a range moves with a loop that is no dimension of the grid, or is of one itself."""
    elsewhere = {*placed.columns, *placed.within}
    moving = ({n, *integers.axes(a.base)} for n, a in placed.axes.items() if a.base is not None)
    return any(elsewhere & found for found in moving)


# ---------------------------------------------------------------- one loop


def _axis_plan(nest: Nest, name: str, where: Place) -> AxisPlan:
    problem, axis, fact = nest.problem, nest.problem.axis(name), nest.problem.fact(name)
    plan = AxisPlan(
        name=name,
        user=axis.user,
        kind=fact.kind,
        why=fact.why,
        place=where,
        begin=axis.begin,
        end=axis.end,
        loc=axis.loc,
        first=axis.static[0] if axis.static else 0,
        tiles=nest.trips[name],
        limit=fact.limit or UNBOUNDED,
        max_extent=axis.max_extent,
        depends=fact.depends,
        rises=problem.rises(name),
        ragged=fact.ragged,
        nonempty=fact.nonempty,
    )
    if axis.kind == "grid":
        return plan
    block, size, shift = nest.blocks[name], problem.extent(name), problem.shift(name)
    plan = replace(plan, block=block, shift=shift, limit=-(-size // block))
    if shift is not None:
        begin, end = (integers.fold(integers.add(shift, e)) for e in (axis.begin, axis.end))
        plan = replace(plan, begin=begin, end=end)
    if name not in nest.fixed:
        return _cut(nest, plan, block, size)
    base = nest.fixed[name].base(block)
    first = integers.value_of(base)
    return replace(plan, first=first or 0, base=base if first is None else None)


def _cut(nest: Nest, plan: AxisPlan, block: int, size: int) -> AxisPlan:
    """The axis with tiles that are blocks of a dimension: its range may cut the outer ones."""
    low, high = integers.value_of(plan.begin), integers.value_of(plan.end)
    static = low is not None and high is not None and not plan.ragged
    starts, ends = (_at_edge(nest, e, block) for e in (plan.begin, plan.end))
    one = low is not None and high is not None and low // block == (high - 1) // block
    return replace(
        plan,
        first=(low or 0) // block if static else 0,
        partial=not (starts and ends),
        owned=starts and (ends or (static and high == size)),
        begins=starts or plan.limit <= 1 or _from_multiple(nest, plan.begin, block) or one,
    )


def _from_multiple(nest: Nest, begin: Expr, block: int) -> bool:
    """Whether a range begins at a multiple of the block, in whatever array it may not end."""
    inside = inlined(begin, definitions(nest.problem.ir.body))
    return integers.is_multiple(inside, block, lambda e: _at_edge(nest, e, block))


def check_tiles(problem: Problem, axes: Mapping[str, AxisPlan]) -> None:
    """Refused where a result goes by tiles that are not cut where the author cut them."""
    for fact in problem.facts.fixed:
        axis = axes.get(fact.axis)
        if axis is not None and not axis.begins:
            _refuse(
                f"{fact.what} goes by which rows are in a tile of {axis.user}: hl.tile cuts them "
                f"from where its range begins, TPUs at multiples of {axis.size} in memory",
                fact.loc,
                f"begin ranges of {axis.user} at multiples of {axis.size}; with the ragged "
                "dimension in front of two others, windows='exact' begins tiles with their range",
            )


def _counted(plan: AxisPlan, tile: AxisPlan) -> AxisPlan:
    """A loop over rows of a tile, whose number is known where that is all rows of a whole block."""
    whole = tile.tiles is not None and not tile.partial and tile.shift is None
    edges = TileScalar(tile.name, "begin"), TileScalar(tile.name, "end")
    if not whole or (plan.begin, plan.end) != edges or tile.place == "table":
        return plan
    base = integers.mul(tile.number, tile.size)
    first = integers.value_of(base)
    return replace(plan, tiles=tile.size, first=first or 0, base=base if first is None else None)


def _at_edge(nest: Nest, expr: Expr, block: int) -> bool:
    """Whether a bound is certainly a multiple of the block: no tile is cut by it."""
    value = integers.value_of(expr)
    if value is not None:
        return value % block == 0
    match expr:
        case TileScalar(name, "begin" | "end" as edge):
            axis = nest.problem.axis(name)
            bound = axis.begin if edge == "begin" else axis.end
            return nest.blocks[name] % block == 0 and _at_edge(nest, bound, block)
        case Apply("minimum" | "maximum" | "add" | "sub", args):
            return all(_at_edge(nest, a, block) for a in args)
        case _:
            return False


# ---------------------------------------------------------------- what the config asks for


def _check(ir: KernelIR, config: Config, placed: Placed, dynamic: Set[str]) -> None:
    """Refused for what the config asks of loops that cannot run that way."""
    loop_type, user = placed.loop_type, {n: a.user for n, a in placed.axes.items()}
    if loop_type == "grid" and placed.columns:
        ragged = next(c for c in placed.columns if c in dynamic)
        _refuse(
            f"loop_type='grid' needs static bounds, but those of {user[ragged]} are read from "
            "memory",
            placed.axes[ragged].loc,
            "use loop_type='outer_pipeline'",
        )
    for name in placed.at("inner"):
        if loop_type == "unroll" and name in dynamic:
            _refuse(
                f"loop_type='unroll' needs static bounds, but those of {user[name]} are read from "
                "memory",
                placed.axes[name].loc,
                "use loop_type='outer_pipeline' or 'fori_loop'",
            )
        if loop_type == "unroll" and placed.axes[name].tiles is None:
            _refuse(
                f"loop_type='unroll' needs static bounds, but {user[name]} goes through the rows "
                "of a tile, which may have fewer than a block",
                placed.axes[name].loc,
                "use loop_type='fori_loop'",
            )
    if loop_type == "emit_pipeline" and not placed.at("stream"):
        _refuse(
            f"loop_type='emit_pipeline', but no loop of {ir.name} is left to run inside the step",
            ir.loc,
            "use loop_type='outer_pipeline', or leave loop_type out",
        )
    chosen = "within" if placed.within else "windows='exact'" if config.windows == "exact" else ""
    if placed.phases and chosen:
        first, second = placed.phases[:2]
        _refuse(
            f"{chosen} is not possible where loops in a row, over {user[first]} and "
            f"{user[second]}, are steps",
            placed.axes[first].loc,
            f"leave {chosen.partition('=')[0]} out, or make a kernel of each loop",
        )
    if loop_type == "worklist":
        _check_worklist(ir, config, placed.columns)


def _check_worklist(ir: KernelIR, config: Config, columns: tuple[str, ...]) -> None:
    if not columns:
        _refuse(
            f"loop_type='worklist', but no loop of {ir.name} that steps could be made of has "
            "bounds read from memory",
            ir.loc,
            "leave loop_type out",
        )
    if config.steps == "rectangle":
        _refuse(
            "a work list has live steps only, so steps='rectangle' says nothing",
            ir.loc,
            "leave steps out, or use loop_type='outer_pipeline'",
        )


def _refuse(what: str, loc: Loc | None, hint: str) -> NoReturn:
    raise Refused(Rule.FORM, what, loc, hint)
