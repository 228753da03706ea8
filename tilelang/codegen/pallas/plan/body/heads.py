"""Run all: sections -> the same for all iterations of the loops within the step.

    acc = acc + a @ b        ->   a, turned; b, turned
                                  for h in range(16): acc[h] = acc[h] + a[h] @ b[h]

What does not depend on the loop stands before it.  Blocks of outputs are written after it.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.codegen.pallas.plan.physical import walk_physical
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.steps.moves import Order, first_visit
from tilelang.codegen.pallas.plan.types import (
    All,
    Inner,
    Keep,
    Kept,
    Number,
    PExpr,
    PStmt,
    Read,
    Scratch,
    Section,
    TakeRows,
    Turns,
    Window,
    Write,
)
from tilelang.ir import Apply, Const, GridIndex, Type, Var
from tilelang.schedule.refusal import Refused, Rule

from .layouts import apply
from .sections import exprs_of, kept_in, map_values, names_made


def run_all(
    placed: Placed, windows: tuple[Window, ...], order: Order, sections: tuple[Section, ...]
) -> tuple[Section, ...]:
    """The sections with every loop within the step in them, after those that turn blocks.

    Raises PlanError for statements that cannot be run for several iterations at once.
    """
    if not placed.within:
        return sections
    prepared = [s for s in sections if s.always]
    turning = [_turn(w, order) for w in windows if w.turned and not w.output]
    rest = [replace(s, body=_repeat(placed, s.body)) for s in sections if not s.always]
    return (*prepared, *turning, *rest)


def copies(windows: tuple[Window, ...]) -> tuple[Scratch, ...]:
    """Scratch memory for the blocks that are turned."""
    return tuple(
        Scratch(w.turned.name, tuple(w.shown[d] for d in w.turn), w.dtype)
        for w in windows
        if w.turned is not None
    )


def _turn(window: Window, order: Order) -> Section:
    """A block of an input is turned when it is new; at every step if it moves with the innermost.

    A block that hardly ever stays is not worth a branch.
    """
    assert window.turned is not None
    block = Read(window.ref, tuple(All() for _ in window.shown), Type(window.shown, window.dtype))
    shape = tuple(window.shown[d] for d in window.turn)
    turned = apply("transpose", (block,), shape, window.dtype, (("perm", window.turn),))
    often = bool(order.all) and order.all[-1] in window.axes
    conditions = () if often else first_visit(window, order) or ()
    if window.exact and not often:  # how many rows it has may change with the other columns
        last = max(order.columns.index(a) for a in window.axes if a in order.columns)
        columns = order.columns[: last + 1]
        conditions = (Turns(tuple(Number(GridIndex(c)) for c in columns)),)
    body = (Keep(window.turned.name, turned, None),)
    return Section(conditions, body, title=window.ref, always=True)


def _repeat(placed: Placed, body: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
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
        elif isinstance(stmt, Write) and any(_is_copy(e) for e in walk_physical(stmt.value)):
            after.append(stmt)
        elif _depends(stmt, own, names):
            names |= names_made(stmt)
            inside.append(_own_values(stmt, at))
        else:
            before.append(stmt)
    for axis in reversed(placed.within):
        if inside:
            inside = [Inner(axis, "unroll", (), tuple(inside), placed.axes[axis].loc)]
    return (*before, *inside, *after)


def _check(placed: Placed, stmt: PStmt) -> None:
    takes = any(isinstance(e, TakeRows) for x in exprs_of(stmt) for e in walk_physical(x))
    if takes or (isinstance(stmt, Write) and stmt.rows is not None):
        axis = placed.axes[placed.within[0]]
        raise Refused(
            Rule.FORM,
            f"rows that an index array picks are moved for one iteration of {axis.user} at a time",
            axis.loc,
            "leave within out of the config",
        )


def _is_copy(expr: PExpr) -> bool:
    return isinstance(expr, Read) and expr.turned and all(isinstance(s, All) for s in expr.select)


def _whole(placed: Placed, stmt: PStmt) -> Keep | None:
    """One constant for all iterations' values at once, if that is what the statement keeps."""
    if not (isinstance(stmt, Keep) and isinstance(stmt.value, Apply)):
        return None
    op, args, kind = stmt.value.op, stmt.value.args, stmt.value.type
    if op not in ("full", "broadcast") or not all(isinstance(a, Const) for a in args):
        return None
    each = tuple(placed.axes[a].first + (placed.axes[a].tiles or 1) for a in placed.within)
    return replace(stmt, value=replace(stmt.value, type=Type((*each, *kind.shape), kind.dtype)))


def _uses(stmt: PStmt, name: str) -> bool:
    """Whether a statement reads or writes a value in scratch memory."""
    read = any(
        isinstance(e, Kept) and e.name == name for x in exprs_of(stmt) for e in walk_physical(x)
    )
    return read or name in kept_in(stmt)


def _depends(stmt: PStmt, own: frozenset[str], names: set[str]) -> bool:
    """Whether iterations of the loops differ in what a statement does.

    Every iteration has its own values in scratch memory.
    """
    if isinstance(stmt, Keep | Write):
        return True
    return any(
        isinstance(e, Kept)
        or (isinstance(e, GridIndex) and e.axis in own)
        or (isinstance(e, Var) and e.name in names)
        for x in exprs_of(stmt)
        for e in walk_physical(x)
    ) or (isinstance(stmt, Inner) and any(_depends(s, own, names) for s in stmt.body))


def _own_values(stmt: PStmt, at: tuple[PExpr, ...]) -> PStmt:
    """The statement with the values in scratch memory that belong to its iteration."""

    def owned(expr: PExpr) -> PExpr:
        return replace(expr, at=at) if isinstance(expr, Kept) else expr

    def kept(one: PStmt) -> PStmt:
        return replace(one, at=at) if isinstance(one, Keep) else one

    return map_values(stmt, owned, kept)
