"""of_axis(graph, axis, rises) -> Range: what an axis runs over when no other tile is open.

for tk in tile(begin, min(end, tq.end))      the hull [begin, end), and tk.index <= tq.index

A backward kernel opens the loops in another order.  There the hull is the range, cut by what is
known relative to the tiles that are open (`bounds`).  A hull is taken only where every value that
the loop folds vanishes outside of the author's range (`vanish`), and never where ranges of
different tiles are apart: there each position is in one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import Loc
from ..ir import Apply, Axis, Const, Expr, TileScalar
from ..language.build import binary
from .graph import AxisRange, Graph, Near

Side = Literal["begin", "end"]


def of_axis(graph: Graph, axis: Axis, rises: Sequence[str]) -> AxisRange:
    """The range of an axis whose bounds are names of the graph."""
    begin, end, extent = axis.begin, axis.end, axis.max_extent
    plain = AxisRange(axis, begin, end, (), extent)
    low, high = (_bounds(graph, e, op) for e, op in ((begin, "maximum"), (end, "minimum")))
    if axis.kind == "grid" or low is None or high is None:
        return plain
    others = {b.other for b in (low, high) if b.other}
    if len(others) != 1 or others & set(rises):
        return plain
    (other,) = others
    around = graph.ranges.get(other)
    if around is None or around.axis.fixed is not None:
        return plain
    first = low.rest if low.rest is not None else _moved(graph, around.begin, low.offset)
    last = high.rest if high.rest is not None else _moved(graph, around.end, high.offset)
    near = Near(other, low.offset if low.other else None, high.offset if high.other else None)
    return AxisRange(axis, first, last, (near,), extent)


@dataclass(frozen=True)
class _Bound:
    """A bound as the larger or smaller of `rest` and an edge of another axis's tile + offset."""

    other: str = ""
    offset: int = 0
    rest: Expr | None = None


def _bounds(graph: Graph, bound: Expr, op: str) -> _Bound | None:
    """None if it is neither free of tiles nor of that form."""
    edge: TileScalar | None = None
    offset, rest = 0, None
    for part in graph.operands(bound, op):
        found, moved = _edge(graph, part)
        if found is None:
            if any(isinstance(e, TileScalar) for e in graph.leaves((part,))):
                return None
            rest = part if rest is None else graph.add(binary(op, rest, part, None))
        elif edge is not None or found.what != ("begin" if op == "maximum" else "end"):
            return None
        else:
            edge, offset = found, moved
    return _Bound("" if edge is None else edge.axis, offset, rest)


def _edge(graph: Graph, expr: Expr) -> tuple[TileScalar | None, int]:
    """An edge of a tile and what is added to it."""
    match graph.term(expr):
        case TileScalar(_, "begin" | "end") as edge:
            return edge, 0
        case Apply("add" | "sub" as op, (x, Const(int(offset)))):
            edge, before = _edge(graph, x)
            return edge, before + (offset if op == "add" else -offset)
        case Apply("add", (Const(int(offset)), x)):
            edge, before = _edge(graph, x)
            return edge, before + offset
        case _:
            return None, 0


def _moved(graph: Graph, bound: Expr, offset: int) -> Expr:
    return graph.add(binary("add", bound, offset, None)) if offset else bound


def turned(axis: Axis, own: Expr, loc: Loc) -> Expr:
    """The index of a loop that runs back, in that of one that does not: begin + end - 1 - own."""
    if axis.static is not None:
        return binary("sub", sum(axis.static) - 1, own, loc)
    ends = axis.end
    if axis.begin != Const(0, axis.begin.type):
        ends = binary("add", axis.begin, ends, loc)
    return binary("sub", binary("sub", ends, 1, loc), own, loc)


def same(one: AxisRange, other: AxisRange) -> bool:
    """Whether two axes run over the same positions, cut into tiles alike."""
    mine, its = one.axis, other.axis
    return (
        (one.begin, one.end, one.near, mine.kind) == (other.begin, other.end, other.near, its.kind)
        and (mine.begin, mine.end) == (its.begin, its.end)
        and mine.fixed == its.fixed
    )


def without_hull(range: AxisRange) -> AxisRange:
    """The range as the author wrote it, inside of the tiles that it is relative to."""
    return replace(range, begin=range.axis.begin, end=range.axis.end, near=())


def bounds(graph: Graph, name: str, opened: Sequence[str]) -> tuple[Expr, Expr]:
    """What an axis runs over inside of the tiles of other axes, in names of the graph."""
    own = graph.ranges[name]
    if own.near and own.near[0].other in opened:
        return own.axis.begin, own.axis.end
    begin, end = own.begin, own.end
    for other in opened:
        for near in graph.ranges[other].near:
            if near.other == name and near.high is not None:
                begin = _cut(graph, begin, TileScalar(other, "begin"), near.high)
            if near.other == name and near.low is not None:
                end = _cut(graph, end, TileScalar(other, "end"), near.low)
    return begin, end


def _cut(graph: Graph, bound: Expr, edge: TileScalar, offset: int) -> Expr:
    """The bound, or an edge of a tile - offset, if that is further in."""
    around = graph.ranges[edge.axis]
    if offset == 0 and bound == (around.begin if edge.what == "begin" else around.end):
        return edge
    moved = graph.add(binary("sub", edge, offset, None)) if offset else edge
    op = "maximum" if edge.what == "begin" else "minimum"
    weak = Const(bound.value, bound.type, weak=True) if isinstance(bound, Const) else bound
    return graph.add(binary(op, weak, moved, None))
