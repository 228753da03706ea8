"""domain(axes, filters, scope) -> Domain | None: every place where a group of loops stands.

for g in hl.grid(3): for t in hl.tile(offsets[g], offsets[g + 1])      offsets = [0, 2, 2, 3]
->  {"g": [0, 0, 2], "t": [0, 1, 2]}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..analysis.placed import root
from ..ir import Along, Axis, Expr, GridIndex, Load, TileIndex, walk
from .pointwise import Arrays, Points, Scope, Term, resolve, term

MOST_STATIC = 1 << 22  # points that are laid out ahead of a call


@dataclass(frozen=True)
class Domain:
    """`points(arrays)` lists the places; `static` does if no tensor changes them."""

    axes: tuple[str, ...]
    static: Points | None
    size: int
    points: Callable[[Arrays], tuple[Points, int]]


@dataclass(frozen=True)
class _Step:
    """One loop of a domain; a filter drops the places where the loop does not run."""

    axis: str
    begin: Term
    end: Term
    filter: bool


def domain(axes: Iterable[Axis], filters: Collection[str], known: Scope) -> Domain | None:
    """The places where `axes` (outermost first) stand; None if a range cannot be known."""
    points: Points = {}
    size, steps, names = 1, [], []
    for axis in axes:
        here = replace(known, points={} if steps else points)  # a step changes how many there are
        begin, end = term(axis.begin, here), term(axis.end, here)
        if begin is None or end is None or begin.bound != "exact" or end.bound != "exact":
            return None
        step = _Step(axis.name, begin, end, axis.name in filters)
        names += [] if step.filter else [axis.name]
        if steps or begin.constant is None or end.constant is None:
            steps.append(step)
            continue
        points, size = _walked(step, {}, points, size)
        if size > MOST_STATIC:
            return None
    return _domain(tuple(names), points, size, tuple(steps))


def _domain(names: tuple[str, ...], start: Points, size: int, steps: tuple[_Step, ...]) -> Domain:
    if not steps:
        return Domain(names, start, size, lambda arrays: (start, size))

    def points(arrays: Arrays) -> tuple[Points, int]:
        here, count = start, size
        for step in steps:
            here, count = _walked(step, arrays, here, count)
        return here, count

    return Domain(names, None, 0, points)


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


def depends(expr: Expr, known: Scope, axes: Mapping[str, Axis]) -> frozenset[str]:
    """Axes whose place the value of an expression depends on, through their ranges too."""
    found: set[str] = set()
    for part in walk(resolve(expr, known.definitions)):
        found |= _named(part)
    for name in tuple(found):
        found |= depends(axes[name].begin, known, axes) | depends(axes[name].end, known, axes)
    return frozenset(found)


def _named(part: Expr) -> set[str]:
    match part:
        case GridIndex(axis) | TileIndex(axis):
            return {axis}
        case Load(_, index):
            return {i.axis for i in index if isinstance(i, Along)}
        case _:
            return set()


def reads_data(expr: Expr, known: Scope, axes: Mapping[str, Axis]) -> bool:
    """Whether the value depends on what tensors hold."""
    resolved = resolve(expr, known.definitions)
    if any(isinstance(part, Load) for part in walk(resolved)):
        return True
    return any(ragged(axes[name], known, axes) for name in depends(expr, known, axes))


def ragged(axis: Axis, known: Scope, axes: Mapping[str, Axis]) -> bool:
    """Whether the range of an axis depends on what tensors hold."""
    return reads_data(axis.begin, known, axes) or reads_data(axis.end, known, axes)


def reads(exprs: Iterable[Expr], known: Scope) -> tuple[str, ...]:
    """The parameters whose values the expressions need."""
    parts = (p for e in exprs for p in walk(resolve(e, known.definitions)))
    loaded = {root(known.ir, p.tensor) for p in parts if isinstance(p, Load)}
    return tuple(t.name for t in known.ir.tensors if t.name in loaded - known.written)
