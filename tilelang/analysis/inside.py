"""leaving(ir, known) -> the tiles that may lie past an end of a dimension, or before its begin.

    for t in hl.tile(offsets[g], offsets[g + 1]): x[t]             inside: the range is a group's
    for t in hl.tile(L): x[offsets[g] + t.index]                   may leave x behind

A range that is read as it is, [offsets[g], offsets[g + 1]) or a begin and a length, is taken to lie
in what it indexes: checked calls verify it.  Any other range must be proved to, such as one up to
the end of a tile of such a range, and so must that of a load whose mask leaves out lanes: calls
cannot tell which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy
from sympy.core.function import AppliedUndef

from ..ir import Along
from .access import Reference
from .facts import Leaving
from .inequalities import Knowledge, prove
from .ranges import Ranges, alternatives, knowledge
from .symbols import position


def leaving(references: tuple[Reference, ...], known: Ranges) -> tuple[Leaving, ...]:
    """Tiles of loads and stores that were not proved to lie in their dimension, each once."""
    found: dict[tuple[Along, int], Leaving | None] = {}
    every = tuple(dict.fromkeys(_checked(references, known)))
    for reference in sorted(references, key=lambda r: r.masked):  # what a call checks is settled
        shape = known.scope.ir.tensor(reference.base).shape
        for reach, size in zip(reference.dims, shape, strict=True):
            index = reach.index
            if not isinstance(index, Along) or reach.first is None or (index, size) in found:
                continue
            around = known.around[index.axis]
            here = {*around, index.axis}  # what runs wherever the loop does is checked there
            checked = {c.axis for c in every if c.size == size and c.loops <= here}
            own = [] if reference.masked else [index.axis]
            axes = (*(a for a in around if a in checked), *own)
            sides = _sides(index.axis, reach.first, size, known, axes)
            found[index, size] = Leaving(index, size, *sides) if any(sides) else None
    return tuple(one for one in found.values() if one is not None)


@dataclass(frozen=True)
class _Checked:
    """A dimension of `size` that an axis indexes as it is, without a mask, where `loops` run."""

    axis: str
    size: int
    loops: frozenset[str]


def _checked(references: tuple[Reference, ...], known: Ranges) -> Iterator[_Checked]:
    """Those of all references."""
    for reference in references:
        shape = () if reference.masked else known.scope.ir.tensor(reference.base).shape
        for reach, size in zip(reference.dims, shape, strict=False):
            if isinstance(reach.index, Along) and reach.first == position(reach.index.axis):
                yield _Checked(reach.index.axis, size, frozenset(reference.loops))


def _sides(
    axis: str, moved: sympy.Expr, size: int, known: Ranges, checked: tuple[str, ...]
) -> tuple[bool, bool]:
    """Whether positions may lie before the dimension, and behind it.

    checked  axes whose ranges calls keep inside of as long a dimension, this one moved as it is
    """
    interval, by = known.intervals[axis], sympy.expand(moved - position(axis))
    here = knowledge((*known.around[axis], axis), known)
    taken: tuple[sympy.Expr, ...] = ()
    for name in checked:
        range_, shift = known.intervals[name], by if name == axis else sympy.Integer(0)
        ends = sympy.expand(range_.begin + shift), sympy.expand(range_.end + shift)
        taken += tuple(_taken(*ends, size))
    if known.axes[axis].max_extent is not None:
        taken += (interval.begin + known.axes[axis].max_extent - interval.end,)
    here = Knowledge((*here.facts, *taken), here.sorted)
    inside = (sympy.Integer(0), moved), (moved, sympy.Integer(size - 1))
    before, behind = (prove(low, high, here) is None for low, high in inside)
    return before, behind


def _taken(begin: sympy.Expr, end: sympy.Expr, size: int) -> Iterator[sympy.Expr]:
    """What is not negative because a range is read as it is."""
    begins = [b for b in alternatives(begin) if isinstance(b, AppliedUndef)]
    ends = [e for e in alternatives(end) if _read(e, begins)]
    if begins and ends:
        yield from begins
        yield from (size - e for e in ends)
    elif begin.is_Integer:
        yield from (size - e for e in ends)


def _read(end: sympy.Expr, begins: list[AppliedUndef]) -> bool:
    """Whether an end was loaded, or is a begin and a length that was."""
    return isinstance(end, AppliedUndef) or any(isinstance(end - b, AppliedUndef) for b in begins)
