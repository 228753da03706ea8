"""Heads: sections -> the same for all iterations of the loops within the step.

    acc = acc + a @ b        ->   a, turned; b, turned
                                  for h in range(16): acc[h] = acc[h] + a[h] @ b[h]

What does not depend on the loop stands before it.  Blocks of outputs are written after it.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.physical import PExpr, PStmt, parts_of
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.rewriting import rewrite
from tilelang.codegen.pallas.plan.steps.conditions import Turns
from tilelang.codegen.pallas.plan.steps.moves import Order, first_visit
from tilelang.codegen.pallas.plan.types import Scratch, Section, in_scratch
from tilelang.codegen.pallas.plan.windows.types import Number, Window
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Apply, Const, GridIndex, Type, Var
from tilelang.schedule.refusal import Refused, Rule

from .by_phases import by_phases
from .layouts import as_scratch, permuted
from .stacked import stacked


def unrolled(
    placed: Placed,
    target: Target,
    windows: tuple[Window, ...],
    order: Order,
    kept: tuple[physical.Kept, ...],
    sections: tuple[Section, ...],
) -> tuple[tuple[physical.Kept, ...], tuple[Section, ...]]:
    """The sections with every loop within the step in them, after those that turn blocks.

    And the values in scratch memory, with those that phases of such a loop hand on.  Raises
    Refused for statements that cannot be run for several iterations at once.
    """
    if not placed.within:
        return kept, sections
    prepared = [s for s in sections if s.always]
    turning = [_turn(w, order) for w in windows if w.turned and not w.output]
    rest: list[Section] = []
    for section in sections:
        if not section.always:
            taken = frozenset(k.name for k in kept)
            body, more = _repeat(placed, target, section.body, taken)
            rest.append(replace(section, body=body))
            kept += more
    return kept, (*prepared, *turning, *rest)


def iterations(placed: Placed) -> tuple[int, ...]:
    """How many values scratch memory holds of what is carried: one for each index, from 0 on."""
    return tuple(placed.axes[a].first + (placed.axes[a].tiles or 1) for a in placed.within)


def copies(windows: tuple[Window, ...]) -> tuple[Scratch, ...]:
    """Scratch memory for the blocks that are turned."""
    return tuple(
        Scratch(w.turned.name, tuple(w.shown[d] for d in w.turn), in_scratch(w.dtype))
        for w in windows
        if w.turned is not None
    )


def _turn(window: Window, order: Order) -> Section:
    """A block of an input is turned when it is new; at every step if it moves with the innermost.

    A block that hardly ever stays is not worth a branch.
    """
    assert window.turned is not None
    block = physical.Read(
        window.ref, tuple(physical.All() for _ in window.shown), Type(window.shown, window.dtype)
    )
    turned = permuted(as_scratch(block), window.turn)
    often = bool(order.all) and order.all[-1] in window.axes
    conditions = () if often else first_visit(window, order) or ()
    if window.exact and not often:  # how many rows it has may change with the other columns
        last = max(order.columns.index(a) for a in window.axes if a in order.columns)
        columns = order.columns[: last + 1]
        conditions = (Turns(tuple(Number(GridIndex(c)) for c in columns)),)
    body = (physical.Keep(window.turned.name, turned, None),)
    return Section(conditions, body, title=window.ref, always=True)


def _repeat(
    placed: Placed, target: Target, body: tuple[PStmt, ...], taken: frozenset[str]
) -> tuple[tuple[PStmt, ...], tuple[physical.Kept, ...]]:
    """The statements in loops over all iterations, as far as they depend on them."""
    own = frozenset(placed.within)
    at = tuple(GridIndex(a) for a in placed.within)
    before: list[PStmt] = []
    inside: list[PStmt] = []
    after: list[PStmt] = []
    names: set[str] = set()
    for stmt in body:
        _check(placed, stmt)
        whole = _whole(placed, stmt)
        if whole is not None and not any(_uses(s, whole.name) for s in inside):
            before.append(whole)
        elif isinstance(stmt, physical.Write) and any(_is_copy(e) for e in parts_of(stmt)):
            after.append(stmt)
        elif _depends(stmt, own, names):
            names |= physical.names_made(stmt)
            inside.append(_own_values(stmt, at))
        else:
            before.append(stmt)
    phases = by_phases(tuple(inside), placed.axes, at, target, taken)
    parts = (tuple(inside),) if phases is None else (phases.first, phases.rest)
    loops = (_looped(placed, target, part) for part in parts)
    more = () if phases is None else phases.kept
    return (*before, *(s for loop in loops for s in loop), *after), more


def _looped(placed: Placed, target: Target, stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """The statements in their loops, iterations of the innermost stacked where they can be."""
    found = stacked(stmts, placed.axes, placed.within[-1], target) if stmts else None
    together, stmts = (1, stmts) if found is None else found
    for axis in reversed(placed.within if stmts else ()):
        stmts = (physical.Inner(axis, "unroll", (), stmts, placed.axes[axis].loc, together),)
        together = 1
    return stmts


def _check(placed: Placed, stmt: PStmt) -> None:
    takes = any(isinstance(e, physical.TakeRows) for e in parts_of(stmt))
    if takes or (isinstance(stmt, physical.Write) and stmt.rows is not None):
        axis = placed.axes[placed.within[0]]
        raise Refused(
            Rule.FORM,
            f"rows that an index array picks are moved for one iteration of {axis.user} at a time",
            axis.loc,
            "leave within out of the config",
        )


def _is_copy(expr: PExpr) -> bool:
    return (
        isinstance(expr, physical.Read)
        and expr.turned
        and all(isinstance(s, physical.All) for s in expr.select)
    )


def _whole(placed: Placed, stmt: PStmt) -> physical.Keep | None:
    """One constant for all iterations' values at once, if that is what the statement keeps."""
    match stmt:
        case physical.Keep(_, Apply("full" | "broadcast", args, kind) as value):
            if all(isinstance(a, Const) for a in args):
                every = Type((*iterations(placed), *kind.shape), kind.dtype)
                return replace(stmt, value=replace(value, type=every))
        case _:
            pass
    return None


def _uses(stmt: PStmt, name: str) -> bool:
    """Whether a statement reads or writes a value in scratch memory."""
    return name in physical.kept_by(stmt) or any(
        read.name == name for read in physical.kept_read(stmt)
    )


def _depends(stmt: PStmt, own: frozenset[str], names: set[str]) -> bool:
    """Whether iterations of the loops differ in what a statement does.

    Every iteration has its own values in scratch memory.
    """
    if any(isinstance(s, physical.Keep | physical.Write) for s in physical.flat((stmt,))):
        return True
    return any(
        isinstance(e, physical.Kept)
        or (isinstance(e, GridIndex) and e.axis in own)
        or (isinstance(e, Var) and e.name in names)
        for e in parts_of(stmt)
    )


def _own_values(stmt: PStmt, at: tuple[PExpr, ...]) -> PStmt:
    """The statement with the values in scratch memory that belong to its iteration."""

    def owned(expr: PExpr) -> PExpr:
        return replace(expr, at=at) if isinstance(expr, physical.Kept) else expr

    def kept(one: PStmt) -> PStmt:
        match one:
            case physical.Keep():
                return replace(one, at=at)
            case physical.Inner():
                return replace(one, body=tuple(map(kept, one.body)))
            case _:
                return one

    return kept(rewrite(stmt, owned))
