"""order_facts(...) -> OrderFact...: which of two accesses is first goes by how a loop is cut.

What a tile does it does for all of its positions, statement by statement and with all of its inner
loops, before the next tile begins.  One position at a time it would do otherwise:

for t in hl.tile(n):
    for k in hl.grid(m):
        y[s[k] + t.index] = v           an element that k stores at one position of t, and k + 1 at
                                        an earlier one: within a tile k + 1 is last
        y[k, t] = v                     not: t has its own elements
        y[ids[t], k] = v                not: k has its own, and a tile stores in order
    y[t.index] = a; y[t.index + 1] = b  within a tile b is last, else the a of the next tile
    y[ids[t]] = y[ids[t]] + x[t]        a tile reads everything before it stores anything
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import sympy

from ..ir import Apply, Expr, Gather, KernelIR, TileIndex, Type, Var
from .access import Reach, Reference
from .carries import Definitions
from .facts import OrderFact
from .injective import apart_later, disjoint, separate
from .placed import Place, loops
from .ranges import Ranges
from .sentences import updates
from .stores import is_free, moving, placing
from .symbols import symbolic

ZERO = sympy.Integer(0)


@dataclass(frozen=True)
class _Access:
    """A reference, and the axes whose tiles choose its place.

    by  also by the ranges of the loops inside of them
    of  those that its positions are computed from
    """

    reference: Reference
    by: frozenset[str]
    of: frozenset[str]


@dataclass(frozen=True)
class _Pair:
    """Two references to one array in a loop, `first` that which stands first; one of them stores.

    shared  the loops inside of the axis that both are in
    lanes   a position of one of them is computed from that of the axis
    """

    first: Reference
    second: Reference
    axis: str
    shared: Place
    lanes: bool

    @property
    def store(self) -> Reference:
        return self.second if self.second.writes else self.first


def order_facts(
    ir: KernelIR, references: Sequence[Reference], defined: Definitions, known: Ranges
) -> tuple[OrderFact, ...]:
    """One fact for each store and loop over tiles, of those that the author did not fix."""
    free = [a for a in loops(ir) if is_free(a, ir)]
    stored = {r.array for r in references if r.writes}
    own = [_access(r, ir, defined, known) for r in references if free and r.array in stored]
    pairs = (pair for axis in free for pair in _pairs(axis, own))
    facts = (fact for pair in pairs if (fact := _fact(pair, known)) is not None)
    return tuple({(f.axis, f.loc): f for f in facts}.values())


def _access(r: Reference, ir: KernelIR, defined: Definitions, known: Ranges) -> _Access:
    index = tuple(d.index for d in r.dims)
    return _Access(
        replace(r, dims=tuple(_exact(d, defined, known) for d in r.dims)),
        frozenset(moving(index, ir, defined, known)),
        frozenset(placing(index, ir, defined)),
    )


def _exact(reach: Reach, defined: Definitions, known: Ranges) -> Reach:
    """Where rows are picked by what is computed from a tile's positions: y[2 * t.index]."""
    if not isinstance(reach.index, Gather):
        return reach
    lane = _of_one_lane(reach.index.expr, defined)
    place = None if lane is None else symbolic(lane, known.scope)
    return Reach(place, place, reach.index)


def _of_one_lane(expr: Expr, defined: Definitions) -> Expr | None:
    """The number that one position computes; None if memory says it."""
    number = Type((), expr.type.dtype)
    match expr:
        case TileIndex(axis):
            return TileIndex(axis, number)
        case Var(name) if expr.type.shape and name in defined.values:
            return _of_one_lane(defined.values[name], defined)
        case Apply():
            lanes = [lane for a in expr.args if (lane := _of_one_lane(a, defined)) is not None]
            whole = len(lanes) == len(expr.args)
            return replace(expr, args=tuple(lanes), type=number) if whole else None
        case _:
            return None if expr.type.shape else expr


def _pairs(axis: str, accesses: Sequence[_Access]) -> Iterator[_Pair]:
    """Those that the tiles move, each with itself too; updates may be done in any order."""
    inside = [a for a in accesses if axis in a.reference.loops]
    for number, a in enumerate(inside):
        for b in inside[number:]:
            one, other = a.reference, b.reference
            if one.array != other.array or not (one.writes or other.writes):
                continue
            if axis in a.by | b.by and not updates(one, other):
                shared = _shared(one.loops, other.loops, axis)
                yield _Pair(one, other, axis, shared, axis in a.of | b.of)


def _shared(one: Place, other: Place, axis: str) -> Place:
    pairs = zip(one[one.index(axis) + 1 :], other[other.index(axis) + 1 :])
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _fact(pair: _Pair, known: Ranges) -> OrderFact | None:
    """None if the two were proved to keep their order."""
    tensor, axis, loc = pair.store.tensor, pair.axis, pair.store.loc
    for number, inner in enumerate(pair.shared):
        if _apart(pair, pair.shared[:number], known):
            return None
        if separate(inner, axis, ZERO, known) is not None:
            return None  # it goes through the positions of the tile
        if disjoint(pair.first, pair.second, inner, known, known.around[inner]) is None:
            return OrderFact(tensor, axis, inner, loc)
    if not pair.lanes or _same(pair) or _in_order(pair, known):
        return None
    return OrderFact(tensor, axis, None, loc, not pair.first.writes)


def _apart(pair: _Pair, over: Place, known: Ranges) -> bool:
    """Whether they touch different elements at different positions, in one iteration of `over`."""
    one, other = (_inward(r, pair.axis, over) for r in (pair.first, pair.second))
    return disjoint(one, other, pair.axis, known, (*known.around[pair.axis], *over)) is not None


def _same(pair: _Pair) -> bool:
    """Stores to the same elements: where the first stores the second does, too."""
    one, other = pair.first, pair.second
    both = one.writes and other.writes and not other.masked
    return one == other or (both and (one.loops, one.dims) == (other.loops, other.dims))


def _in_order(pair: _Pair, known: Ranges) -> bool:
    """Whether the second touches nothing that the first does at a later position of the axis."""
    outer = (*known.around[pair.axis], *pair.shared)
    early, late = (_inward(r, pair.axis, pair.shared) for r in (pair.second, pair.first))
    return apart_later(early, late, pair.axis, known, outer) is not None


def _inward(reference: Reference, axis: str, over: Place) -> Reference:
    """The reference with the axis moved inside of the loops `over`, which are next to it."""
    at = reference.loops.index(axis)
    rest = reference.loops[at + 1 + len(over) :]
    return replace(reference, loops=(*reference.loops[:at], *over, axis, *rest))
