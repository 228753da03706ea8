"""domain(iterations, scope) -> Domain | None: every place where a group of loops stands.

for g in hl.grid(3): for t in hl.tile(offsets[g], offsets[g + 1])      offsets = [0, 2, 2, 3]
->  {"g": [0, 0, 2], "t": [0, 1, 2]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..analysis.placed import root
from ..ir import Along, Axis, Expr, GridIndex, Load, TileIndex, TileScalar, walk
from .pointwise import Arrays, Points, Scope, Term, resolve, term

MOST_STATIC = 1 << 22  # points that are laid out ahead of a call

Where = frozenset[tuple[Expr, bool]]  # conditions, and what each must be


@dataclass(frozen=True)
class Domain:
    """`points(arrays)` lists the places; `static` does if no tensor changes them."""

    axes: tuple[str, ...]
    static: Points | None
    size: int
    points: Callable[[Arrays], tuple[Points, int]]


@dataclass(frozen=True)
class Iterations:
    """Some of the iterations of a nest of loops.

    loops    outermost first
    filters  of those, loops that only must have an iteration
    where    conditions, and what each of them must be
    ends     tile axes that are only looked at in their first and last position, each a tile of its
             own, because conditions ask where their tiles are: blocks of one position are legal
    """

    loops: tuple[Axis, ...]
    filters: frozenset[str] = frozenset()
    where: Where = frozenset()
    ends: frozenset[str] = frozenset()


Step = Callable[[Arrays, Points, int], tuple[Points, int]]  # to the places of one more loop


def domain(chosen: Iterations, known: Scope) -> Domain | None:
    """The places where the loops stand; None if a range or a condition cannot be known."""
    known = replace(known, ends=known.ends | chosen.ends)
    points: Points = {}
    size, steps, names = 1, [], []
    for axis in chosen.loops:
        here = replace(known, points={} if steps else points)  # a step changes how many there are
        begin, end = term(axis.begin, here), term(axis.end, here)
        if begin is None or end is None or begin.bound != "exact" or end.bound != "exact":
            return None
        step = _loop(axis.name, begin, end, chosen)
        names += [] if axis.name in chosen.filters else [axis.name]
        if steps or begin.constant is None or end.constant is None:
            steps.append(step)
            continue
        points, size = step({}, points, size)
        if size > MOST_STATIC:
            return None
    for condition, wanted in sorted(chosen.where, key=str):
        holds = term(condition, replace(known, points={} if steps else points))
        if holds is None or holds.bound != "exact":
            return None
        steps.append(_kept(holds, wanted))
        if len(steps) == 1 and holds.constant is not None:
            points, size = steps.pop()({}, points, size)
    return _domain(tuple(names), points, size, tuple(steps))


def _domain(names: tuple[str, ...], start: Points, size: int, steps: tuple[Step, ...]) -> Domain:
    if not steps:
        return Domain(names, start, size, lambda arrays: (start, size))

    def points(arrays: Arrays) -> tuple[Points, int]:
        here, count = start, size
        for step in steps:
            here, count = step(arrays, here, count)
        return here, count

    return Domain(names, None, 0, points)


def _loop(axis: str, begin: Term, end: Term, chosen: Iterations) -> Step:
    def walked(arrays: Arrays, points: Points, size: int) -> tuple[Points, int]:
        low = np.broadcast_to(begin.run(arrays, points), size)
        high = np.broadcast_to(end.run(arrays, points), size)
        counts = np.maximum(np.subtract(high, low, dtype=np.int64), 0)
        if axis in chosen.filters:
            return _only(counts > 0, points)
        by = np.ones(size, np.int64)
        if axis in chosen.ends:
            by, counts = np.maximum(counts - 1, 1), np.minimum(counts, 2)
        place = np.repeat(np.arange(size), counts)
        since = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        moved = {a: v[place] for a, v in points.items()}
        return {**moved, axis: low[place] + since * by[place]}, len(place)

    return walked


def _kept(holds: Term, wanted: bool) -> Step:
    def kept(arrays: Arrays, points: Points, size: int) -> tuple[Points, int]:
        found = np.broadcast_to(holds.run(arrays, points), size).astype(bool)
        return _only(found == wanted, points)

    return kept


def _only(keep: np.ndarray, points: Points) -> tuple[Points, int]:
    return {a: v[keep] for a, v in points.items()}, int(keep.sum())


def depends(expr: Expr, known: Scope, axes: Mapping[str, Axis]) -> frozenset[str]:
    """Axes whose place the value of an expression depends on, through their ranges too."""
    found = set(tested(expr, known))
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


def tested(expr: Expr, known: Scope) -> frozenset[str]:
    """Axes of which a condition asks where their tiles are."""
    conditions = (e for e in walk(resolve(expr, known.definitions)) if e.type.dtype == "bool")
    edges = (e for c in conditions for e in walk(c) if isinstance(e, TileScalar))
    return frozenset(e.axis for e in edges if e.what in ("begin", "end"))


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
