"""position_facts(references, known) -> PositionFact...: does every scalar index lie in its array?

    for i in hl.grid(6):            x of length 6
        x[i]                        proved
        x[i + 1]                    refused: i + 1 reaches 6
        if i > 0: x[i - 1]          dynamic: i - 1 reaches -1, where the `if` may not hold
        x[index[i]]                 dynamic: memory may hold any number

Only a number that is certainly reached is refused; what can be neither proved nor refused is
dynamic, and what runs is then kept inside of the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import sympy
from sympy.core.function import AppliedUndef

from ..ir import Apply, At, Const, Expr, GridIndex
from .access import Reference
from .facts import PositionFact
from .inequalities import Knowledge, prove
from .ranges import Interval, Ranges, alternatives, extreme, nonempty, running
from .symbols import position, renamed, written

RANK = ("proved", "dynamic", "refused")
ZERO = sympy.Integer(0)


def limits(references: Sequence[Reference], known: Ranges) -> Mapping[str, int]:
    """What the plan keeps the index of an hl.grid axis below: all that it certainly indexes.

    x[g] and x[g + 1] bound g.  Behind a mask x[g + 1] may leave the array, and does not.  An index
    that is read from memory and only ever used as x[g + 1] may begin at -1: it has no limit.  One
    that ends at 4 where something is, and else at 0, is kept below 4.
    """
    ir = known.scope.ir
    found = {a.name: _chosen(known.intervals[a.name]) for a in ir.axes if a.kind == "grid"}
    found = {axis: limit for axis, limit in found.items() if limit is not None}
    above: set[str] = set(found)  # axes whose indices are not negative
    for reference in references:
        shape = ir.tensor(reference.base).shape
        for reach, size in zip(reference.dims, shape, strict=True):
            if reference.masked or not isinstance(reach.index, At):
                continue
            match reach.index.expr:
                case GridIndex(axis):
                    by = 0
                case Apply("add", (GridIndex(axis), Const(by))):
                    pass
                case _:
                    continue
            found[axis] = min(found.get(axis, size - int(by)), size - int(by))
            above |= {axis} if by <= 0 else set()
    return {axis: max(limit, 1) for axis, limit in found.items() if axis in above}


def _chosen(interval: Interval) -> int | None:
    """The largest of the numbers that a range may end at, if it begins at one and has no others."""
    ends = alternatives(interval.end)
    known = interval.begin.is_Integer and all(end.is_Integer for end in ends)
    return max(map(int, ends)) if known else None


def position_facts(references: Sequence[Reference], known: Ranges) -> tuple[PositionFact, ...]:
    """One fact per expression and length of a dimension; of several the worst."""
    found: dict[tuple[Expr, int], PositionFact] = {}
    sure: Certain | None = None
    for reference in references:
        shape = known.scope.ir.tensor(reference.base).shape
        for dim, (reach, size) in enumerate(zip(reference.dims, shape, strict=True)):
            if isinstance(reach.index, At) and size:
                sure = sure or _certain(known)
                fact = _fact(reference, dim, reach.index.expr, size, known, sure)
                worst = found.setdefault((fact.expr, size), fact)
                if RANK.index(fact.kind) > RANK.index(worst.kind):
                    found[fact.expr, size] = fact
    return tuple(found.values())


def _fact(
    reference: Reference, dim: int, expr: Expr, size: int, known: Ranges, sure: Certain
) -> PositionFact:
    place = reference.dims[dim].first
    assert place is not None
    name, shown = reference.tensor, written(place, known.scope)
    what = name if len(reference.dims) == 1 else f"dimension {dim} of {name}"
    if _inside(place, size, reference.loops, sure):
        return PositionFact(expr, size, "proved", f"{shown} stays inside", "", reference.loc)
    outside = _furthest(list(_reached(place, reference, known)), size)
    if outside is None:
        because = "is read from memory" if place.has(AppliedUndef) else "may leave it"
        why = f"{what} has length {size}, {shown} {because}"
        return PositionFact(expr, size, "dynamic", why, "", reference.loc)
    why = f"{what} has length {size}, {shown} reaches {outside}"
    if reference.masked:
        return PositionFact(expr, size, "dynamic", f"{why} under a mask", "", reference.loc)
    side = f"{shown} < {size}" if outside >= size else f"{shown} >= 0"
    hint = f"loop over fewer, or write it in an `if`: if {side}: ..."
    return PositionFact(expr, size, "refused", why, hint, reference.loc)


# ---------------------------------------------------------------- proved


@dataclass(frozen=True)
class Certain:
    """What holds in every step that may be made, whatever tensors hold.

    ranges  wide enough for every index of an axis
    axes    those whose index lies in its own range, and what holds while they run
    """

    ranges: Ranges
    axes: Mapping[str, tuple[sympy.Expr, ...]]


def _certain(known: Ranges) -> Certain:
    """Where a range is read from memory it is what the plan keeps an index in, see `limits`."""
    axes = {
        a: (*running(a, known), *_below(a, known)) for a in known.intervals if _is_certain(a, known)
    }
    wide = {
        a: interval if a in axes else _kept(known.limits.get(a))
        for a, interval in known.intervals.items()
    }
    return Certain(replace(known, intervals=wide), axes)


def _below(axis: str, known: Ranges) -> tuple[sympy.Expr, ...]:
    """What is not negative because the plan keeps an index there, wherever tiles around it are."""
    interval, limit = known.intervals[axis], known.limits.get(axis)
    if limit is None or (interval.begin.is_Integer and interval.end.is_Integer):
        return ()
    return position(axis), limit - 1 - position(axis)


def _kept(limit: int | None) -> Interval:
    return Interval(-sympy.oo, sympy.oo) if limit is None else Interval(ZERO, sympy.Integer(limit))


def _inside(place: sympy.Expr, size: int, loops: Sequence[str], sure: Certain) -> bool:
    """Whether 0 <= place < size, whatever tensors hold, in every step that may be made."""
    low, high = (extreme(place, top, loops, sure.ranges) for top in (False, True))
    if low.is_Integer and high.is_Integer and low >= 0 and high < size:
        return True
    facts = Knowledge(tuple(f for a in loops for f in sure.axes.get(a, ())))
    last = sympy.Integer(size - 1)
    return prove(ZERO, place, facts) is not None and prove(place, last, facts) is not None


def _is_certain(axis: str, known: Ranges) -> bool:
    """Whether an index lies in its range in every step: none stands for an empty range."""
    interval = known.intervals[axis]
    read = interval.begin.has(AppliedUndef) or interval.end.has(AppliedUndef)
    return not read and not _opaque(interval.begin + interval.end) and nonempty(axis, known)


def _opaque(expr: sympy.Expr) -> bool:
    """Whether the value holds a number of which nothing is known."""
    return any(s.name[0] in "%?" for s in expr.free_symbols if isinstance(s, sympy.Symbol))


# ---------------------------------------------------------------- refused


def _furthest(values: Sequence[int], size: int) -> int | None:
    """The number that lies outside by most at one end, if one does."""
    if values and max(values) >= size:
        return max(values)
    return min(values) if values and min(values) < 0 else None


def _reached(place: sympy.Expr, reference: Reference, known: Ranges) -> Iterator[int]:
    """Values that the position has in iterations that certainly run."""
    symbols = sorted(place.free_symbols, key=str)
    ends = [_first_and_last(s, known) for s in symbols if isinstance(s, sympy.Symbol)]
    axes = [str(s).partition(".")[0] for s in symbols]
    if any(e is None for e in ends) or len(set(axes)) < len(axes):
        return
    # x[g] over a longer range is a mistake, even where the loops within it may be empty
    if not all(nonempty(axis, known) for axis in (axes if place.is_Symbol else reference.loops)):
        return
    for values in product(*(e for e in ends if e is not None)):
        value = renamed(place, dict(zip(symbols, values, strict=True)))
        if value.is_Integer:
            yield int(value)


def _first_and_last(symbol: sympy.Symbol, known: Ranges) -> tuple[sympy.Expr, ...] | None:
    """What an index is in the first and in the last iteration of a static loop."""
    axis, _, what = symbol.name.partition(".")
    interval = known.intervals.get(axis)
    if interval is None or not (interval.begin.is_Integer and interval.end.is_Integer):
        return None
    match what:
        case "":
            return interval.begin, interval.end - 1
        case "begin":
            return (interval.begin,)
        case "end":
            return (interval.end,)
        case "id":
            block = known.axes[axis].fixed  # None: it is the plan's, see `numbers`
            return ZERO, ZERO if block is None else (interval.end - 1) // block
        case _:
            return None
