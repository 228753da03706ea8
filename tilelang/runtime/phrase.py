"""phrase(expr, ir, number) -> str: an index expression in the author's words.

phrase(offsets[g + 1], ir)                      "offsets[g + 1]"
phrase(offsets[g + 1], ir, number=at g = 3)     "offsets[4]"
settled(min(offsets[g + 1], tile.end), number)  offsets[g + 1]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..ir import (
    Along,
    Apply,
    At,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Load,
    TileIndex,
    TileScalar,
    Var,
    map_children,
)
from ..ir.integers import const
from ..ir.text import expression
from .pointwise import position

Number = Callable[[Expr], int | None]

NAMED = {"minimum": "min", "maximum": "max"}


def symbolic(_: Expr) -> None:
    """No numbers: axes are printed by name."""


def phrase(expr: Expr, ir: KernelIR, number: Number = symbolic) -> str:
    """The expression as text; `number` gives the value of axes and of indices, where known."""
    return expression(_spoken(expr, ir, number))


def _spoken(expr: Expr, ir: KernelIR, number: Number) -> Expr:
    """The expression with numbers where they are known, and names that the author knows."""
    spoken = partial(_spoken, ir=ir, number=number)
    match expr:
        case GridIndex(axis) | TileIndex(axis):
            value = number(expr)
            return replace(expr, axis=ir.axis(axis).user) if value is None else const(value)
        case TileScalar(axis):
            return replace(expr, axis=ir.axis(axis).user)
        case Load(tensor, index):
            view = ir.tensor(tensor).view
            if view is not None and not ir.tensor(view.source).shape:
                return Var(view.source, expr.type)  # the number of a tensor without dimensions
            return replace(expr, index=tuple(_entry(i, ir, number) for i in index), mask=None)
        case Apply("cast", (arg,)):
            return spoken(arg)
        case Apply("minimum" | "maximum" as op):
            return replace(map_children(expr, spoken), op=NAMED[op])
        case _:
            return map_children(expr, spoken)


def _entry(index: Index, ir: KernelIR, number: Number) -> Index:
    place = position(index)
    if place is None:
        return index
    value = number(place)
    if value is not None:
        return At(const(value))
    if isinstance(index, Along):
        offset = None if index.offset is None else _spoken(index.offset, ir, number)
        return Along(ir.axis(index.axis).user, offset)
    return At(_spoken(place, ir, number))


def settled(expr: Expr, number: Number) -> Expr:
    """The expression without the arms of selects, minima and maxima that do not matter here."""
    chosen = _chosen(expr, number) if isinstance(expr, Apply) else None
    if chosen is not None:
        return settled(chosen, number)
    return map_children(expr, lambda e: settled(e, number))


def _chosen(expr: Apply, number: Number) -> Expr | None:
    if expr.op == "where":
        condition = number(expr.args[0])
        return None if condition is None else expr.args[1 if condition else 2]
    if expr.op not in NAMED:
        return None
    arms = [(number(arm), arm) for arm in expr.args]
    known = [(value, arm) for value, arm in arms if value is not None]
    pick = min if expr.op == "minimum" else max
    return pick(known, key=lambda pair: pair[0])[1] if known else None
