"""differing(one, other, ...) -> stores: what two ways to run a loop leave in memory, compared.

y[t, :] = ...                     the last value that is stored at each position
hl.atomic_add(y, [ids[t]], ...)   all that is added there
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import numpy as np

from ..ir import Tensor
from ..language.moment import Array

CLOSE = 1e-4  # of values near 1 in float32, which the order of a sum changes by 1e-6
FINITE = float(np.finfo(np.float32).max)  # what is larger may be what sums of it left, in float64
NOISE = 1e-12  # of those
SMALL = 1e-8  # what float64 may leave of numbers near 1 that cancel, in a long body
FACTOR = np.int64(0x5851F42D4C957F2D)  # of Knuth's MMIX: one number for several positions
COMPARED = 1 << 14  # places of an array: of rows of a hundred thousand numbers, every sixtieth
COMBINED = {"add": (np.add, 0.0), "maximum": (np.maximum, -np.inf), "minimum": (np.minimum, np.inf)}


@dataclass(frozen=True)
class Noted:
    """What one store did once.

    store           its number among those of the kernel
    array, tensor   where, and the name of it or of a view by which the store calls it
    places, values  of each element, if that is known
    """

    store: int
    array: str
    tensor: str
    combine: str | None
    known: bool = False
    places: Array = field(default_factory=partial(np.zeros, 0, np.int64))
    values: Array = field(default_factory=partial(np.zeros, 0))


@dataclass(frozen=True)
class Changed:
    """What of a loop is not the same however it is cut, and which stores certainly are.

    carries       by name
    stores, same  by id
    ties          carries that are the same where no two numbers are equal
    """

    carries: frozenset[str] = frozenset()
    stores: frozenset[int] = frozenset()
    same: frozenset[int] = frozenset()
    ties: frozenset[str] = frozenset()


def placed_at(at: Iterable[Array]) -> Array:
    """One number for the positions in all dimensions."""
    with np.errstate(over="ignore"):
        return reduce(lambda place, one: place * FACTOR + one, at, np.asarray(0, np.int64))


def seen(log: Iterable[Noted], tensor: str, at: Iterable[Array], found: Array) -> Array:
    """What is in memory at the positions, of which `found` was there before; or LookupError."""
    for write in log:
        if not write.known or write.combine is not None or write.tensor != tensor:
            raise LookupError(tensor)
        places = np.broadcast_to(placed_at(at), found.shape)
        if np.isin(places, write.places).any():
            order = np.argsort(write.places, kind="stable")
            last = np.searchsorted(write.places[order], places, side="right") - 1
            same = (last >= 0) & (write.places[order][last] == places)
            found = np.where(same, write.values[order][last], found)
    return found


def unknown(log: Sequence[Noted]) -> frozenset[str]:
    """Arrays of which it is not known what is in them."""
    names = {(w.array, w.tensor, w.combine) for w in log}
    several = {a for a, *rest in names if any(b == a and rest != other for b, *other in names)}
    return frozenset({w.array for w in log if not w.known} | several)


def differing(
    one: Sequence[Noted],
    other: Sequence[Noted],
    tensors: Iterable[Tensor],
    *,
    alone: bool,
    noise: float,
) -> frozenset[int]:
    """The stores to these arrays that leave something else at some position.

    alone  also at one that only one of the two stores to
    noise  what numbers differ by at least that are not the same
    """
    found = set[int]()
    for tensor in tensors:
        left, right = ([w for w in log if w.array == tensor.name] for log in (one, other))
        if left or right:
            found |= _compared(left, right, tensor, alone, noise)
    return frozenset(found)


def _compared(
    left: Sequence[Noted], right: Sequence[Noted], tensor: Tensor, alone: bool, noise: float
) -> set[int]:
    many = max(sum(len(w.places) for w in log) for log in (left, right))
    thin = partial(_thinned, of=-(-many // COMPARED))
    (places, values, stores), (same, others, elsewhere) = map(_left, map(thin, (left, right)))
    both, at, to = np.intersect1d(places, same, return_indices=True)
    found = {*stores[at[apart(values[at], others[to], noise)]].tolist()}
    kept = _before([*left, *right], tensor)
    for where, what, who in ((places, values, stores), (same, others, elsewhere)) if alone else ():
        own = ~np.isin(where, both)
        changed = apart(what[own], np.full(own.sum(), kept), noise) | np.isnan(kept)
        found |= {*who[own][changed].tolist()}
    return found


def apart(one: Array, other: Array, noise: float) -> Array:
    """Where two results are not the same number."""
    sizes = np.abs(np.concatenate([np.ravel(one), np.ravel(other)]))
    largest = float(sizes.max(initial=0, where=np.isfinite(sizes)))
    least = max(CLOSE * min(1.0, largest), noise) if largest <= FINITE else largest * NOISE
    return ~np.isclose(one, other, rtol=CLOSE, atol=least, equal_nan=True)


def _thinned(log: Sequence[Noted], of: int) -> Sequence[Noted]:
    """Of so many places one, the same ones whatever else was stored."""
    if of <= 1:
        return log
    kept = ((w, w.places % of == 0) for w in log)
    return [replace(w, places=w.places[k], values=w.values[k]) for w, k in kept]


def _before(log: Sequence[Noted], tensor: Tensor) -> float:
    """What an array holds where nothing is stored, as far as it matters; nan: nobody knows."""
    if log[0].combine is not None:
        return COMBINED[log[0].combine][1]
    return np.nan if tensor.fill is None else float(tensor.fill)


def _left(log: Sequence[Noted]) -> tuple[Array, Array, Array]:
    """Each place once, what is there at last, and by which store."""
    if not log:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    places = np.concatenate([w.places for w in log])[::-1]
    values = np.concatenate([w.values for w in log])[::-1]
    stores = np.repeat([w.store for w in log], [len(w.places) for w in log])[::-1]
    unique, at, inverse = np.unique(places, return_index=True, return_inverse=True)
    if log[0].combine is None:
        return unique, values[at], stores[at]
    fold, start = COMBINED[log[0].combine]
    total = np.full(len(unique), start)
    fold.at(total, inverse, values)
    return unique, total, stores[at]
