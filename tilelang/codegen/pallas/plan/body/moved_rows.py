"""Moved rows: those of many groups, between tiles of rows that follow each other and boxes.

    a tile    |. . a a a a b b b c|        groups a, b and c begin anywhere in it
    boxes     |a a a a|b b b 0|c 0 0 0|

A step moves the rows that its tile has of every group; the others stay as they were.
"""

from __future__ import annotations

from tilelang import ir
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.physical import BEGIN, All, MovedRows, Read, Write, scalar
from tilelang.codegen.pallas.plan.rewriting import rewritten
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.codegen.pallas.plan.windows.types import Window
from tilelang.ir import Along, Apply, Load, Store, Type, integers
from tilelang.language.dtypes import itemsize
from tilelang.schedule.refusal import Refused, Rule

from .lane_index import lane_of
from .lower import Scope

SOME = 64  # rows that are moved at a time: they stay in registers


def moved_rows(scope: Scope, store: Store, value: Apply) -> Write:
    """The store of rows of many groups."""
    arrays, (load, begin, end) = scope.arrays, value.args
    assert isinstance(load, Load)
    source, target = arrays.find(load.tensor, load.index), arrays.find(store.tensor, store.index)
    to_box = len(store.index) > len(load.index)
    box, flat = (target, source) if to_box else (source, target)
    groups, rows = (_axis(i) for i in (store.index, load.index)[:: 1 if to_box else -1])
    tile = arrays.target.rows(itemsize(target.dtype))
    for window, axis in ((box, groups), (flat, rows)):
        _check(store, window, arrays.axes[axis], tile)
    kept, count = box.shape[1], box.shape[0]
    begin, end = (lane_of(arrays, e, store.loc) for e in (begin, end))
    end = scalar(rewritten(end, lambda e: BEGIN if e == begin else e))
    last = integers.add(BEGIN, integers.const(kept))  # no row goes behind a box
    end = end if last in _terms(end) else integers.minimum(end, last)
    some = min(SOME, box.shown[-2], flat.shown[-2])
    name = f"{store.tensor}_moved"
    seen = _shown(arrays, source, groups, rows, source.dtype)
    read = Read(source.ref, (All(),) * len(source.shown), seen)
    kind = _shown(arrays, target, groups, rows, target.dtype)
    stop = _groups(arrays, groups, count)
    moved = MovedRows(read, begin, end, groups, stop, rows, to_box, name, some, kind)
    return Write(target.ref, (All(),) * len(target.shown), moved, store.loc)


def _terms(expr: ir.Expr) -> list[ir.Expr]:
    """Those that an expression is the least of."""
    if isinstance(expr, Apply) and expr.op == "minimum":
        return [term for arg in expr.args for term in _terms(arg)]
    return [expr]


def _axis(index: tuple[ir.Index, ...]) -> str:
    return next(e.axis for e in index if isinstance(e, Along))


def _check(store: Store, window: Window, axis: AxisPlan, tile: int) -> None:
    """Refused for a form whose steps see other blocks, or no whole register tiles of rows."""
    whole = window.shown[-2] % tile == 0
    if whole and axis.place in ("table", "dim", "single"):
        return
    if not whole:
        raise Refused(
            Rule.BLOCKS,
            f"a block of {window.shown[-2]} rows of {window.array} has no whole register tiles",
            store.loc,
            f"use a multiple of {tile}",
        )
    raise Refused(
        Rule.FORM,
        f"a loop inside of the step goes over {axis.user}, whose rows are moved by steps",
        store.loc,
        "use loop_type='outer_pipeline'",
    )


def _shown(arrays: Arrays, window: Window, groups: str, rows: str, dtype: str) -> Type:
    """What a block is: its first dimension is a tile."""
    axis = groups if len(window.shown) > 2 else rows
    first = axis if window.shown[0] == arrays.axes[axis].size else window.shown[0]
    return Type((first, *window.shown[1:]), dtype)


def _groups(arrays: Arrays, groups: str, count: int) -> ir.Expr:
    """How many groups a block has: the last one may have fewer."""
    axis = arrays.axes[groups]
    if count % axis.size == 0:
        return integers.const(axis.size)
    left = integers.sub(integers.const(count), integers.mul(scalar(axis.number), axis.size))
    return integers.minimum(left, axis.size)
