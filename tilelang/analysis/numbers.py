"""number_facts(references, known) -> NumberFact...: positions that count tiles of an open block.

    for t in hl.tile(n[0], max_extent=40):    y of length 3
        y[t.id] = v                           blocks of 8 make up to 5 tiles, two have no place
        if s[0] > 0: y[t.id] = v              the same: s does not say how many tiles there are
        if t.id < s[0]: y[t.id] = v           no fact: that does, and calls look at the values

The plan chooses how many tiles there are: nobody else can see to it that all have a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import sympy

from ..ir import GridIndex, KernelIR, TileIndex, TileScalar, definitions, inlined, walk
from .access import Reference
from .facts import Counted, NumberFact
from .inequalities import linear
from .ranges import Ranges, extreme, nonempty
from .symbols import written


def number_facts(references: Sequence[Reference], known: Ranges) -> tuple[NumberFact, ...]:
    """One fact for each way to count tiles and length of a dimension."""
    found: dict[tuple[object, ...], NumberFact] = {}
    for reference in references:
        shape = known.scope.ir.tensor(reference.base).shape
        for dim, (reach, size) in enumerate(zip(reference.dims, shape, strict=True)):
            counted = {} if reach.first is None else _counted(reach.first, known)
            if counted and not _asks(reference, reach.first, known.scope.ir):
                fact = _fact(reference, dim, counted, size, known)
                if fact is not None:
                    found.setdefault((fact.counts, fact.first, fact.last, size), fact)
    return tuple(found.values())


def _counted(place: sympy.Expr, known: Ranges) -> Mapping[sympy.Symbol, Fraction]:
    """The numbers of tiles in a sum, and their factors."""
    terms = linear(place) or {}
    return {
        atom: factor
        for atom, factor in terms.items()
        if isinstance(atom, sympy.Symbol) and atom.name.endswith(".id") and _open(atom, known)
    }


def _open(number: sympy.Symbol, known: Ranges) -> bool:
    """Whether the block is the plan's."""
    return known.axes[_axis(number)].fixed is None


def _axis(symbol: sympy.Symbol) -> str:
    return symbol.name.partition(".")[0]


def _asks(reference: Reference, place: sympy.Expr | None, ir: KernelIR) -> bool:
    """Whether a mask or an `if` goes by what the position is made of."""
    if reference.mask is None or place is None:
        return False
    parts = list(walk(inlined(reference.mask, definitions(ir.body))))
    asked = {p.axis for p in parts if isinstance(p, GridIndex | TileIndex | TileScalar)}
    return not asked.isdisjoint(_axis(s) for s in place.free_symbols if isinstance(s, sympy.Symbol))


def _fact(
    reference: Reference,
    dim: int,
    counted: Mapping[sympy.Symbol, Fraction],
    size: int,
    known: Ranges,
) -> NumberFact | None:
    """None for what is so whatever the blocks are, and for what is not known ahead."""
    place = reference.dims[dim].first
    assert place is not None
    rest = sympy.expand(place - sum(int(f) * number for number, f in counted.items()))
    first, last = (extreme(rest, top, reference.loops, known) for top in (False, True))
    names = {_axis(s) for s in rest.free_symbols if isinstance(s, sympy.Symbol)}
    apart = names.isdisjoint(map(_axis, counted)) and first.is_Integer and last.is_Integer
    lengths = {number: _length(_axis(number), reference, known) for number in counted}
    if not apart or not 0 <= first <= last < size or not all(lengths.values()):
        return None
    counts = tuple(
        Counted(_axis(number), known.axes[_axis(number)].user, int(factor), lengths[number] or 0)
        for number, factor in sorted(
            counted.items(), key=lambda c: reference.loops.index(_axis(c[0]))
        )
    )
    name = reference.tensor
    what = name if len(reference.dims) == 1 else f"dimension {dim} of {name}"
    shown = written(place, known.scope)
    why = f"{what} has length {size}, where {shown} is a position"
    sure = not reference.masked and all(nonempty(a, known) for a in reference.loops)
    return NumberFact(counts, int(first), int(last), size, shown, why, sure, reference.loc)


def _length(axis: str, reference: Reference, known: Ranges) -> int | None:
    """How many positions the tiles of an axis are made of at most."""
    interval, most = known.intervals[axis], known.axes[axis].max_extent
    length = extreme(sympy.expand(interval.end - interval.begin), True, reference.loops, known)
    found = [int(length)] if length.is_Integer else []
    return min([*found, *([most] if most is not None else [])], default=None)
