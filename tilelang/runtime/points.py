"""domain(axes, filters, ir) -> Domain | None: every place where a group of loops stands.

for g in hl.grid(3): for t in hl.tile(offsets[g], offsets[g + 1])      offsets = [0, 2, 2, 3]
->  {"g": [0, 0, 2], "t": [0, 1, 2]}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from ..analysis.placed import root
from ..analysis.uses import reads_memory
from ..ir import Along, Axis, Expr, GridIndex, KernelIR, TileIndex, walk
from ..ir.traversal import loads
from .pointwise import Arrays, Points, Term, readable, term

MOST_STATIC = 1 << 22  # points that are laid out ahead of a call


@dataclass(frozen=True)
class Domain:
    """`listed(arrays)` are the places, and how many.

    static  the same if no tensor changes them, else {}
    empty   it is known ahead that there is none
    """

    static: Points
    empty: bool
    listed: Callable[[Arrays], tuple[Points, int]]


@dataclass(frozen=True)
class _Step:
    """One loop of a domain; a filter drops the places where the loop does not run."""

    axis: str
    begin: Term
    end: Term
    filter: bool


def domain(axes: Iterable[Axis], filters: Collection[str], ir: KernelIR) -> Domain | None:
    """The places where `axes` (outermost first) stand; None if a range cannot be known."""
    points: Points = {}
    size, steps = 1, list[_Step]()
    for axis in axes:
        here = {} if steps else points  # a step changes how many there are
        begin, end = term(axis.begin, ir, here), term(axis.end, ir, here)
        if begin is None or end is None:
            return None
        step = _Step(axis.name, begin, end, axis.name in filters)
        if steps or begin.constant is None or end.constant is None:
            steps.append(step)
            continue
        points, size = _walked(step, {}, points, size)
        if size > MOST_STATIC:
            return None

    def listed(arrays: Arrays) -> tuple[Points, int]:
        here, count = points, size
        for step in steps:
            here, count = _walked(step, arrays, here, count)
        return here, count

    return Domain({} if steps else points, not steps and not size, listed)


def _walked(step: _Step, arrays: Arrays, points: Points, size: int) -> tuple[Points, int]:
    begin = np.broadcast_to(step.begin.run(arrays, points), size)
    end = np.broadcast_to(step.end.run(arrays, points), size)
    counts = np.maximum(np.subtract(end, begin, dtype=np.int64), 0)
    if step.filter:
        keep = counts > 0
        return {a: v[keep] for a, v in points.items()}, int(keep.sum())
    place = np.repeat(np.arange(size), counts)
    since = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    moved = {a: v[place] for a, v in points.items()}
    return {**moved, step.axis: begin[place] + since}, len(place)


def depends(expr: Expr, ir: KernelIR) -> frozenset[str]:
    """Axes whose place the value of an expression depends on, through their ranges too."""
    found = {e.axis for e in walk(expr) if isinstance(e, GridIndex | TileIndex)}
    found |= {i.axis for load in loads(expr) for i in load.index if isinstance(i, Along)}
    return frozenset(found).union(*(placed_by(ir.axis(name), ir) for name in found))


def placed_by(axis: Axis, ir: KernelIR) -> frozenset[str]:
    """Axes that the range of an axis depends on."""
    return depends(axis.begin, ir) | depends(axis.end, ir)


def reads_data(expr: Expr, ir: KernelIR) -> bool:
    """Whether the value depends on what tensors hold."""
    return reads_memory(expr) or any(ragged(ir.axis(a), ir) for a in depends(expr, ir))


def ragged(axis: Axis, ir: KernelIR) -> bool:
    """Whether the range of an axis depends on what tensors hold."""
    return reads_data(axis.begin, ir) or reads_data(axis.end, ir)


def reads(exprs: Iterable[Expr], ir: KernelIR) -> tuple[str, ...]:
    """The parameters whose values the expressions need."""
    found = {root(ir, load.tensor) for e in exprs for load in loads(e)}
    return tuple(t.name for t in ir.tensors if t.name in found and readable(t.name, ir))
