"""Revisits: when a block of an output is seen first, and whether every block is seen at all.

A block stays in vector memory while consecutive steps write it, and goes back to the array when the
block number changes.  So the steps that share a block must be consecutive, its first visit must
define every row, and a block that no step visits keeps what the array held before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import permutations

from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.types import (
    AxisPlan,
    ByIndex,
    ByTile,
    Column,
    Packed,
    Visit,
    Whole,
    Window,
)
from tilelang.errors import Loc
from tilelang.ir import Expr, GridIndex, KernelIR, every_store, integers
from tilelang.language.dtypes import itemsize
from tilelang.schedule.refusal import Refused, Rule

from .comes_back import comes_back
from .moves import Order, consecutive, first_visit, follows, owns, steady
from .table import replaces_empty

MOST_ORDERED = 6  # loops whose every order is tried


def check_consecutive(
    ir: KernelIR, tensor: str, window: Window, order: Order, selective: bool, how: str
) -> str | None:
    """None if steps that share a block are consecutive; the column that it comes back with.

    `selective`: a visit may leave rows of the block as an earlier visit wrote them.  Only a
    pipeline over a table reads blocks again, of arrays that nothing else copies from meanwhile.
    """
    if not selective or consecutive(window, order):
        return None
    alone = how == "table" and window.init != "existing" and not window.exact
    if alone and (axis := comes_back(window, order)) is not None:
        return axis
    inside = next(a for a in reversed(order.all) if a in window.axes)
    steps = order.seen(window, rising=True)
    for axis in (order.axes[a] for a in order.around(inside) if a not in window.axes):
        if any(steps.change(n, axis.name)[0] < 0 for n in window.numbers):
            raise Refused(
                Rule.FORM,
                f"blocks of {tensor} would be visited again after other blocks: iterations of "
                f"{axis.user} share them, and their ranges may overlap",
                axis.loc,
                "use ranges [offsets[g], offsets[g + 1]) of one sorted tensor, index the output by "
                f"{axis.user}, or use loop_type='fori_loop'",
            )
    raise Refused(
        Rule.FORM,
        f"blocks of {tensor} would be visited again after other blocks, since its index does not "
        "rise or fall with the loops, and a store leaves part of a block as it was",
        _stored_at(ir, tensor),
        f"let the loops go through {tensor} in the order of its dimensions, or use "
        "loop_type='fori_loop'",
    )


def _stored_at(ir: KernelIR, tensor: str) -> Loc:
    """Where the author stores to a tensor."""
    stores = (s.loc for s in every_store(ir.body) if s.tensor == tensor)
    return next(stores, ir.tensor(tensor).loc)


def check_first_visit(ir: KernelIR, tensor: str, window: Window, order: Order) -> None:
    """Refused if a step cannot tell whether it is the first at a block that must be defined."""
    if window.init == "none" or first_visit(window, order) is not None:
        return
    raise Refused(
        Rule.FORM,
        f"whether a step is the first at its block of {tensor} depends on several loops at once",
        _stored_at(ir, tensor),
        f"let one loop go through each dimension of {tensor}, or use loop_type='fori_loop'",
    )


def check_stand_ins(
    tensor: str, window: Window, order: Order, columns: Sequence[Column], steps: str
) -> None:
    """Refused if a step that stands for an empty range could go back to a block already left.

    In the step table such a step repeats the row before it; loops inside the row, the rectangle and
    the work list start from the beginning.
    """
    axes = order.axes
    if steps == "rectangle":
        check_dead_steps(tensor, window, order, columns)
    for axis in (c.axis for c in columns if replaces_empty(c, axes)):
        ranges = [c for c in order.columns if axis in axes[c].depends]
        inside = [] if steps == "table" else ranges
        again = window.axes.intersection((*inside, *order.trailing))
        if not again:
            continue
        hint = "use loop_type='fori_loop'"
        if steps != "table" and window.axes.isdisjoint(order.trailing):
            hint = "use steps='table'" if steps == "rectangle" else "use loop_type='outer_pipeline'"
        raise Refused(
            Rule.FORM,
            f"the step that an empty range of {axes[axis].user} needs would visit blocks of "
            f"{tensor} again, because they change with {axes[min(again)].user}",
            axes[axis].loc,
            hint,
        )


def check_dead_steps(tensor: str, window: Window, order: Order, columns: Iterable[Column]) -> None:
    """Refused if a step of the rectangle that does nothing could go back to a block already left.

    Its columns stay at the last live tile, and the loops inside the row go on as ever.
    """
    axes = order.axes
    again = [a for a in order.trailing if a in window.axes and axes[a].tiles != 1]
    dead = [axes[c.axis] for c in columns if c.range.live is not None]
    if not again or not dead:
        return
    raise Refused(
        Rule.FORM,
        f"steps='rectangle', but the steps behind the end of {dead[0].user} would visit blocks of "
        f"{tensor} again, because they change with {axes[again[0]].user}",
        dead[0].loc,
        "use steps='table'",
    )


def packed_conflict(window: Window, order: Order) -> bool:
    """Whether rows that share a packed block are written in steps that are not consecutive.

    Or in steps of which none can tell that it is the first.
    """
    if any(isinstance(d, Packed) and not steady(d.expr) for d in window.dims[-2:-1]):
        return True
    return not consecutive(window, order) or first_visit(window, order) is None


def visits_all(
    window: Window, order: Order, sure: Callable[[Collection[str]], bool]
) -> dict[str, Visit] | None:
    """The columns that must help to visit every block of an output; None if they cannot.

    `sure`: whether a step comes whatever the ranges are, given that these columns help.

    The columns map to "cover" (tiles between the ranges get steps too) or "sweep" (every tile of
    the dimension gets a step, for every iteration of the columns before).
    """
    axes, helpers = order.axes, dict[str, Visit]()
    others = window.axes.intersection(order.columns)
    for dim, size in zip(window.dims, window.shape, strict=True):
        match dim:
            case Whole() | Packed(whole=True):
                continue
            case ByTile(axis) if axes[axis].place == "table" and axes[axis].ragged:
                grid_only = all(axes[a].block is None for a in others - {axis})
                if others == {axis} and (order.rises(axis) or comes_back(window, order)):
                    helpers[axis] = "cover"
                elif grid_only and owns_around(window, order, axis):
                    helpers[axis] = "sweep"
                else:
                    return None
            case ByTile(axis) if (axes[axis].tiles or 0) >= axes[axis].limit:
                continue
            case ByIndex(expr) | Packed(expr) if _sweeps(expr, size, axes):
                continue
            case _:
                return None
    return helpers if sure(helpers) else None


def owns_around(window: Window, order: Order, axis: str) -> bool:
    """Whether every iteration of the columns before `axis` shows blocks of its own.

    A row of several in a block is not one: the next one would come back to all of its blocks.
    """
    around = (a for a in order.around(axis) if a in order.columns)
    return all(owns(window, a, order.axes) for a in around)


def goes_anywhere(window: Window) -> bool:
    """Whether the block is picked by a number that follows no loop, so that any may come again."""
    return any(
        not steady(d.expr)
        for d in window.dims
        if isinstance(d, ByIndex) or (isinstance(d, Packed) and not d.whole)
    )


def _sweeps(expr: Expr, size: int, axes: Mapping[str, AxisPlan]) -> bool:
    if integers.value_of(expr) is not None:
        return size == 1
    if not isinstance(expr, GridIndex):
        return False
    axis = axes[expr.axis]
    return axis.place != "inner" and axis.first == 0 and axis.tiles == size


def check_exact(
    ir: KernelIR, tensor: str, window: Window, columns: tuple[Column, ...], selective: bool
) -> None:
    """Refused if steps could write rows of an output that they must not, or not all of a block.

    Nothing fills such a block before it is written.
    """
    standing = [c.axis for c in columns if c.axis in window.axes and c.visit != "live"]
    if not selective and not standing:
        return
    what = (
        f"windows='exact', but only part of a block of {tensor} is stored"
        if selective
        else f"windows='exact', but {tensor} would be stored for empty ranges of "
        f"{ir.axis(standing[0]).user} too"
    )
    raise Refused(Rule.FORM, what, ir.tensor(tensor).loc, "leave windows out")


def check_stream(tensor: str, window: Window, axes: Mapping[str, AxisPlan]) -> None:
    """Refused if a pipeline inside the step could show a block of an output twice."""
    stream = window.stream or ""
    packed = any(isinstance(d, Packed) and d.rows > 1 for d in window.dims)
    pairs = zip(window.dims, window.numbers, strict=True)
    tile = any(
        isinstance(d, ByTile) and d.axis == stream and follows(n, axes[stream]) for d, n in pairs
    )
    inside = Order(axes, (), (), (stream,))
    if not packed and not goes_anywhere(window) and (tile or inside.leaves(window, stream)):
        return
    raise Refused(
        Rule.FORM,
        f"steps of the loop over {axes[stream].user} may share blocks of {tensor}, "
        "so that a pipeline over blocks would lose what earlier steps stored",
        axes[stream].loc,
        "use loop_type='fori_loop'",
    )


def order_of(placed: Placed, windows: tuple[Window, ...]) -> Order:
    """Axes that every output owns blocks along come first: only those may be split over cores.

    Axes that share an output block, or pick rows inside one, come last among the outward axes, so
    that the steps which share a block are adjacent.  Among the first ones, that order is taken in
    which the fewest bytes of inputs are fetched, and the author's where it makes no difference.
    """
    outputs, axes = [w for w in windows if w.output], placed.axes

    def rank(axis: str) -> int:
        if any(axis in _picking_rows(w) for w in outputs):
            return 1
        return 0 if all(owns(w, axis, axes) for w in outputs) else 2

    owning = [a for a in placed.outward if rank(a) == 0]
    inside = sorted((a for a in placed.outward if rank(a)), key=rank)
    deeper = {*inside, *placed.columns, *placed.trailing}
    best = fewest_fetched(owning, deeper, windows, axes)
    return Order(axes, (*best, *inside), placed.columns, placed.trailing, placed.phases)


def fewest_fetched(
    owning: Sequence[str], deeper: Set[str], windows: Iterable[Window], axes: Mapping[str, AxisPlan]
) -> tuple[str, ...]:
    """The order of outer loops in which the fewest bytes are fetched of inputs that no loop further
    in moves."""
    inputs = (w for w in windows if not w.output and w.stepped)
    still = [w for w in inputs if w.axes.isdisjoint(deeper)]
    orders = permutations(owning) if len(owning) <= MOST_ORDERED else [tuple(owning)]
    return min(orders, key=lambda order: sum(_fetched(w, order, axes) for w in still))


def _picking_rows(window: Window) -> set[str]:
    """Axes that pick rows inside a block of several rows."""
    dims = zip(window.dims, window.shape, strict=True)
    packed = (d for d, size in dims if isinstance(d, Packed) and 1 < d.rows < size)
    return {axis for dim in packed for axis in integers.axes(dim.expr)}


def _fetched(window: Window, order: tuple[str, ...], axes: Mapping[str, AxisPlan]) -> int:
    """Bytes that the copies of one input are, in this order of its loops.

    A block is fetched when its number changes: once for every iteration of the innermost loop that
    moves it, and of those around.
    """
    last = max((i for i, axis in enumerate(order) if axis in window.axes), default=-1)
    size = math.prod(window.shown) * itemsize(window.dtype)
    return size * math.prod(axes[axis].tiles or 1 for axis in order[: last + 1])
