"""Moved rows: a store of the rows of many groups, to boxes or from them.

A step moves the rows that its tile has of every group; the others stay as they were.
"""

from __future__ import annotations

from tilelang import ir
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.clamps import compare
from tilelang.codegen.pallas.plan.moved import BEGIN, FIRST_ROW, STOP_ROW, MovedRows
from tilelang.codegen.pallas.plan.physical import All, Read, Write, scalar
from tilelang.codegen.pallas.plan.rewriting import rewritten
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.codegen.pallas.plan.windows.types import SHORT, Window
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
    pair = (store, load) if to_box else (load, store)
    groups, rows = (arrays.axes[_along(at.index)] for at in pair)
    for window, axis in ((box, groups), (flat, rows)):
        _check(store, window, axis, arrays)
    begin, end = (lane_of(arrays, e, store.loc) for e in (begin, end))
    end = scalar(rewritten(end, lambda e: BEGIN if e == begin else e))
    origin = rows.tile.origin
    here, there = (BEGIN, origin) if to_box else (origin, BEGIN)
    moved = MovedRows(
        source=Read(source.ref, _all(source), _shown(source, groups, rows)),
        begin=begin,
        first=integers.maximum(BEGIN, origin),
        stop=_stop(end, box.shape[1], rows),
        live=compare("lt", FIRST_ROW, STOP_ROW),
        by=integers.sub(here, there),
        here=(integers.sub(FIRST_ROW, here), integers.sub(STOP_ROW, here)),
        groups=groups.name,
        count=_count(groups, box.shape[0]),
        to_box=to_box,
        name=f"{store.tensor}_moved",
        some=min(SOME, box.shown[-2], flat.shown[-2]),
        type=_shown(target, groups, rows),
    )
    return Write(target.ref, _all(target), moved, store.loc)


def _along(index: tuple[ir.Index, ...]) -> str:
    return next(e.axis for e in index if isinstance(e, Along))


def _all(window: Window) -> tuple[All, ...]:
    return (All(),) * len(window.shown)


def _check(store: Store, window: Window, axis: AxisPlan, arrays: Arrays) -> None:
    """Refused for a form whose steps see other blocks, or no whole register tiles of rows."""
    held, tile = window.shown[-2], arrays.target.rows(itemsize(window.dtype))
    if held % tile:
        raise Refused(
            Rule.CONFIG,
            f"a block of {held} rows of {window.array} has no whole register tiles",
            store.loc,
            f"use a multiple of {tile}",
        )
    if window.shape[-2] < SHORT and itemsize(window.dtype) < 4:
        raise Refused(
            Rule.FORM,
            f"{window.array} has so few rows of {window.dtype} that no copy takes a block of them",
            store.loc,
            f"leave the block of {axis.user} out",
        )
    if axis.place not in ("table", "dim", "single"):
        raise Refused(
            Rule.FORM,
            f"a loop inside of the step goes over {axis.user}, whose rows are moved by steps",
            store.loc,
            "use loop_type='outer_pipeline'",
        )


def _shown(window: Window, groups: AxisPlan, rows: AxisPlan) -> Type:
    """What a block is: its first dimension is a tile."""
    first, *rest = window.shown
    axis = groups if len(rest) > 1 else rows
    return Type((axis.name if first == axis.size else first, *rest), window.dtype)


def _stop(end: ir.Expr, kept: int, rows: AxisPlan) -> ir.Expr:
    """Where a group's rows end: in its box, and in the tile."""
    last = integers.add(BEGIN, integers.const(kept))
    end = end if last in integers.least_of(end) else integers.minimum(end, last)
    return integers.minimum(end, integers.add(rows.tile.origin, integers.const(rows.size)))


def _count(groups: AxisPlan, count: int) -> ir.Expr:
    """How many groups a block has: the last one may have fewer."""
    if count % groups.size == 0:
        return integers.const(groups.size)
    left = integers.sub(integers.const(count), integers.mul(groups.number, groups.size))
    return integers.minimum(left, groups.size)
