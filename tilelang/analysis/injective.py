"""disjoint(a, b, axis, ...) -> Proof | None: no element is touched in two iterations of an axis.

Two iterations, an earlier and a later one, are written with two sets of symbols (g and g').  For
each dimension the positions that a reference can reach in one iteration are bounded, over all that
the inner loops do; the references are disjoint if the bounds of one dimension never meet:

    y[tm] under g, offsets[g] <= tm < offsets[g + 1]    offsets(g + 1) <= offsets(g'), g + 1 <= g'
    y[tn] under tn                                      tn.end <= tn'.begin
    y[g * C + k] under g, 0 <= k < C                    g * C + C <= g' * C
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import sympy

from .access import Reference
from .inequalities import Knowledge, Tables, prove
from .placed import Place
from .ranges import Ranges, extreme, running, within_tile
from .symbols import axes_of, edge, floor_div, parts, position, renamed

Bounds = tuple[sympy.Expr, sympy.Expr]  # first and last position
Pair = tuple[Bounds, Bounds]


@dataclass(frozen=True)
class Proof:
    """Which dimension keeps the iterations apart, and the tensors that must be sorted for it.

    `dim` counts dimensions of the base tensor; -1 when several together do.
    """

    dim: int
    tables: Tables


def disjoint(
    a: Reference, b: Reference, axis: str, known: Ranges, outer: Collection[str]
) -> Proof | None:
    """Whether a and b touch different elements in any two different iterations of `axis`.

    `outer` are the loops around the axis whose indices are the same in both iterations.
    """
    forward = apart_later(a, b, axis, known, outer)
    if forward is None or a == b:
        return forward
    backward = apart_later(b, a, axis, known, outer)
    return None if backward is None else Proof(forward.dim, forward.tables | backward.tables)


def apart_later(
    early: Reference, late: Reference, axis: str, known: Ranges, outer: Collection[str]
) -> Proof | None:
    """`disjoint` for a in an iteration before that of b; prefers a proof without sorted tensors."""
    if early.base != late.base:
        return None
    both = iterations(axis, known, frozenset(outer))
    found: Proof | None = None
    for dim, (one, other) in dimensions(early, late, axis, known):
        tables = never_meet(one, both.later(other), both.facts)
        if tables is not None and (found is None or len(tables) < len(found.tables)):
            found = Proof(dim, tables)
    return found


def never_meet(one: Bounds, other: Bounds, facts: Knowledge) -> Tables | None:
    """The tensors that must be sorted for positions to lie before, or behind, all others."""
    above = prove(one[1] + 1, other[0], facts)
    return above if above is not None else prove(other[1] + 1, one[0], facts)


def separate(axis: str, over: str, shift: sympy.Expr, known: Ranges) -> Tables | None:
    """The tensors that must be sorted for the ranges of `axis` to rise with the axis `over`.

    The ranges are moved by `shift`; each begins where the one before ends, or behind that.  None if
    that was not proved.
    """
    interval, around = known.intervals[axis], known.around[axis]
    bounds = reach(interval.begin + shift, interval.end + shift - 1, around, over, known)
    if bounds is None:
        return None
    both = iterations(over, known, frozenset(known.around[over]))
    return prove(bounds[1] + 1, both.later(bounds)[0], both.facts)


# ---------------------------------------------------------------- two iterations


@dataclass(frozen=True)
class TwoIterations:
    """Two iterations of an axis: what holds while both run, and a name of the later one."""

    facts: Knowledge
    rename: Callable[[sympy.Expr], sympy.Expr]

    def later(self, bounds: Bounds) -> Bounds:
        return self.rename(bounds[0]), self.rename(bounds[1])


@lru_cache(32)  # each pair of references asks for those of the loops around it
def iterations(axis: str, known: Ranges, outer: frozenset[str]) -> TwoIterations:
    """Two iterations of the axis in the same iteration of the loops `outer`."""
    rename = renaming(known, outer)
    around = (*known.around[axis], axis)
    here = [fact for a in around for fact in running(a, known)]
    both = dict.fromkeys((*order(axis, known), *here, *map(rename, here)))
    return TwoIterations(Knowledge(tuple(both), known.sorted), rename)


def renaming(known: Ranges, fixed: frozenset[str]) -> Callable[[sympy.Expr], sympy.Expr]:
    """Gives the symbols that differ between two iterations of an axis in `fixed` a prime."""

    @cache
    def primed(symbol: sympy.Basic) -> sympy.Symbol | None:
        if not isinstance(symbol, sympy.Symbol) or axes_of(symbol, known.scope) <= fixed:
            return None
        return later(symbol)

    return lambda e: renamed(e, {s: new for s in e.free_symbols if (new := primed(s)) is not None})


def later(symbol: sympy.Symbol) -> sympy.Symbol:
    """The same quantity in the later iteration; an unnamed unknown stays unlike every other."""
    if isinstance(symbol, sympy.Dummy):
        return sympy.Dummy(f"{symbol.name}'", integer=True)
    return sympy.Symbol(f"{symbol.name}'", integer=True)


def order(axis: str, known: Ranges) -> tuple[sympy.Expr, ...]:
    """Expressions that are not negative because one iteration comes before the primed one."""
    if known.axes[axis].kind == "grid":
        return (later(position(axis)) - position(axis) - 1,)
    first, last, number = (edge(axis, what) for what in ("begin", "end", "id"))
    facts = (later(first) - last, later(number) - number - 1)
    length = known.axes[axis].fixed
    if length is None or axis in known.scope.moved:
        return facts
    # cut from the begin on, or at multiples of its length: at each another one begins
    return (*facts, sympy.floor(later(first) / length) - sympy.floor(first / length) - 1)


# ---------------------------------------------------------------- positions of one iteration


def dimensions(a: Reference, b: Reference, axis: str, known: Ranges) -> Iterator[tuple[int, Pair]]:
    """The dimensions in which both references are bounded, and those that two of them form."""
    for dim, (one, other) in enumerate(zip(a.dims, b.dims, strict=True)):
        if one.first is None or one.last is None or other.first is None or other.last is None:
            continue
        left = reach(one.first, one.last, a.loops, axis, known)
        right = reach(other.first, other.last, b.loops, axis, known)
        if left is not None and right is not None:
            yield dim, (left, right)
    for one, other in joined(a, b):
        left = reach(one, one, a.loops, axis, known)
        right = reach(other, other, b.loops, axis, known)
        if left is not None and right is not None:
            yield -1, (left, right)


@lru_cache(256)  # a store is compared with every access of its array
def reach(
    first: sympy.Expr, last: sympy.Expr, loops: Place, axis: str, known: Ranges
) -> Bounds | None:
    """Bounds over everything that one iteration of the axis does.

    A tile that both iterations share is one tile, and yet they may touch different positions of it.
    """
    place = loops.index(axis) + 1
    low: sympy.Expr | None = extreme(sympy.expand(first), False, loops[place:], known)
    high: sympy.Expr | None = extreme(sympy.expand(last), True, loops[place:], known)
    for around in loops[:place]:
        if known.axes[around].kind == "tile" and low is not None and high is not None:
            low, high = within_tile(low, around, False), within_tile(high, around, True)
    return None if low is None or high is None else (low, high)


def joined(a: Reference, b: Reference) -> list[tuple[sympy.Expr, sympy.Expr]]:
    """Positions that two dimensions spell together: y[e // c, e % c] is told apart by e."""
    found: list[tuple[sympy.Expr, sympy.Expr]] = []
    exact = [
        (one.first, other.first)
        for one, other in zip(a.dims, b.dims, strict=True)
        if one.first is not None and one.first == one.last
        if other.first is not None and other.first == other.last
    ]
    while True:
        every = (*exact, *found)
        wholes = (_whole_pair(high, low) for high in every for low in every)
        new = next((w for w in wholes if w is not None and w not in found), None)
        if new is None:
            return found
        found.append(new)


def _whole_pair(
    high: tuple[sympy.Expr, sympy.Expr], low: tuple[sympy.Expr, sympy.Expr]
) -> tuple[sympy.Expr, sympy.Expr] | None:
    """(e, e'), when high is (e // c, e' // c) and low is (e % c, e' % c)."""
    if not all(isinstance(part, sympy.Mod) for part in low) or parts(low[0])[1] != parts(low[1])[1]:
        return None
    one, other = _whole(high[0], low[0]), _whole(high[1], low[1])
    return None if one is None or other is None else (one, other)


def _whole(high: sympy.Expr, low: sympy.Expr) -> sympy.Expr | None:
    """e, when high is e // c and low is e % c."""
    value, base = parts(low)
    if not (base.is_Integer and base > 0):
        return None
    quotient = floor_div(value, base)
    return value if quotient is not None and sympy.expand(high - quotient) == 0 else None
