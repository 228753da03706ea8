"""Body: logical statements of a chain of levels -> physical statements, grouped by when they run.

    levels (before, after, carries) + leaf   ->   Groups(before, leaf or phases, after)

Carries become scratch memory here: `Keep` writes one, `Kept` reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tilelang.codegen.pallas.plan.physical import walk_physical
from tilelang.codegen.pallas.plan.types import Bind, Inner, InnerCarry, Keep, Kept, PExpr, PStmt
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.errors import Loc
from tilelang.ir import (
    Apply,
    Assign,
    Carry,
    Const,
    Expr,
    Load,
    Loop,
    Stmt,
    Store,
    Type,
    Var,
    map_children,
)
from tilelang.ir.chain import Level

from .gathers import fetches, take_rows
from .layouts import Layout, Value, physical_shape
from .lower import KeptValue, Scope, lower, natural
from .stores import filled, stores


@dataclass(frozen=True)
class Phase:
    """One of several loops in a row: what stands before it, its body, and what it carries."""

    axis: str
    before: tuple[PStmt, ...]
    body: tuple[PStmt, ...]
    carries: tuple[str, ...]


@dataclass(frozen=True)
class Groups:
    """Physical statements by level: before[i] and after[i] surround the loop of level i + 1.

    The last ones surround the loops in a row, if there are any; then nothing is in the leaf.
    """

    before: tuple[tuple[PStmt, ...], ...]
    leaf: tuple[PStmt, ...]
    after: tuple[tuple[PStmt, ...], ...]
    kept: tuple[KeptValue, ...]
    phases: tuple[Phase, ...] = ()

    @property
    def all(self) -> tuple[PStmt, ...]:
        """Every statement, in program order."""
        inside = [s for phase in self.phases for s in (*phase.before, *phase.body)]
        before = [s for group in self.before for s in group]
        return (*before, *self.leaf, *inside, *(s for group in self.after for s in group))


def lower_body(
    arrays: Arrays,
    levels: tuple[Level, ...],
    leaf: tuple[Stmt, ...],
    inner: Literal["fori_loop", "unroll"],
    phases: Collection[str] = (),
) -> Groups:
    """Lowers every statement; the layouts of carries are found by trying until they settle.

    The loops over `phases` stand in a row in the leaf.
    """
    layouts: dict[str, Layout] = {}
    rows = [s for s in leaf if isinstance(s, Loop) and s.axis in phases]
    carries = [c for loop in (*levels, *rows) for c in loop.carries]
    while True:
        scope = Scope(arrays)
        groups = _lower_levels(scope, levels, leaf, inner, layouts, phases)
        if not _settle(scope, carries, layouts):
            return groups


def _rows(names: Iterable[str]) -> dict[str, Layout]:
    out: dict[str, Layout] = {}
    for name in names:
        out[name] = "row"
    return out


def _lower_levels(
    scope: Scope,
    levels: tuple[Level, ...],
    leaf: tuple[Stmt, ...],
    inner: Literal["fori_loop", "unroll"],
    layouts: dict[str, Layout],
    phases: Collection[str],
) -> Groups:
    before: list[tuple[PStmt, ...]] = []
    for position, level in enumerate(levels):
        group = lower_statements(scope, level.before, inner)
        if position + 1 < len(levels):
            starts: tuple[PStmt, ...] = ()
            for carry in levels[position + 1].carries:
                starts += _enter(scope, carry, layouts)
            group += _in_order(starts)
        before.append(group)
    found, innermost = _lower_row(scope, leaf, inner, layouts, phases)
    innermost += _advance(scope, levels[-1].carries, layouts)
    after: list[tuple[PStmt, ...]] = [()]
    if found:
        before[-1], after, innermost = before[-1] + found[0].before, [innermost], ()
        found[0] = replace(found[0], before=())
    for level in reversed(levels[:-1]):
        group = lower_statements(scope, level.after, inner)
        after.insert(0, group + _advance(scope, level.carries, layouts))
    return Groups(tuple(before), innermost, tuple(after), tuple(scope.kept), tuple(found))


def _lower_row(
    scope: Scope,
    leaf: tuple[Stmt, ...],
    inner: Literal["fori_loop", "unroll"],
    layouts: dict[str, Layout],
    phases: Collection[str],
) -> tuple[list[Phase], tuple[PStmt, ...]]:
    """Loops in a row, and the statements behind the last of them.

    Initial values that need nothing are set before the first loop: what follows saves a condition.
    """
    found: list[Phase] = []
    group: tuple[PStmt, ...] = ()
    early: tuple[PStmt, ...] = ()
    for stmt in leaf:
        if not (isinstance(stmt, Loop) and stmt.axis in phases):
            group += lower_statements(scope, (stmt,), inner)
            continue
        starts: tuple[PStmt, ...] = ()
        for carry in stmt.carries:
            starts += _enter(scope, carry, layouts)
        ready = tuple(s for s in starts if found and _needs_nothing(s))
        early += ready
        group += _in_order(tuple(s for s in starts if s not in ready))
        body = lower_statements(scope, stmt.body, inner)
        body += _advance(scope, stmt.carries, layouts)
        found.append(Phase(stmt.axis, group, body, tuple(c.name for c in stmt.carries)))
        group = ()
    if found:
        found[0] = replace(found[0], before=found[0].before + early)
    return found, group


def _needs_nothing(stmt: PStmt) -> bool:
    """Whether a carry starts from a constant."""
    known = (Const, Apply)
    return isinstance(stmt, Keep) and all(isinstance(e, known) for e in walk_physical(stmt.value))


def _in_order(starts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """Initial values in the order of the author's lines."""
    return tuple(sorted(starts, key=lambda s: s.loc.line if s.loc else 0))


def _enter(scope: Scope, carry: Carry, layouts: dict[str, Layout]) -> tuple[PStmt, ...]:
    """What happens before the first iteration of a loop that carries a value."""
    own = natural(scope, carry.init)
    if carry.name not in layouts and own not in ("free", "scalar"):
        layouts[carry.name] = own
    if carry.name not in layouts and len(carry.init.type.shape) == 0:
        layouts[carry.name] = "unit"
    layout = layouts.get(carry.name)
    if layout is None:  # not known yet: stand in with the initial value, which fits any layout
        scope.free[carry.name] = scope.free[carry.out] = carry.init
        return ()
    if layout == "scalar":
        layout = "unit"
    logical = carry.init.type.shape
    kept_type = Type(physical_shape(logical, layout), carry.init.type.dtype)
    value = Value(Kept(carry.name, kept_type), layout, logical)
    scope.names[carry.name] = scope.names[carry.out] = value
    scope.kept.append(KeptValue(carry.name, kept_type, carry.user))
    start = filled(lower(scope, carry.init, layout).expr, kept_type)
    return (Keep(carry.name, start, _init_loc(scope, carry)),)


def _init_loc(scope: Scope, carry: Carry) -> Loc | None:
    if isinstance(carry.init, Var):
        return scope.locs.get(carry.init.name)
    return getattr(carry.init, "loc", None)


def _advance(
    scope: Scope, carries: tuple[Carry, ...], layouts: dict[str, Layout]
) -> tuple[PStmt, ...]:
    """What happens at the end of an iteration: every carry takes its next value at once."""
    out: list[PStmt] = []
    values: list[tuple[Carry, PExpr]] = []
    for carry in carries:
        layout = layouts.get(carry.name)
        value = lower(scope, carry.next, "unit" if layout == "scalar" else layout)
        scope.names["\0next " + carry.name] = value
        if layout is not None:
            values.append((carry, filled(value.expr, scope.names[carry.name].expr.type)))
    changed: set[str] = set()
    for carry, value in values:
        if any(isinstance(e, Kept) and e.name in changed for e in walk_physical(value)):
            out.insert(0, Bind(carry.out, value, carry.loc, carry.user))
            value = Var(carry.out, value.type)
        changed.add(carry.name)
        out.append(Keep(carry.name, value, carry.loc))
    return tuple(out)


# ---------------------------------------------------------------- statements


def lower_statements(
    scope: Scope, stmts: tuple[Stmt, ...], inner: Literal["fori_loop", "unroll"]
) -> tuple[PStmt, ...]:
    """Physical statements; names that only stand for free values vanish."""
    out: tuple[PStmt, ...] = ()
    for stmt in stmts:
        match stmt:
            case Assign():
                out += _assign(scope, stmt)
            case Store():
                out += stores(scope, stmt)
            case Loop():
                if scope.arrays.axes[stmt.axis].place == "stream":
                    out += _stream(scope, stmt, inner)
                else:
                    out += (_inner(scope, stmt, inner),)
    return out


def _taken(scope: Scope, stmt: Assign) -> tuple[tuple[PStmt, ...], Expr]:
    """The fetches of rows of which lanes are filled, and the value that is made of those rows."""
    found: list[PStmt] = []

    def read(expr: Expr) -> Expr:
        if not isinstance(expr, Load):
            return map_children(expr, read)
        if not fetches(scope.arrays, expr):
            return expr
        name = f"{stmt.name}_{len(found)}" if found else f"{stmt.name}_taken"
        found.extend(take_rows(scope, replace(stmt, name=name, value=expr, user=""), expr))
        return Var(name, expr.type)

    rest = read(stmt.value)
    return tuple(found), rest


def _assign(scope: Scope, stmt: Assign) -> tuple[PStmt, ...]:
    if isinstance(stmt.value, Load) and fetches(scope.arrays, stmt.value):
        return take_rows(scope, stmt, stmt.value)
    taken, rest = _taken(scope, stmt)
    if taken:
        return (*taken, *_assign(scope, replace(stmt, value=rest)))
    value = lower(scope, stmt.value)
    scope.locs[stmt.name] = stmt.loc
    if value.layout == "free":
        scope.free[stmt.name] = stmt.value
        return ()
    scope.names[stmt.name] = Value(Var(stmt.name, value.expr.type), value.layout, value.logical)
    return (Bind(stmt.name, value.expr, stmt.loc, stmt.user),)


# ---------------------------------------------------------------- loops inside the step


def _inner(scope: Scope, loop: Loop, inner: Literal["fori_loop", "unroll"]) -> Inner:
    layouts: dict[str, Layout] = {}
    while True:
        trial = replace(scope, names=dict(scope.names), free=dict(scope.free), kept=[])
        for carry in loop.carries:
            _inner_entry(trial, carry, layouts)
        body = lower_statements(trial, loop.body, inner)
        settled: dict[str, Layout] = {
            c.name: natural(trial, c.next) for c in loop.carries if c.name not in layouts
        }
        if not settled:
            break
        decided: dict[str, Layout] = {n: lay for n, lay in settled.items() if lay != "free"}
        layouts.update(decided if decided else _rows(settled))
    scope.kept += trial.kept
    carries = tuple(_inner_carry(scope, trial, c, layouts[c.name]) for c in loop.carries)
    return Inner(loop.axis, inner, carries, body, loop.loc)


def _stream(scope: Scope, loop: Loop, inner: Literal["fori_loop", "unroll"]) -> tuple[PStmt, ...]:
    """A loop that is a pipeline: its carries live in scratch memory, as those of levels do."""
    layouts: dict[str, Layout] = {}
    while True:
        trial = replace(scope, names=dict(scope.names), free=dict(scope.free), kept=[])
        starts: tuple[PStmt, ...] = ()
        for carry in loop.carries:
            starts += _enter(trial, carry, layouts)
        body = lower_statements(trial, loop.body, inner) + _advance(trial, loop.carries, layouts)
        if not _settle(trial, loop.carries, layouts):
            break
    scope.kept += trial.kept
    scope.names |= {c.out: trial.names[c.out] for c in loop.carries}
    return (*_in_order(starts), Inner(loop.axis, "pipeline", (), body, loop.loc))


def _settle(scope: Scope, carries: Iterable[Carry], layouts: dict[str, Layout]) -> bool:
    """Takes over the layouts that the next values have; whether any carry had none so far."""
    missing = [c for c in carries if c.name not in layouts]
    found: dict[str, Layout] = {c.name: scope.names["\0next " + c.name].layout for c in missing}
    settled: dict[str, Layout] = {n: lay for n, lay in found.items() if lay != "free"}
    layouts.update(settled if settled else _rows(found))
    return bool(missing)


def _inner_entry(trial: Scope, carry: Carry, layouts: dict[str, Layout]) -> None:
    own = natural(trial, carry.init)
    if carry.name not in layouts and own not in ("free", "scalar"):
        layouts[carry.name] = own
    layout = layouts.get(carry.name)
    if layout is None:
        trial.free[carry.name] = carry.init
        return
    logical = carry.init.type.shape
    kept = Type(physical_shape(logical, layout), carry.init.type.dtype)
    trial.names[carry.name] = Value(Var(carry.name, kept), layout, logical)


def _inner_carry(scope: Scope, trial: Scope, carry: Carry, layout: Layout) -> InnerCarry:
    logical = carry.init.type.shape
    kept = Type(physical_shape(logical, layout), carry.init.type.dtype)
    scope.names[carry.out] = Value(Var(carry.out, kept), layout, logical)
    start = filled(lower(scope, carry.init, layout).expr, kept)
    following = filled(lower(trial, carry.next, layout).expr, kept)
    return InnerCarry(carry.name, start, following, carry.out, carry.user)
