"""stored_once(ir, tensor) -> whether no element of it is stored twice, whatever iterations do.

    for g in hl.grid(G):
        for t in hl.tile(a[g], a[g + 1]):       out[a[g] + b[g] ...  a[g + 1] + b[g])
            out[b[g] + t.index] = ...
        for s in hl.tile(b[g], b[g + 1]):       out[a[g + 1] + b[g] ...  a[g + 1] + b[g + 1])
            out[a[g + 1] + s.index] = ...

In two iterations of a loop around two stores they are `disjoint`, and two in one iteration of all
of these loops have bounds that do not meet.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

from ..ir import KernelIR
from .access import Reference, references
from .axes import runs_once
from .injective import dimensions, disjoint, never_meet
from .positions import limits
from .ranges import Ranges, knowledge, ranges
from .symbols import scope


def stored_once(ir: KernelIR, tensor: str) -> bool:
    """By two stores of a launch in any iterations, or by one in any two iterations."""
    known = ranges(ir, scope(ir))
    refs = references(ir, known.scope)
    known = replace(known, limits=limits(refs, known))
    stores = [r for r in refs if r.writes and r.array == tensor]
    pairs = combinations_with_replacement(stores, 2)
    return all(
        _in_two(a, b, known) and (a is b or _in_one(a, b, known))
        for a, b in pairs
        if a.launch == b.launch
    )


def _in_two(a: Reference, b: Reference, known: Ranges) -> bool:
    """Whether they touch other elements in two iterations of any loop around both."""
    return all(
        runs_once(known.axes[axis]) or disjoint(a, b, axis, known, known.around[axis]) is not None
        for axis in _around(a, b)
    )


def _in_one(a: Reference, b: Reference, known: Ranges) -> bool:
    """Whether they touch other elements in one iteration of all loops around both."""
    both = _around(a, b)
    here = knowledge(both, known)
    bounds = (pair for _, pair in dimensions(a, b, both[-1], known))
    return a.base == b.base and any(never_meet(*pair, here) is not None for pair in bounds)


def _around(a: Reference, b: Reference) -> tuple[str, ...]:
    return tuple(x for x, y in zip(a.loops, b.loops, strict=False) if x == y)
