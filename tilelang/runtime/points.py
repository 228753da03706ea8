"""domain(iterations, ir) -> Domain | None: every place where a group of loops stands.

for g in hl.grid(3): for t in hl.tile(offsets[g], offsets[g + 1])      offsets = [0, 2, 2, 3]
->  {"g": [0, 0, 2], "t": [0, 1, 2]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..analysis.uses import reads_memory
from ..ir import Along, Apply, Axis, Expr, GridIndex, KernelIR, TileIndex, TileScalar, loads, walk
from .pointwise import Arrays, KnownAhead, Points, Term, readable, term

MOST_STATIC = 1 << 22  # points that are laid out ahead of a call


@dataclass(frozen=True)
class Domain:
    """`listed(arrays)` are the places, and how many.

    ahead   with those places, if no tensor changes them
    empty   it is known ahead that there is none
    points  the places themselves, if no tensor changes them
    """

    ahead: KnownAhead
    empty: bool
    listed: Callable[[Arrays], tuple[Points, int]]
    points: Points | None


Where = frozenset[tuple[Expr, bool]]  # conditions, and what each must be
Step = Callable[[Arrays, Points, int], tuple[Points, int]]  # to the places of one more loop


@dataclass(frozen=True)
class Iterations:
    """Some of the iterations of a nest of loops.

    loops    outermost first
    filters  of those, loops that only must have an iteration
    where    conditions, and what each of them must be
    ends     tile axes that are only looked at in their first and last position, because conditions
             ask where their tiles are: each a tile of its own, where blocks of one are legal
    each     the same of axes that are looked at in every position
    once     of those, axes that nothing else asks for: where the ranges of a loop further in
             overlap, it stands in every place once
    cut      of tile axes that the author cut, those that are looked at in each first position of a
             tile only, as nothing asks for the others
    """

    loops: tuple[Axis, ...]
    filters: frozenset[str] = frozenset()
    where: Where = frozenset()
    ends: frozenset[str] = frozenset()
    each: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()

    @property
    def tiles(self) -> dict[str, int]:
        """Axes whose tiles are known, and how many positions each has."""
        return {a.name: _positions(a) for a in self.loops if a.name in self.ends | self.each}

    @property
    def exprs(self) -> list[Expr]:
        """What has to be known to find them."""
        return [e for a in self.loops for e in (a.begin, a.end)] + [c for c, _ in self.where]


def domain(chosen: Iterations, ir: KernelIR) -> Domain | None:
    """The places where the loops stand; None if a range or a condition cannot be known."""
    points: Points = {}
    size, steps = 1, list[Step]()
    for axis in chosen.loops:
        # a step changes how many points there are
        ahead = KnownAhead(ir, {} if steps else points, chosen.tiles)
        begin, end = term(axis.begin, ahead), term(axis.end, ahead)
        if begin is None or end is None:
            return None
        overlapping = edges((axis.begin, axis.end)) & chosen.once
        step = _loop(axis.name, begin, end, chosen, overlapping)
        if steps or begin.constant is None or end.constant is None:
            steps.append(step)
            continue
        points, size = step({}, points, size)
        if size > MOST_STATIC:
            return None
    for condition, wanted in sorted(chosen.where, key=str):
        holds = term(condition, KnownAhead(ir, {} if steps else points, chosen.tiles))
        if holds is None:
            return None
        steps.append(_kept(holds, wanted))
        if len(steps) == 1 and holds.constant is not None:
            points, size = steps.pop()({}, points, size)

    def listed(arrays: Arrays) -> tuple[Points, int]:
        here, count = points, size
        for step in steps:
            here, count = step(arrays, here, count)
        return here, count

    ahead = KnownAhead(ir, {} if steps else points, chosen.tiles)
    return Domain(ahead, not steps and not size, listed, None if steps else points)


def _loop(
    axis: str, begin: Term, end: Term, chosen: Iterations, overlapping: frozenset[str]
) -> Step:
    def walked(arrays: Arrays, points: Points, size: int) -> tuple[Points, int]:
        low = np.broadcast_to(begin.run(arrays, points), size)
        high = np.broadcast_to(end.run(arrays, points), size)
        if overlapping and size:
            low = _behind(low, high, [v for a, v in points.items() if a not in overlapping])
        counts = np.maximum(np.subtract(high, low, dtype=np.int64), 0)
        if axis in chosen.filters:
            return _only(counts > 0, points)
        by = np.full(size, step := chosen.tiles[axis] if axis in chosen.cut else 1)
        counts = -(-counts // step)
        if axis in chosen.ends:
            by, counts = np.maximum(counts - 1, 1) * step, np.minimum(counts, 2)
        place = np.repeat(np.arange(size), counts)
        since = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        moved = {a: v[place] for a, v in points.items()}
        return {**moved, axis: low[place] + since * by[place]}, len(place)

    return walked


def _behind(low: np.ndarray, high: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """Where ranges begin that leave out what is in others with the same places of other loops."""
    order = np.lexsort((low, *reversed(others)))
    new = np.zeros(len(low), np.int64)
    for other in others:
        new[1:] |= np.diff(other[order]) != 0
    part = np.cumsum(new) << 33  # ends of one part are below those of the next
    ends = np.maximum.accumulate(part + np.maximum(high, low)[order])
    begins = np.maximum(part[1:] + low[order][1:], ends[:-1]) - part[1:]
    found = np.array(low, np.int64)
    found[order[1:]] = begins
    return found


def _kept(holds: Term, wanted: bool) -> Step:
    def kept(arrays: Arrays, points: Points, size: int) -> tuple[Points, int]:
        found = np.broadcast_to(holds.run(arrays, points), size).astype(bool)
        return _only(found == wanted, points)

    return kept


def _only(keep: np.ndarray, points: Points) -> tuple[Points, int]:
    return {a: v[keep] for a, v in points.items()}, int(keep.sum())


def depends(expr: Expr, ir: KernelIR) -> frozenset[str]:
    """Axes whose place the value of an expression depends on, through their ranges too."""
    found = {e.axis for e in walk(expr) if isinstance(e, GridIndex | TileIndex)} | tested(expr)
    found |= {i.axis for load in loads(expr) for i in load.index if isinstance(i, Along)}
    return frozenset(found).union(*(placed_by(ir.axis(name), ir) for name in found))


def placed_by(axis: Axis, ir: KernelIR) -> frozenset[str]:
    """Axes that the range of an axis depends on."""
    return depends(axis.begin, ir) | depends(axis.end, ir)


def tested(expr: Expr) -> frozenset[str]:
    """Axes of which a condition asks where their tiles are."""
    return edges(c for c in walk(expr) if c.type.dtype == "bool")


def around_tiles(axis: Axis, ir: KernelIR) -> frozenset[str]:
    """Axes whose tiles begin or end the range of an axis, if it is known what tiles may be.

    Where longer tiles come to no fewer places, those of one position stand for all.
    """
    found = edges((axis.begin, axis.end))
    more = _grows(axis.begin, "begin") and _grows(axis.end, "end")
    return found if more or all(_told(ir.axis(name), ir) for name in found) else frozenset()


def around_by(name: str, loops: Iterable[Axis]) -> Iterator[Axis]:
    """The loops whose ranges begin or end where tiles of an axis do."""
    yield from (a for a in loops if name in edges((a.begin, a.end)))


def slides(name: str, loops: Iterable[Axis]) -> bool:
    """Whether the ranges of loops move on with the tiles of an axis, so that none holds all."""
    return sum(name in edges((e,)) for a in loops for e in (a.begin, a.end)) > 1


def whole(name: str, ir: KernelIR) -> str:
    """The axis that has the same positions: that of whose tiles a range is all, or the axis."""
    match ir.axis(name):
        case Axis(begin=TileScalar(of, "begin"), end=TileScalar(other, "end")) if of == other:
            return whole(of, ir)
        case _:
            return name


def _positions(axis: Axis) -> int:
    """How many a tile has: of one that a config cuts, the fewest that is legal."""
    return axis.fixed or 1


def _told(axis: Axis, ir: KernelIR) -> bool:
    """Whether the author cut the tiles of an axis, or blocks of one are legal."""
    bounds = ir.block_size(axis)
    return axis.fixed is not None or bounds is None or bounds.least <= 1


def _grows(expr: Expr, edge: str) -> bool:
    """Whether a bound is further out where the edge of a tile is, and asks for that one only."""
    match expr:
        case TileScalar(_, what):
            return what == edge
        case Apply("add" | "minimum" | "maximum", args):
            return all(_grows(arg, edge) for arg in args)
        case Apply("sub", (left, right)):
            return _grows(left, edge) and not edges((right,))
        case _:
            return not edges((expr,))


def edges(exprs: Iterable[Expr]) -> frozenset[str]:
    """Axes of whose tiles expressions ask where they begin or end."""
    tiles = (e for expr in exprs for e in walk(expr) if isinstance(e, TileScalar))
    return frozenset(e.axis for e in tiles if e.what in ("begin", "end"))


def reads_data(expr: Expr, ir: KernelIR) -> bool:
    """Whether the value depends on what tensors hold."""
    return reads_memory(expr) or any(ragged(ir.axis(a), ir) for a in depends(expr, ir))


def ragged(axis: Axis, ir: KernelIR) -> bool:
    """Whether the range of an axis depends on what tensors hold."""
    return reads_data(axis.begin, ir) or reads_data(axis.end, ir)


def reads(exprs: Iterable[Expr], ir: KernelIR) -> tuple[str, ...]:
    """The parameters whose values the expressions need."""
    found = {ir.root(load.tensor) for e in exprs for load in loads(e)}
    return tuple(t.name for t in ir.tensors if t.name in found and readable(t.name, ir))
