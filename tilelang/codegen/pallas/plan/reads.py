"""Reads: the loops whose number the text of a step names, so that only those are fetched.

(g, tm): out_ref[...] = jnp.where(tm * 16 + lane < offsets[g + 1], ...)    reads g and tm
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from tilelang.ir import Expr, GridIndex, TileIndex, TileScalar, Var

from .axis import AxisPlan
from .physical import (
    Diagonals,
    Inner,
    InRange,
    Keep,
    Kept,
    Lane,
    PExpr,
    Piece,
    PStmt,
    Read,
    Roll,
    Select,
    Step,
    TakeRows,
    Write,
    exprs_of,
    flat,
    walk_physical,
)
from .steps.conditions import (
    AtDim,
    Back,
    Clear,
    Condition,
    Ends,
    Enters,
    InPhase,
    RowStarts,
    Runs,
    Turns,
)
from .types import Launch


@dataclass(frozen=True)
class Reads:
    """What the sections of a launch need.

    numbers     grid dimensions and columns whose tile (or index) has a name in the step
    iterations  grid dimensions whose iteration does: a moving tile's is counted from its first one
    """

    numbers: frozenset[str]
    iterations: frozenset[str]


def step_reads(launch: Launch) -> Reads:
    """What the sections read; a moving first tile needs the indices that it moves with."""
    conditions = [c for section in launch.sections for c in section.conditions]
    found = {axis for c in conditions for axis in _condition(launch, c)}
    for section in launch.sections:
        found |= body_reads(launch, section.body)
    if launch.flow is not None:  # which rows a step uses goes by where it is
        found |= {d.axis for d in launch.dims if d.axis is not None}
    for axis in reversed(launch.moving):
        base = launch.axis(axis).base
        if base is not None and axis in found:
            found.update(_expr(launch, base))
    asked = {axis for c in conditions if (axis := _at(c)) is not None}
    fixed = {axis for axis in asked if launch.axis(axis).base is None}
    return Reads(frozenset(found | fixed), frozenset(found | asked))


def varies(launch: Launch, expr: Expr) -> bool:
    """Whether an expression has other values at other steps."""
    return any(True for _ in _expr(launch, expr))


def needs_tpu(launch: Launch) -> bool:
    """Whether a launch has anything that only TPUs have: memory of theirs, pipelines, rolls."""
    asks = launch.form == "pipeline" or launch.memory.limit is not None
    has = launch.dims or launch.scalars or launch.scratch
    exprs = (e for s in launch.sections for stmt in s.body for e in exprs_of(stmt))
    streams = any(not w.stepped for w in launch.windows)
    rolls = (isinstance(part, Roll | Diagonals) for e in exprs for part in walk_physical(e))
    return bool(asks or has or launch.flow or streams or launch.prefetches or any(rolls))


def _at(condition: Condition) -> str | None:
    """The grid dimension whose first, or last, iteration a condition asks for."""
    match condition:
        case AtDim(axis) | RowStarts(axis, _, True) | Turns(_, str(axis)):
            return axis
        case _:
            return None


def body_reads(launch: Launch, body: Iterable[PStmt]) -> set[str]:
    """The loops whose number the statements need."""
    return {axis for stmt in body for axis in _statement(launch, stmt)}


def _condition(launch: Launch, condition: Condition) -> Iterator[str]:
    match condition:
        case RowStarts(_, number):
            yield from _expr(launch, number.expr)
        case Runs(axis):
            yield from _expr(launch, launch.axis(axis).tile.runs)
        case Clear(tests):
            yield from (a for test in tests for a in _expr(launch, test))
        case Back(ref, tests):
            yield from (a for test in tests for a in _expr(launch, test))
            yield from _window(launch, ref)
        case Turns(numbers):
            yield from (a for n in numbers for a in _expr(launch, n.expr))
        case Ends(outer, inner):
            assert launch.table is not None
            yield from inner if launch.table.steps == "rectangle" else outer
        case Enters(outer):
            yield from outer
        case AtDim() | InPhase():
            pass
        case _:
            assert_never(condition)


def _statement(launch: Launch, stmt: PStmt) -> Iterator[str]:
    for expr in exprs_of(stmt):
        yield from _expr(launch, expr)
    match stmt:
        case Keep(part=Piece(axis)):
            yield axis
        case Write():
            yield from _steps(stmt.select)
            if stmt.rows is not None and stmt.rows.far:
                yield from _window(launch, stmt.ref)
        case Inner():
            yield from _range(launch, launch.axis(stmt.axis))
            for window in launch.windows:
                if window.stream == stmt.axis:
                    yield from _window(launch, window.ref)
            yield from body_reads(launch, stmt.body)
        case _:
            pass


def _range(launch: Launch, axis: AxisPlan) -> Iterator[str]:
    lines = (line.value for line in axis.range.lines)
    for expr in (*lines, axis.range.first, axis.range.stop, axis.range.live):
        if expr is not None:
            yield from _expr(launch, expr)


def _window(launch: Launch, ref: str) -> Iterator[str]:
    for number in launch.window(ref).numbers:
        yield from _expr(launch, number.expr)


def _steps(select: Iterable[Select]) -> Iterator[str]:
    """Tiles of loops whose number says which part of a block is meant."""
    return (s.axis for s in select if isinstance(s, Step) and s.number is None)


def _expr(launch: Launch, expr: PExpr) -> Iterator[str]:
    for part in walk_physical(expr):
        for inside in made_of(launch, part):
            yield from _expr(launch, inside)
        match part:
            case GridIndex(axis):
                yield axis
            case Kept(part=Piece(axis)):
                yield axis
            case Read() | TakeRows():
                yield from _steps(part.select)
                if isinstance(part, TakeRows) and part.far:
                    yield from _window(launch, part.ref)
            case _:
                pass


def made_of(launch: Launch, part: PExpr) -> Iterator[Expr]:
    """What positions, masks and scalars of tiles are printed as."""
    match part:
        case TileScalar(axis, what):
            yield launch.axis(axis).tile.scalar(what)
        case TileIndex(axis) | Lane(str(axis)):
            yield launch.axis(axis).tile.origin
            if isinstance(part, TileIndex):
                yield launch.axis(axis).shift or launch.axis(axis).tile.origin
        case InRange(mask):
            tile = launch.axis(mask.axis).tile
            yield from (tile.origin, *(side.bound for side in tile.sides))
        case _:
            pass


# ---------------------------------------------------------------- memory


def sources(expr: PExpr) -> frozenset[str]:
    """The memory and the locals of a step that an expression reads."""
    found: set[str] = set()
    for part in walk_physical(expr):
        match part:
            case Read(name) | Kept(name) | TakeRows(name) | Var(name):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def targets(stmts: Iterable[PStmt]) -> Iterator[str]:
    """The memory that statements write, loops inside included."""
    for stmt in flat(stmts):
        match stmt:
            case Write(name) | Keep(name):
                yield name
            case _:
                pass
