"""Moves: how the number of a block changes from one step to the next.

A launch's steps count like the digits of a number: when one loop goes on, the loops inside it start
again.  For each loop that goes on, and each number that a window shows its block by, there is an
interval that holds the difference:

    for i in 0..3: for j in 0..5: y[2 * i, j]       2 * i       j
        j goes on                                   [0, 0]      [1, 1]
        i goes on, j starts again                   [2, 2]      [-5, -5]

All questions about visits of blocks are asked of these differences: whether a step is the first at
its block, whether visits of one block are consecutive, whether iterations share blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilelang.codegen.pallas.plan.types import (
    AtDim,
    AxisPlan,
    ByRow,
    ByTile,
    Condition,
    Number,
    RowStarts,
    Turns,
    Window,
)
from tilelang.ir import Expr, GridIndex, TileScalar, integers
from tilelang.ir.intervals import ANYTHING, Interval, difference, divided, plus

STILL: Interval = (0, 0)
FORWARD: Interval = (1, math.inf)
BACK: Interval = (-math.inf, -1)


@dataclass(frozen=True)
class Order:
    """The loops of a launch in the order of its steps: outward dims, columns, trailing dims.

    columns  those of the step table, where iterations without steps are left out
    phases   the last columns, if they are loops in a row
    rising   ranges that should rise with an outer axis do: offsets are sorted
    swept    columns that have a step for every tile, and begin again with every range all the same
    """

    axes: Mapping[str, AxisPlan]
    outward: tuple[str, ...]
    columns: tuple[str, ...]
    trailing: tuple[str, ...]
    phases: tuple[str, ...] = ()
    rising: bool = False
    swept: frozenset[str] = frozenset()

    @property
    def all(self) -> tuple[str, ...]:
        return self.outward + self.columns + self.trailing

    def around(self, axis: str) -> tuple[str, ...]:
        """The axes whose loops contain the loop over `axis`, outer to inner."""
        others = self.phases if axis in self.phases else ()
        return tuple(a for a in self.all[: self.all.index(axis)] if a not in others)

    def rises(self, axis: str) -> bool:
        """Whether the tiles of a column rise over the whole table: a cursor can follow them.

        Its positions do over every column around it, and tiles are blocks of an array: those of a
        loop that cuts no array begin again with every range.
        """
        plan, around = self.axes[axis], [a for a in self.around(axis) if a in self.columns]
        return plan.tiles_array and bool(around) and set(plan.rises).issuperset(around)

    def seen(self, window: Window, rising: bool = False) -> Order:
        """The loops that a window is seen in; of loops in a row, those of its own."""
        own = {a for n in window.numbers for a in integers.axes(n.expr)}
        columns = tuple(c for c in self.columns if c not in self.phases or c in own)
        return replace(self, columns=columns, rising=rising)

    def change(self, number: Number, at: str) -> Interval:
        """How a block's number may differ after a step in which the loop `at` goes on."""
        return divided(self.position(number.expr, at), number.rows, up=True)

    def leaves(self, window: Window, at: str) -> bool:
        """Whether the block is certainly another one after that."""
        found = [self.change(n, at) for n in window.numbers]
        return any(low > 0 or high < 0 for low, high in found)

    def position(self, expr: Expr, at: str) -> Interval:
        """How a scalar may differ after that."""

        def leaf(part: Expr) -> Interval:
            match part:
                case GridIndex(axis):
                    base = None if axis == at else self.axes[axis].base
                    index = self._index(axis, at)
                    return index if base is None else plus(self.position(base, at), index)
                case TileScalar(axis, what):
                    return self._tile(axis, what, at)
                case _:
                    return ANYTHING if self._moves(part, at) else STILL

        return difference(expr, leaf)

    def _moves(self, expr: Expr, at: str) -> bool:
        return any(self._index(axis, at) != STILL for axis in integers.axes(expr))

    def _index(self, axis: str, at: str) -> Interval:
        """The index of a loop, or the number of its tile."""
        if axis not in self.all or self.all.index(axis) < self.all.index(at):
            return STILL
        plan, table = self.axes[axis], axis in self.columns
        if axis == at:
            return FORWARD if table else (1, 1)
        if plan.tiles is not None:
            far = max(plan.tiles, 1) - 1
            return (-far, far if table else -far)
        rises = self.rising and at in plan.rises and axis not in self.swept
        return (0, math.inf) if rises else ANYTHING

    def _tile(self, axis: str, what: str, at: str) -> Interval:
        """A scalar of a tile, of which nobody needs to know exactly how far it goes."""
        plan, found = self.axes[axis], self._index(axis, at)
        if what == "id" and (plan.tiles is not None or axis == at):  # counts from 0 in any range
            return found
        if any(self._moves(e, at) for e in plan.made_of):
            return ANYTHING
        if what in ("count", "block_size") or found == STILL:
            return STILL
        return FORWARD if found[0] > 0 else BACK if found[1] < 0 else ANYTHING


# ---------------------------------------------------------------- first visits


def first_visit(window: Window, order: Order) -> tuple[Condition, ...] | None:
    """The conditions under which a step is the first of a run that shows one block.

    None if that takes more than a look at the loop that moves the block and those inside it.
    """
    steps = order.seen(window)
    places = [(a,) for a in order.outward]
    places += [steps.columns] if order.columns else []
    places += [(a,) for a in order.trailing]
    table = len(order.outward) if order.columns else -1
    conditions: tuple[Condition, ...] = ()
    for at in reversed(range(len(places))):
        moving = tuple(
            n for n in window.numbers if any(steps.change(n, a) != STILL for a in places[at])
        )
        if moving:
            if not all(steps.leaves(window, a) for place in places[:at] for a in place):
                return None
            if at == table:
                return _new_in_table(steps, moving), *conditions
            return *_new_at_dim(steps, window, moving, places[at][0]), *conditions
        still = Turns(()) if at == table else AtDim(places[at][0], "first")
        conditions = (still, *conditions)
    return conditions


def _new_in_table(steps: Order, moving: tuple[Number, ...]) -> Condition:
    """The condition that a row of the step table is at another block than the row before."""

    def depth(number: Number) -> int:
        return max(steps.all.index(a) for a in integers.axes(number.expr))

    return Turns(tuple(dict.fromkeys(_alone(n) for n in sorted(moving, key=depth))))


def _new_at_dim(
    steps: Order, window: Window, moving: tuple[Number, ...], axis: str
) -> tuple[Condition, ...]:
    """The condition that the block is new, for a grid dimension that moves some numbers of it."""
    if steps.leaves(window, axis):
        return ()
    number = moving[0]
    if len(moving) == 1 and steps.position(number.expr, axis) == (1, 1):
        return (RowStarts(axis, number, not _begins(number, steps.axes[axis])),)
    return (Turns(moving, axis),)


def _alone(number: Number) -> Number:
    """A number that is equal in the same steps: 2 * g + 1 changes when g does."""
    found = integers.linear(number.expr)
    if number.rows > 1 or found is None or len(found[0]) != 1:
        return number
    return Number(next(iter(found[0])))


def _begins(number: Number, axis: AxisPlan) -> bool:
    """Whether the first iteration of a loop is certainly at the begin of a block."""
    found = integers.linear(number.expr)
    if found is None or found[0] != {GridIndex(axis.name): 1} or axis.base is not None:
        return False
    return (axis.first + found[1]) % number.rows == 0


# ---------------------------------------------------------------- visits again


def consecutive(window: Window, order: Order) -> bool:
    """Whether the steps that share a block follow each other.

    They do if the numbers rise or fall like digits: one of them never turns round, the next one
    only when that one changes, and so on.
    """
    steps = order.seen(window, rising=True)
    left, numbers = set(steps.all), list(window.numbers)

    def one_way(number: Number) -> bool:
        found = [steps.change(number, at) for at in left]
        return all(low >= 0 for low, _ in found) or all(high <= 0 for _, high in found)

    while numbers:
        ahead = next((n for n in numbers if one_way(n)), None)
        if ahead is None:
            return False
        numbers.remove(ahead)
        changes = {a: steps.change(ahead, a) for a in left}
        left = {a for a, (low, high) in changes.items() if low <= 0 <= high}
    return True


def steady(expr: Expr) -> bool:
    """Whether a number goes on with the loops: read from memory, or modulo another, it does not."""
    found: list[Expr] = []

    def leaf(part: Expr) -> Interval:
        found.append(part)
        return STILL

    difference(expr, leaf)
    return all(isinstance(part, GridIndex | TileScalar) for part in found)


# ---------------------------------------------------------------- blocks of one's own


def owns(window: Window, axis: str, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether no two iterations of an axis see one block, whatever the other indices are."""
    for dim, number in zip(window.dims, window.numbers, strict=True):
        match dim:
            case ByTile(name, _, over) if axis in (name, *over) and follows(number, axes[name]):
                return True
            case ByRow(name) if name == axis:
                return True
            case _ if number.rows == 1 and _tells(number, axis, axes):
                return True
            case _:
                pass  # its number says nothing of the axis
    return False


def follows(number: Number, axis: AxisPlan) -> bool:
    """Whether every tile shows a block of its own: those behind a shorter array's end do not."""
    return axis.limit <= 1 or number.expr == axis.number


def _tells(number: Number, axis: str, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether an index is a digit of the number: g * 4 + h tells h and g apart, if h is below 4."""

    def most(index: integers.Index) -> float:
        tiles = axes[index.axis].tiles
        return math.inf if tiles is None or isinstance(index, TileScalar) else max(tiles, 1) - 1

    terms, _ = integers.linear(number.expr) or ({}, 0)
    own = [e for e in terms if e.axis == axis]
    if len(own) != 1:
        return False
    unit = abs(terms[own[0]])
    others = {e: abs(by) for e, by in terms.items() if e != own[0]}
    lower = sum(by * most(e) for e, by in others.items() if by <= unit)
    higher = math.gcd(*(by for by in others.values() if by > unit))
    return lower < unit and (not higher or unit * most(own[0]) + lower < higher)
