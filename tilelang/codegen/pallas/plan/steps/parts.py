"""Parts: where the rows of a step table may be cut, so that each core has a part of them.

    b  0 0 0 1 1 2 2 2 3      out[b] begins a block at every new b
       first core  | second core

A cut is right where no row behind it needs anything of a row before it.  That is so where

- every output shows another block than the row before: the rows that share a block follow each
  other (`consecutive`), so that all of them are on one side, and no two cores write to one block,
- no loop that runs in order goes on: what it carries begins anew with every iteration of the loops
  around it, and one of those has gone on, since the block moves with nothing else.

A part may be empty: where no row is such a one, one core has all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tilelang.codegen.pallas.plan.clamps import compare
from tilelang.codegen.pallas.plan.parts import Parts
from tilelang.codegen.pallas.plan.physical import Recorded, Tiles, scalar
from tilelang.codegen.pallas.plan.rewriting import rewritten
from tilelang.codegen.pallas.plan.types import Dim, Number, Table, Window
from tilelang.ir import Apply, Expr, GridIndex, TileScalar, integers, walk
from tilelang.ir.integers import INT, add, const, maximum, minimum

from .loops import all_of, any_of
from .moves import Order, consecutive, steady
from .names import CORE, COUNT, LATER, STEP


def parts_of_table(
    table: Table, dims: tuple[Dim, ...], windows: tuple[Window, ...], order: Order, cores: int,
    called: Mapping[str, str],
) -> Parts | str:  # fmt: skip
    """How so many cores may share the rows of a table; why they may not.

    `called`: the author's tensor that a window shows.
    """
    for dim in dims[: [d.axis for d in dims].index(None)]:
        if dim.extent != 1:
            return f"every iteration of {order.axes[dim.axis or ''].user} goes through all steps"
    outputs = [w for w in windows if w.output]
    often = Counter(called[w.ref] for w in outputs)
    if max(often.values(), default=0) > 1 or any(w.back for w in windows):
        return f"{often.most_common(1)[0][0]} is written to in several ways"
    if table.rows < cores:
        return "there is one step"
    free = _free(table, order)
    turns: list[tuple[str, tuple[Number, ...]]] = []
    for window in outputs:
        found = _turning(window, called[window.ref], order, free)
        if isinstance(found, str):
            return found
        turns.append((window.ref, found))
    share = scalar(Tiles(Apply("mul", (CORE, COUNT), INT), cores))
    later = minimum(maximum(STEP, 1), table.rows - 1)
    return Parts(tuple(turns), share, later, _on(turns))


def _free(table: Table, order: Order) -> frozenset[str]:
    """Columns outside of all loops that run in order."""
    kinds = [order.axes[c.axis].kind == "parallel" for c in table.outer]
    return frozenset(c.axis for c in table.outer[: (*kinds, False).index(False)])


def _turning(
    window: Window, name: str, order: Order, free: frozenset[str]
) -> tuple[Number, ...] | str:
    """The numbers that tell rows whose block is a new one, if rows can; else why they cannot."""
    if not window.stepped or window.exact or window.flows:
        return f"steps copy to {name} themselves, not by blocks that cores could share"
    if not consecutive(window, order) or not all(_plain(n.expr) for n in window.numbers):
        return f"a block of {name} may be shown again after others"
    columns, moving = frozenset(order.columns), list[Number]()
    for number in window.numbers:
        axes = integers.axes(number.expr)
        if axes and axes <= free:
            moving.append(number)
        elif not axes.isdisjoint(columns):
            return f"blocks of {name} move with a loop that runs in order"
    return tuple(moving) or f"all steps share the blocks of {name}"


def _plain(expr: Expr) -> bool:
    """Whether a number goes on with loops, and is made of what rows of the table hold."""
    return steady(expr) and not any(isinstance(e, TileScalar) for e in walk(expr))


def _on(turns: list[tuple[str, tuple[Number, ...]]]) -> Expr:
    """The row is there, not the first one, and some output shows the block of the row before."""
    kept = any_of(all_of(map(_same, numbers)) for _, numbers in turns)
    return all_of((compare("gt", STEP, 0), compare("lt", STEP, COUNT), kept))


def _same(number: Number) -> Expr:
    """Whether it is that of the row before."""
    return compare("eq", _at(number, add(LATER, const(-1))), _at(number, LATER))


def _at(number: Number, row: Expr) -> Expr:
    """The number in a row of the table."""
    found = rewritten(
        number.expr, lambda e: Recorded(e.axis, row) if isinstance(e, GridIndex) else e
    )
    return scalar(found if number.rows == 1 else Tiles(found, number.rows))
