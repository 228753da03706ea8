"""ranges(ir, scope) -> Ranges: the interval of every axis and what may be concluded from it.

Assumption of the language: a tensor that gives a loop's begin at one index and its end at the next,
as in range [offsets[g], offsets[g + 1]), is sorted.  (Checked calls verify it; where it does not
hold such ranges are empty or overlap.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

import sympy
from sympy.core.function import AppliedUndef

from ..ir import Axis, KernelIR
from .inequalities import Knowledge, branches, linear, prove
from .placed import Place, loops
from .symbols import Meanings, axes_of, edge, parts, position, renamed, symbolic


@dataclass(frozen=True)
class Interval:
    """begin <= position < end of a tile axis, as sympy expressions over outer axes and loads.

    A scalar load such as offsets[g + 1] is the sympy function application offsets(g + 1); the
    begin and end of an outer tile `tq` are the symbols `tq.begin` and `tq.end`.
    """

    begin: sympy.Expr
    end: sympy.Expr


@dataclass(frozen=True, eq=False)
class Ranges:
    """Intervals by axis, the axes around each, and the tensors that are taken to be sorted.

    A key that stands for itself: what follows of one kernel's ranges is found once.

    limits  what the index of each hl.grid axis is kept below
    """

    scope: Meanings
    axes: Mapping[str, Axis]
    around: Mapping[str, Place]
    intervals: Mapping[str, Interval]
    sorted: frozenset[tuple[str, int]]
    limits: Mapping[str, int] = field(default_factory=dict)


def ranges(ir: KernelIR, known: Meanings) -> Ranges:
    """The range of every axis of the kernel."""
    intervals = {
        a.name: Interval(symbolic(a.begin, known), symbolic(a.end, known)) for a in ir.axes
    }
    around = {name: place for name, (_, place) in loops(ir).items()}
    tables = frozenset(t for i in intervals.values() for t in sorted_tables(i))
    return Ranges(known, {a.name: a for a in ir.axes}, around, intervals, tables)


def sorted_tables(interval: Interval) -> Iterator[tuple[str, int]]:
    """(tensor, argument) where end - begin has a T(.., e + 1, ..) less a T(.., e, ..).

    Loads that only choose between bounds, or that are limits on their own, say nothing.
    """
    for begin in alternatives(interval.begin):
        for end in alternatives(interval.end):
            length = linear(end - begin) or {}
            calls = {atom: c for atom, c in length.items() if isinstance(atom, AppliedUndef)}
            above = [call for call, factor in calls.items() if factor > 0]
            below = [call for call, factor in calls.items() if factor < 0]
            yield from (found for a in below for b in above for found in _next(a, b))


def _next(low: AppliedUndef, high: AppliedUndef) -> Iterator[tuple[str, int]]:
    """The argument in which `high` is one more than `low`, all else being equal."""
    if low.func == high.func:
        steps = [sympy.expand(b - a) for a, b in zip(parts(low), parts(high))]
        moved = [k for k, step in enumerate(steps) if step != 0]
        if len(moved) == 1 and steps[moved[0]] == 1:
            yield low.func.__name__, moved[0]


def alternatives(expr: sympy.Expr) -> list[sympy.Expr]:
    """The values that an expression may have, by choosing in each min, max and select."""
    if isinstance(expr, sympy.Min | sympy.Max | sympy.Piecewise):
        return [value for branch in branches(expr) for value in alternatives(branch)]
    if isinstance(expr, sympy.Add):
        return [sympy.Add(*terms) for terms in product(*map(alternatives, parts(expr)))]
    factor, rest = expr.as_coeff_Mul()
    return [expr] if factor == 1 else [factor * value for value in alternatives(rest)]


@lru_cache(64)
def running(axis: str, known: Ranges) -> tuple[sympy.Expr, ...]:
    """Expressions that are not negative while the body of the axis runs."""
    interval, index = known.intervals[axis], position(axis)
    if known.axes[axis].kind == "grid":
        return (index - interval.begin, interval.end - index - 1)
    first, last = edge(axis, "begin"), edge(axis, "end")
    return (
        first - interval.begin,
        interval.end - last,
        last - first - 1,
        index - first,
        last - index - 1,
        edge(axis, "id"),
        edge(axis, "count") - edge(axis, "id") - 1,
        edge(axis, "block_size") - 1,
    )


@lru_cache(32)
def knowledge(around: Place, known: Ranges) -> Knowledge:
    """What holds inside of the loops `around`."""
    return Knowledge(tuple(f for a in around for f in running(a, known)), known.sorted)


@lru_cache(32)
def nonempty(axis: str, known: Ranges) -> bool:
    """Whether the loop runs at least once whenever the loops around it run."""
    interval = known.intervals[axis]
    here = knowledge(known.around[axis], known)
    return prove(interval.begin + 1, interval.end, here) is not None


def extent(axis: str, known: Ranges) -> int | None:
    """end - begin when that is a constant; an empty range counts 0."""
    interval = known.intervals[axis]
    length = sympy.expand(interval.end - interval.begin)
    return max(int(length), 0) if length.is_Integer else None


def depends(axis: str, known: Ranges) -> tuple[str, ...]:
    """Axes around this one that its bounds depend on, outermost first."""
    interval = known.intervals[axis]
    found = axes_of(interval.begin, known.scope) | axes_of(interval.end, known.scope)
    return tuple(a for a in known.around[axis] if a in found)


# ---------------------------------------------------------------- bounds of an expression


def extreme(expr: sympy.Expr, top: bool, inner: Collection[str], known: Ranges) -> sympy.Expr:
    """A bound of `expr`, over all that the axes `inner` do, free of their symbols.

    The largest value it can have if `top`, else the smallest; infinite where none is known.
    """
    if not _moved(expr, inner):
        return expr
    if isinstance(expr, sympy.Symbol):
        return _symbol(expr, top, inner, known)
    if isinstance(expr, sympy.Add):
        return sympy.Add(*(extreme(a, top, inner, known) for a in parts(expr)))
    if isinstance(expr, sympy.Min | sympy.Max):
        return expr.func(*(extreme(a, top, inner, known) for a in parts(expr)))
    if isinstance(expr, sympy.Piecewise):
        values = [extreme(value, top, inner, known) for value, _ in parts(expr)]
        return sympy.Max(*values) if top else sympy.Min(*values)
    return _product(expr, top, inner, known)


def _product(expr: sympy.Expr, top: bool, inner: Collection[str], known: Ranges) -> sympy.Expr:
    factor, rest = expr.as_coeff_Mul()
    if factor != 1 and factor.is_Rational:
        return factor * extreme(rest, top == bool(factor > 0), inner, known)
    if isinstance(expr, sympy.floor):
        return sympy.floor(extreme(parts(expr)[0], top, inner, known))
    if isinstance(expr, sympy.Mod) and parts(expr)[1].is_Integer and parts(expr)[1] > 0:
        return parts(expr)[1] - 1 if top else sympy.Integer(0)
    if isinstance(expr, AppliedUndef):
        return _lookup(expr, top, inner, known)
    return sympy.oo if top else -sympy.oo


def _lookup(expr: AppliedUndef, top: bool, inner: Collection[str], known: Ranges) -> sympy.Expr:
    """A sorted tensor is largest at its largest index."""
    moved = [k for k, argument in enumerate(parts(expr)) if _moved(argument, inner)]
    bound = [extreme(a, top, inner, known) for a in parts(expr)]
    usable = len(moved) == 1 and (expr.func.__name__, moved[0]) in known.sorted
    if usable and all(b.is_finite is not False for b in bound):
        return expr.func(*bound)
    return sympy.oo if top else -sympy.oo


def tiles(axis: str, known: Ranges) -> sympy.Expr:
    """The largest number of tiles that the axis can have; infinite if that is not known."""
    length, block = extent(axis, known), known.axes[axis].block
    if length is None:
        return sympy.oo
    return sympy.Integer(-(-length // block) if isinstance(block, int) else length)


def _moved(expr: sympy.Expr, inner: Collection[str]) -> bool:
    names = {s.name.partition(".")[0] for s in expr.free_symbols if isinstance(s, sympy.Symbol)}
    return any(axis in names for axis in inner)


def _symbol(symbol: sympy.Symbol, top: bool, inner: Collection[str], known: Ranges) -> sympy.Expr:
    axis, _, what = symbol.name.partition(".")
    interval = known.intervals[axis]
    match what:
        case "" | "begin":
            bound = interval.end - 1 if top else interval.begin
        case "end":
            bound = interval.end if top else interval.begin + 1
        case "id":
            bound = tiles(axis, known) - 1 if top else sympy.Integer(0)
        case _:
            bound = sympy.oo if top else sympy.Integer(1)
    return extreme(bound, top, inner, known)


def within_tile(expr: sympy.Expr, axis: str, top: bool) -> sympy.Expr | None:
    """The bound of `expr` over the positions of one tile, in terms of tile.begin and tile.end."""
    index = position(axis)
    if index not in expr.free_symbols:
        return expr
    rising = _direction(expr, index)
    if rising is None:
        return None
    last = edge(axis, "end") - 1
    return renamed(expr, {index: last if rising == top else edge(axis, "begin")})


def _direction(expr: sympy.Expr, index: sympy.Symbol) -> bool | None:
    """Whether a linear expression rises with the symbol; None if that is not known."""
    slope = sympy.expand(expr).coeff(index)
    if not slope.is_Rational or sympy.expand(expr - slope * index).has(index):
        return None
    return bool(slope > 0)
