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
    axis: str, references: Sequence[Reference], known: Ranges, outer: Collection[str]
) -> Iterator[Pairing]:
    """Every store inside the loop with itself, each other store and each read of its array.

    `outer` are the axes whose indices both iterations share.
    """
    for store, other in _pairs([r for r in references if axis in r.loops]):
        yield Pairing(store, other, disjoint(store, other, axis, known, outer))


def _pairs(inside: Sequence[Reference]) -> Iterator[tuple[Reference, Reference]]:
    for number, store in enumerate(inside):
        if store.writes:
            for place, other in enumerate(inside):
                if other.array == store.array and (place >= number or not other.writes):
                    yield store, other


def independent(axis: str, references: Sequence[Reference], known: Ranges) -> bool:
    """Whether those of a parallel axis stay apart when the indices of loops around differ too.

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
    # an axis in no loop, which is parallel, has been asked that
    around = known.around[axis]
    return not around or all(p.proof is not None for p in pairings(axis, references, known, ()))
