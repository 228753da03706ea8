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
from dataclasses import dataclass

from tilelang.analysis.facts import Facts
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
from tilelang.ir import Apply, Const, Expr, GridIndex, TileScalar, integers
from tilelang.ir.integers import linear
from tilelang.ir.intervals import ANYTHING, Interval, divided, either, minus, plus, times

STILL: Interval = (0, 0)
FORWARD: Interval = (1, math.inf)
BACK: Interval = (-math.inf, -1)


@dataclass(frozen=True)
class Order:
    """The launch's axes in the order of its steps: outward dims, columns, trailing dims.

    The last columns may be `phases`, loops in a row.
    """

    outward: tuple[str, ...]
    columns: tuple[str, ...]
    trailing: tuple[str, ...]
    phases: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return self.outward + self.columns + self.trailing

    @property
    def loops(self) -> tuple[tuple[str, ...], ...]:
        """The columns, outer to inner; those of loops in a row together."""
        nested = tuple((c,) for c in self.columns if c not in self.phases)
        return (*nested, self.phases) if self.phases else nested

    def around(self, axis: str) -> tuple[str, ...]:
        """The axes whose loops contain the loop over `axis`, outer to inner."""
        others = self.phases if axis in self.phases else ()
        return tuple(a for a in self.all[: self.all.index(axis)] if a not in others)


@dataclass(frozen=True)
class Steps:
    """The steps of a launch, as far as differences between neighbours need them.

    loops    axes, outer to inner
    columns  those of the step table, where iterations without steps are left out
    rising   (axis, outer): the ranges of the axis rise with the outer one
    """

    axes: Mapping[str, AxisPlan]
    loops: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rising: frozenset[tuple[str, str]] = frozenset()

    def change(self, number: Number, at: str) -> Interval:
        """How a block's number may differ after a step in which the loop `at` goes on."""
        return divided(self.position(number.expr, at), number.rows, up=True)

    def goes_back(self, number: Number, at: str) -> bool:
        """Whether a number may be lower after that."""
        return self.change(number, at)[0] < 0

    def leaves(self, window: Window, at: str) -> bool:
        """Whether the block is certainly another one after that."""
        found = [self.change(n, at) for n in window.numbers]
        return any(low > 0 or high < 0 for low, high in found)

    def position(self, expr: Expr, at: str) -> Interval:
        """How a scalar may differ after that."""
        match expr:
            case Const():
                return STILL
            case GridIndex(axis):
                return self._index(axis, at)
            case TileScalar(axis, what):
                return self._tile(axis, what, at)
            case Apply("add", (left, right)):
                return plus(self.position(left, at), self.position(right, at))
            case Apply("sub", (left, right)):
                return plus(self.position(left, at), minus(self.position(right, at)))
            case Apply("neg", (value,)):
                return minus(self.position(value, at))
            case Apply("mul", (value, Const(by)) | (Const(by), value)):
                return times(self.position(value, at), (int(by), int(by)))
            case Apply("floordiv", (value, Const(by))) if by > 0:
                return divided(self.position(value, at), by, up=True)
            case Apply("minimum" | "maximum", (value, Const()) | (Const(), value)):
                return either(self.position(value, at), STILL)
        moved = any(self._leaf(axis, at) != STILL for axis in integers.axes(expr))
        return ANYTHING if moved else STILL

    def _leaf(self, axis: str, at: str) -> Interval:
        """The index of a loop, or the number of its tile."""
        if axis not in self.loops or self.loops.index(axis) < self.loops.index(at):
            return STILL
        plan, table = self.axes[axis], axis in self.columns
        if axis == at:
            return FORWARD if table else (1, 1)
        if plan.tiles is not None:
            far = max(plan.tiles, 1) - 1
            return (-far, far if table else -far)
        return (0, math.inf) if (axis, at) in self.rising else ANYTHING

    def _index(self, axis: str, at: str) -> Interval:
        plan = self.axes[axis]
        base = STILL if plan.base is None or axis == at else self.position(plan.base, at)
        return plus(base, self._leaf(axis, at))

    def _tile(self, axis: str, what: str, at: str) -> Interval:
        """A scalar of a tile, of which nobody needs to know exactly how far it goes."""
        plan, (low, high) = self.axes[axis], self._leaf(axis, at)
        if what == "id" and (plan.tiles is not None or axis == at):  # counts from 0 in any range
            return low, high
        bounds = [e for e in (plan.begin, plan.end, plan.base) if e is not None]
        if any(self._leaf(a, at) != STILL for e in bounds for a in integers.axes(e)):
            return ANYTHING
        if what in ("count", "block_size"):
            return STILL
        if (low, high) == STILL:
            return low, high
        return FORWARD if low > 0 else BACK if high < 0 else ANYTHING


def steps_of(
    window: Window, order: Order, axes: Mapping[str, AxisPlan], facts: Facts | None = None
) -> Steps:
    """The steps that a window is seen in; of loops in a row, those of its own."""
    own = {a for n in window.numbers for a in integers.axes(n.expr)}
    loops = tuple(a for a in order.all if a not in order.phases or a in own)
    pairs = [(a, b) for a in loops if facts is not None for b in facts.axis(a).rises]
    return Steps(axes, loops, order.columns, frozenset(pairs))


def rises(axis: str, order: Order, axes: Mapping[str, AxisPlan], facts: Facts) -> bool:
    """Whether the tiles of a column rise over the whole table, so that a cursor can follow them.

    Its positions do over every column around it, and tiles are blocks of an array: those of a loop
    that cuts no array begin again with every range.
    """
    plan, around = axes[axis], {a for a in order.around(axis) if a in order.columns}
    tiles = plan.block is not None and plan.length is None
    return tiles and bool(around) and around.issubset(facts.axis(axis).rises)


# ---------------------------------------------------------------- first visits


def first_visit(
    window: Window, order: Order, axes: Mapping[str, AxisPlan]
) -> tuple[Condition, ...] | None:
    """The conditions under which a step is the first of a run that shows one block.

    None if that takes more than a look at the loop that moves the block and those inside it.
    """
    steps = steps_of(window, order, axes)
    places = [(a,) for a in order.outward]
    places += [tuple(c for c in order.columns if c in steps.loops)] if order.columns else []
    places += [(a,) for a in order.trailing]
    table = len(order.outward) if order.columns else -1
    conditions: tuple[Condition, ...] = ()
    for at in reversed(range(len(places))):
        if any(_moves(steps, n, a) for n in window.numbers for a in places[at]):
            if not all(steps.leaves(window, a) for place in places[:at] for a in place):
                return None
            return *_crosses(steps, window, places[at], at == table), *conditions
        still = Turns(()) if at == table else AtDim(places[at][0], "first")
        conditions = (still, *conditions)
    return conditions


def _moves(steps: Steps, number: Number, at: str) -> bool:
    """Whether the number may change when a loop goes on."""
    return steps.change(number, at) != STILL


def _crosses(
    steps: Steps, window: Window, place: tuple[str, ...], table: bool
) -> tuple[Condition, ...]:
    """The condition that the block is new, in a place whose outer loops all start new blocks."""
    numbers = tuple(n for n in window.numbers if any(_moves(steps, n, a) for a in place))
    if table:
        depth = {n: max(steps.loops.index(a) for a in integers.axes(n.expr)) for n in numbers}
        alone = tuple(_alone(n) for n in sorted(depth, key=lambda n: depth[n]))
        return (Turns(tuple(dict.fromkeys(alone))),)
    (axis,) = place
    if steps.leaves(window, axis):
        return ()
    number = numbers[0]
    if len(numbers) == 1 and steps.position(number.expr, axis) == (1, 1):
        return (RowStarts(axis, number, not _begins(number, steps.axes[axis])),)
    return (Turns(numbers, axis),)


def _alone(number: Number) -> Number:
    """A number that is equal in the same steps: 2 * g + 1 changes when g does."""
    found = linear(number.expr)
    if number.rows > 1 or found is None or len(found[0]) != 1:
        return number
    return Number(next(iter(found[0])))


def _begins(number: Number, axis: AxisPlan) -> bool:
    """Whether the first iteration of a loop is certainly at the begin of a block."""
    found = linear(number.expr)
    if found is None or found[0] != {GridIndex(axis.name): 1} or axis.base is not None:
        return False
    return (axis.first + found[1]) % number.rows == 0


# ---------------------------------------------------------------- visits again


def consecutive(
    window: Window, order: Order, axes: Mapping[str, AxisPlan], facts: Facts | None
) -> bool:
    """Whether the steps that share a block follow each other.

    They do if the numbers rise or fall like digits: one of them never turns round, the next one
    only when that one changes, and so on.
    """
    steps = steps_of(window, order, axes, facts)
    left, numbers = set(steps.loops), list(window.numbers)
    while numbers:
        ahead = next((n for n in numbers if _one_way(steps, n, left)), None)
        if ahead is None:
            return False
        numbers.remove(ahead)
        left -= {a for a in left if not _may_stay(steps.change(ahead, a))}
    return True


def _one_way(steps: Steps, number: Number, left: set[str]) -> bool:
    found = [steps.change(number, at) for at in left]
    return all(low >= 0 for low, _ in found) or all(high <= 0 for _, high in found)


def _may_stay(change: Interval) -> bool:
    return change[0] <= 0 <= change[1]


def steady(expr: Expr) -> bool:
    """Whether a number goes on with the loops: read from memory, or modulo another, it does not."""
    match expr:
        case Const() | GridIndex() | TileScalar():
            return True
        case Apply("add" | "sub", (left, right)):
            return steady(left) and steady(right)
        case Apply("neg", (value,)):
            return steady(value)
        case Apply("mul" | "minimum" | "maximum", (value, Const()) | (Const(), value)):
            return steady(value)
        case Apply("floordiv", (value, Const(by))):
            return by > 0 and steady(value)
        case _:
            return False


# ---------------------------------------------------------------- blocks of one's own


def owns(window: Window, axis: str, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether no two iterations of an axis see one block, whatever the other indices are."""
    for dim, number in zip(window.dims, window.numbers, strict=True):
        match dim:
            case ByTile(name, _, over) if axis in (name, *over):
                return True
            case ByRow(name) if name == axis:
                return True
            case _ if number.rows == 1 and _tells(number, axis, axes):
                return True
    return False


def _tells(number: Number, axis: str, axes: Mapping[str, AxisPlan]) -> bool:
    """Whether an index is a digit of the number: g * 4 + h tells h and g apart, if h is below 4."""
    terms, _ = linear(number.expr) or ({}, 0)
    own = [e for e in terms if e.axis == axis]
    if len(own) != 1:
        return False
    unit = abs(terms[own[0]])
    others = {e: abs(by) for e, by in terms.items() if e != own[0]}
    lower = sum(by * _span(e, axes) for e, by in others.items() if by <= unit)
    higher = math.gcd(*(by for by in others.values() if by > unit))
    return lower < unit and (not higher or unit * _span(own[0], axes) + lower < higher)


def _span(index: GridIndex | TileScalar, axes: Mapping[str, AxisPlan]) -> float:
    tiles = axes[index.axis].tiles
    return math.inf if tiles is None or isinstance(index, TileScalar) else max(tiles, 1) - 1
