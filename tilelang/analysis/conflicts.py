"""pairings(axis, references, known) -> what must be apart for the axis's iterations to commute."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from .access import Reference
from .injective import Proof, disjoint
from .ranges import Ranges, depends


@dataclass(frozen=True)
class Pairing:
    """A store and a reference to the same array; `proof` that they stay apart, if there is one."""

    store: Reference
    other: Reference
    proof: Proof | None


def pairings(
    axis: str, references: Sequence[Reference], known: Ranges, outer: Collection[str] | None = None
) -> tuple[Pairing, ...]:
    """Every store inside the loop with itself, each other store and each read of its array.

    `outer` are the axes whose indices both iterations share: the loops around, unless given.
    """
    shared = known.around[axis] if outer is None else outer
    inside = [r for r in references if axis in r.loops]
    return tuple(
        Pairing(store, other, disjoint(store, other, axis, known, shared))
        for store, other in _pairs(inside)
    )


def _pairs(inside: Sequence[Reference]) -> Iterator[tuple[Reference, Reference]]:
    for number, store in enumerate(inside):
        if store.writes:
            for place, other in enumerate(inside):
                if other.array == store.array and (place >= number or not other.writes):
                    yield store, other


def independent(axis: str, references: Sequence[Reference], known: Ranges) -> bool:
    """Whether iterations stay apart when the indices of the loops around them differ too.

    Proved only for axes whose range is the same whatever those loops do, and which share no stored
    array with the statements beside them: those would run once per iteration.
    """
    if depends(axis, known):
        return False
    inside = [r for r in references if axis in r.loops]
    launches = {r.launch for r in inside}
    beside = [r for r in references if r.launch in launches and axis not in r.loops]
    stored = {r.array for r in inside if r.writes}
    if any(r.writes or r.array in stored for r in beside):
        return False
    return all(p.proof is not None for p in pairings(axis, references, known, ()))
