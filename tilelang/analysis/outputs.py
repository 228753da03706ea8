"""output_facts(...) -> OutputFact per stored tensor: whether every element is written."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from .access import Reach, Reference
from .facts import OutputFact
from .injective import joined
from .ranges import Ranges, nonempty
from .symbols import axes_of, position


def output_facts(references: Sequence[Reference], known: Ranges) -> tuple[OutputFact, ...]:
    """One fact per array that is stored to, and the same under the name of each view of it used."""
    arrays = dict.fromkeys(r.array for r in references if r.writes)
    return tuple(fact for array in arrays for fact in _of_array(array, references, known))


def _of_array(array: str, references: Sequence[Reference], known: Ranges) -> list[OutputFact]:
    own = [r for r in references if r.array == array]
    sure = covered(own, known)
    return [
        OutputFact(name, sure)
        for name in dict.fromkeys((array, *(r.tensor for r in own if r.writes)))
    ]


def covered(own: Sequence[Reference], known: Ranges) -> bool:
    """Whether some store writes every element before anything reads one."""
    reads = [r.launch for r in own if not r.writes]
    first_read = min(reads, default=sympy.oo)
    return any(r.writes and r.launch < first_read and covers(r, known) for r in own)


def covers(store: Reference, known: Ranges) -> bool:
    """Whether the store certainly writes every element of its tensor."""
    shape = known.scope.ir.tensor(store.base).shape
    if store.masked:
        return False
    swept = [_sweeps(dim, size, known) for dim, size in zip(store.dims, shape, strict=True)]
    together = _swept_together(store, swept, known)
    if any(s is None for s in swept) and together is None:
        return False
    used = [a for s in (*swept, *(together or ())) if s is not None for a in s]
    if len(used) != len(set(used)):
        return False
    return all(a in used or nonempty(a, known) for a in store.loops)


def _sweeps(dim: Reach, size: int, known: Ranges) -> tuple[str, ...] | None:
    """The axes (at most one) that take a position over the whole dimension; None if none does."""
    if dim.first is None or dim.last is None:
        return None
    if dim.first == 0 and dim.last == size - 1:
        return ()
    return _whole(dim.first, size, known) if dim.first == dim.last else None


def _whole(place: sympy.Expr, size: int, known: Ranges) -> tuple[str, ...] | None:
    """The static axis that moves `place` = axis + constant over [0, size)."""
    moving = tuple(axes_of(place, known.scope))
    if len(moving) != 1:
        return None
    shift = sympy.expand(place - position(moving[0]))
    interval = known.intervals[moving[0]]
    full = interval.begin + shift == 0 and interval.end + shift == size
    return moving if shift.is_Integer and full else None


def _swept_together(
    store: Reference, swept: Sequence[tuple[str, ...] | None], known: Ranges
) -> list[tuple[str, ...]] | None:
    """Dimensions left over that are e // c and e % c of one e over the product of their sizes."""
    shape = known.scope.ir.tensor(store.base).shape
    left = [k for k, s in enumerate(swept) if s is None]
    if len(left) < 2:
        return None
    size = 1
    for k in left:
        size *= shape[k]
    for whole, _ in joined(store, store):
        axes = _whole(whole, size, known)
        if axes is not None and _digits(whole, [(store.dims[k], shape[k]) for k in left]):
            return [axes]
    return None


def _digits(whole: sympy.Expr, dims: Sequence[tuple[Reach, int]]) -> bool:
    """Whether the dimensions are the digits of `whole` in the mixed radix of their sizes."""
    stride = 1
    for dim, size in reversed(dims):
        digit = sympy.floor(whole / stride)
        expected = digit if dim is dims[0][0] else sympy.Mod(digit, size)
        if dim.first is None or sympy.expand(dim.first - expected) != 0:
            return False
        stride *= size
    return True
