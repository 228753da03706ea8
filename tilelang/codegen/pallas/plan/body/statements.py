"""Body: logical statements of a chain of levels -> physical statements, grouped by when they run.

    levels (before, after, carries) + leaf   ->   Groups(before, leaf or phases, after)

Carries become scratch memory here: `Keep` writes one, `Kept` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, assert_never

from tilelang import ir
from tilelang.codegen.pallas.plan.physical import (
    Bind,
    Inner,
    InnerCarry,
    Keep,
    Kept,
    PExpr,
    PStmt,
    kept_read,
    walk_physical,
)
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.codegen.pallas.row_loads import by_row
from tilelang.ir.chain import Level
from tilelang.ir.names import names_in

from .gathers import take_rows
from .layouts import Layout, Value, physical_shape
from .lower import Scope, lower
from .stores import filled, stores
from .turns import HELPER, turns_at_once

T = TypeVar("T")
Lowered = tuple[PStmt, ...]


@dataclass(frozen=True)
class Key:
    """Which group: around the loops below a level, innermost, or of loop `phase` in a row.

    "enter" is what stands before such a loop.
    """

    kind: Literal["before", "leaf", "enter", "phase", "after"]
    level: int
    phase: int = 0


@dataclass(frozen=True)
class Groups:
    """Physical statements by when they run, in program order, and values in scratch memory."""

    parts: tuple[tuple[Key, Lowered], ...]
    kept: tuple[Kept, ...]

    @property
    def all(self) -> Lowered:
        """Every statement."""
        return tuple(s for _, stmts in self.parts for s in stmts)


def lower_body(arrays: Arrays, placed: Placed) -> Groups:
    """Lowers every statement of a nest; loops in a row stand in its leaf."""
    rows = [s for s in placed.leaf if isinstance(s, ir.Loop) and s.axis in placed.phases]
    carries = [c for loop in (*placed.levels, *rows) for c in loop.carries]
    scope = Scope(arrays, placed.inner, placed.phases)
    return _settled(scope, carries, lambda trial: _levels(trial, placed.levels, placed.leaf))[1]


def _settled(
    scope: Scope, carries: Iterable[ir.Carry], lowered: Callable[[Scope], T]
) -> tuple[Scope, T]:
    """What is lowered once every carry has a layout, and the names that are in scope then.

    A carry that starts from a constant has no layout of its own.  It takes that of its next value,
    which may take that of other carries: what has one is lowered until all have.  A number stays in
    a register only as long as nothing that it takes on is computed from vectors.
    """
    layouts: dict[str, Layout] = {}
    while True:
        trial = replace(
            scope, names=dict(scope.names), free=dict(scope.free), kept=[], layouts=layouts
        )
        found = lowered(trial)
        known = {c.name: layouts.get(c.name) for c in carries}
        unsure = [c for c in carries if known[c.name] in (None, "scalar")]
        new: dict[str, Layout] = {}
        for carry in unsure:
            end = lower(trial, carry.next).layout
            if end not in ("free", known[carry.name]):
                new[carry.name] = end
        if not new and None not in known.values():
            return trial, found
        layouts.update(new)
        for name in known if not new else ():
            layouts.setdefault(name, "row")


def _levels(scope: Scope, levels: tuple[Level, ...], leaf: tuple[ir.Stmt, ...]) -> Groups:
    parts: list[tuple[Key, Lowered]] = []
    last = len(levels) - 1
    for number, level in enumerate(levels):
        inside = levels[number + 1].carries if number < last else ()
        group = lower_statements(scope, level.before) + _in_order(_enter(scope, inside))
        parts.append((Key("before", number), group))
    row, rest = _in_a_row(scope, leaf, last)
    rest += _advance(scope, levels[-1].carries)
    if row:  # what stands before the first of these loops stands before all of them
        parts[-1] = (parts[-1][0], parts[-1][1] + row[0][1])
    parts += [*row[1:], (Key("after", last), rest)] if row else [(Key("leaf", last), rest)]
    for number in reversed(range(last)):
        group = lower_statements(scope, levels[number].after)
        parts.append((Key("after", number), group + _advance(scope, levels[number].carries)))
    return Groups(tuple(parts), tuple(scope.kept))


def _in_a_row(
    scope: Scope, leaf: tuple[ir.Stmt, ...], level: int
) -> tuple[list[tuple[Key, Lowered]], Lowered]:
    """Loops in a row, and the statements behind the last of them.

    Initial values that need nothing are set before the first loop: what follows saves a condition.
    """
    parts: list[tuple[Key, Lowered]] = []
    group: Lowered = ()
    early: Lowered = ()
    for stmt in leaf:
        if not (isinstance(stmt, ir.Loop) and stmt.axis in scope.phases):
            group += lower_statements(scope, (stmt,))
            continue
        starts = _enter(scope, stmt.carries)
        ready = tuple(s for s in starts if parts and _needs_nothing(s))
        early += ready
        group += _in_order(s for s in starts if s not in ready)
        body = lower_statements(scope, stmt.body) + _advance(scope, stmt.carries)
        number = len(parts) // 2
        parts += [(Key("enter", level, number), group), (Key("phase", level + 1, number), body)]
        group = ()
    if parts:
        parts[0] = (parts[0][0], parts[0][1] + early)
    return parts, group


def _needs_nothing(start: Keep) -> bool:
    """Whether a carry starts from a constant."""
    return all(isinstance(e, ir.Const | ir.Apply) for e in walk_physical(start.value))


def _in_order(starts: Iterable[Keep]) -> Lowered:
    """Initial values in the order of the author's lines."""
    return tuple(sorted(starts, key=lambda s: s.loc.line if s.loc else 0))


def _enter(scope: Scope, carries: tuple[ir.Carry, ...]) -> tuple[Keep, ...]:
    """What happens before the first iteration of a loop whose carries are in scratch memory."""
    starts: list[Keep] = []
    for carry in carries:
        name, init = carry.name, carry.init
        if not init.type.shape:
            scope.layouts[name] = "unit"
        value = _inside(scope, carry, Kept)
        if value is None:
            scope.free[carry.out] = init
            continue
        scope.names[carry.out] = value
        kept = Kept(name, value.expr.type)
        scope.kept.append(kept)
        start = filled(lower(scope, init, value.layout).expr, kept.type)
        named = isinstance(init, ir.Var)
        loc = scope.locs.get(init.name) if named else getattr(init, "loc", None)
        starts.append(Keep(name, start, loc))
    return tuple(starts)


def _inside(scope: Scope, carry: ir.Carry, read: Callable[[str, ir.Type], PExpr]) -> Value | None:
    """A carry as its loop reads it; None as long as its layout is not known.

    Until then its initial value stands in, which fits any layout.
    """
    shape, own = carry.init.type.shape, lower(scope, carry.init).layout
    if own not in ("free", "scalar"):
        scope.layouts.setdefault(carry.name, own)
    layout = scope.layouts.get(carry.name)
    if layout is None:
        scope.free[carry.name] = carry.init
        return None
    kind = ir.Type(physical_shape(shape, layout), carry.init.type.dtype)
    scope.names[carry.name] = Value(read(carry.name, kind), layout, shape)
    return scope.names[carry.name]


def _advance(scope: Scope, carries: tuple[ir.Carry, ...]) -> Lowered:
    """What happens at the end of an iteration: every carry takes its next value at once."""
    out: list[PStmt] = []
    changed: set[str] = set()
    for carry in carries:
        layout = scope.layouts.get(carry.name)
        if layout is None:
            continue
        value = filled(lower(scope, carry.next, layout).expr, scope.names[carry.name].expr.type)
        keep = Keep(carry.name, value, carry.loc)
        if any(read.name in changed for read in kept_read(keep)):
            out.insert(0, Bind(carry.out, value, carry.loc, carry.user))
            keep = replace(keep, value=ir.Var(carry.out, value.type))
        changed.add(carry.name)
        out.append(keep)
    return tuple(out)


def lower_statements(scope: Scope, stmts: tuple[ir.Stmt, ...]) -> Lowered:
    """Physical statements; names that only stand for free values vanish."""
    out: Lowered = ()
    for stmt in stmts:
        match stmt:
            case ir.Assign():
                out += _assign(scope, stmt)
            case ir.Store():
                out += stores(scope, stmt)
            case ir.Loop():
                streams = scope.arrays.axes[stmt.axis].place == "stream"
                out += _stream(scope, stmt) if streams else (_inner(scope, stmt),)
            case _:
                assert_never(stmt)
    return out


def _assign(scope: Scope, stmt: ir.Assign) -> Lowered:
    """One statement, after those that fetch rows of which lanes are filled."""
    if isinstance(stmt.value, ir.Load) and by_row(stmt.value, scope.arrays.scalars):
        return take_rows(scope, stmt, stmt.value)
    fetched: list[PStmt] = []

    def read(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Load):
            return ir.map_children(expr, read)
        if not by_row(expr, scope.arrays.scalars):
            return expr
        name = f"{stmt.name}_{len(fetched)}" if fetched else f"{stmt.name}_taken"
        fetched.extend(take_rows(scope, replace(stmt, name=name, value=expr, user=""), expr))
        return ir.Var(name, expr.type)

    rest = read(stmt.value)
    value = lower(scope, rest)
    scope.locs[stmt.name] = stmt.loc
    if value.layout == "free":
        scope.free[stmt.name] = rest
        return tuple(fetched)
    scope.names[stmt.name] = replace(value, expr=ir.Var(stmt.name, value.expr.type))
    return (*fetched, Bind(stmt.name, value.expr, stmt.loc, stmt.user))


def _inner(scope: Scope, loop: ir.Loop) -> Inner:
    def lowered(trial: Scope) -> Lowered:
        for carry in loop.carries:
            _inside(trial, carry, ir.Var)
        return lower_statements(trial, loop.body)

    trial, body = _settled(scope, loop.carries, lowered)
    scope.kept += trial.kept
    carries = tuple(_inner_carry(scope, trial, c) for c in loop.carries)
    made = Inner(loop.axis, scope.inner, carries, body, loop.loc)
    axis, count = scope.arrays.axes[loop.axis], turns_at_once(made, scope.arrays.axes)
    counted = axis.tiles is not None and axis.base is None
    if not counted and HELPER in names_in(scope.arrays.ir):
        count = 1  # the function of that name is the author's
    return replace(made, unroll=count, counted=counted)


def _inner_carry(scope: Scope, trial: Scope, carry: ir.Carry) -> InnerCarry:
    value = trial.names[carry.name]
    kind, layout = value.expr.type, value.layout
    scope.names[carry.out] = replace(value, expr=ir.Var(carry.out, kind))
    start = filled(lower(scope, carry.init, layout).expr, kind)
    following = filled(lower(trial, carry.next, layout).expr, kind)
    return InnerCarry(carry.name, start, following, carry.out, carry.user)


def _stream(scope: Scope, loop: ir.Loop) -> Lowered:
    """A loop that is a pipeline: its carries live in scratch memory, as those of levels do."""

    def lowered(trial: Scope) -> tuple[Lowered, Lowered]:
        starts = _in_order(_enter(trial, loop.carries))
        return starts, lower_statements(trial, loop.body) + _advance(trial, loop.carries)

    trial, (starts, body) = _settled(scope, loop.carries, lowered)
    scope.kept += trial.kept
    scope.names |= {c.out: trial.names[c.out] for c in loop.carries}
    return (*starts, Inner(loop.axis, "pipeline", (), body, loop.loc))
