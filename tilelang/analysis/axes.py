"""axis_fact(axis, ...) -> AxisFact: parallel only if it was proved, and why."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from ..ir import Along, Axis, Loop
from .access import Reference
from .carries import Definitions, reduction
from .conflicts import independent, pairings
from .facts import AxisFact
from .injective import separate
from .ranges import Ranges, depends, nonempty
from .sentences import apart, carrying, obstacles, resting
from .symbols import axes_of, position

ONCE = "it runs once"
CLAUSES = 2  # reasons that a sentence gives; one obstacle is enough to make an axis ordered


def axis_fact(
    axis: Axis, loop: Loop, references: Sequence[Reference], defined: Definitions, known: Ranges
) -> AxisFact:
    """Everything that is known of one loop axis."""
    name = axis.name
    once = runs_once(axis)
    pairs = () if once else tuple(pairings(name, references, known, known.around[name]))
    reasons = (carrying(loop.carries, reduction(loop, defined)),) if loop.carries else ()
    met = obstacles(name, pairs, known)
    reasons += met
    outer = depends(name, known)
    return AxisFact(
        name=name,
        kind="ordered" if reasons else "parallel",
        why="; ".join(reasons[:CLAUSES]) or (ONCE if once else apart(name, pairs, known)),
        carries=tuple(dict.fromkeys(c.user for c in loop.carries)),
        depends=outer,
        ragged=bool(outer) or not _constant(name, known),
        rises=rises_over(name, references, known),
        nonempty=nonempty(name, known),
        meets=bool(met),
        independent=not reasons and independent(name, references, known),
        limit=known.limits.get(name),
        rests=() if reasons else resting(pairs),
    )


def runs_once(axis: Axis) -> bool:
    """Whether there are no two iterations, in whatever blocks."""
    return axis.kind == "grid" and axis.static is not None and axis.static[1] - axis.static[0] == 1


def _constant(name: str, known: Ranges) -> bool:
    interval = known.intervals[name]
    return bool(interval.begin.is_Integer and interval.end.is_Integer)


def rises_over(name: str, references: Sequence[Reference], known: Ranges) -> tuple[str, ...]:
    """The axes around, outer to inner, over which the positions of this axis never overlap.

    Positions are those in the tensors that it cuts into tiles: of `y[start + t.index] = v`, the
    range of t moved by start.
    """
    found = [_rises_over(name, shift, known) for shift in cut_at(name, references)]
    return tuple(a for a in found[0] if all(a in other for other in found))


def _rises_over(name: str, shift: sympy.Expr, known: Ranges) -> tuple[str, ...]:
    """Those over which the range rises, moved by `shift`."""
    interval = known.intervals[name]
    moving = axes_of(interval.begin + shift, known.scope)
    moving |= axes_of(interval.end + shift, known.scope)
    for outer in reversed(known.around[name]):  # tq.begin moves with what the range of tq does
        moving |= frozenset(depends(outer, known) if outer in moving else ())
    around = (a for a in known.around[name] if a in moving)
    return tuple(a for a in around if separate(name, a, shift, known) is not None)


def cut_at(name: str, references: Sequence[Reference]) -> tuple[sympy.Expr, ...]:
    """The offsets at which the axis may cut tensors into tiles: see `analysis.uses.cut`.

    Where outputs are stored, else where it begins, but a masked load may leave its tensor, and has
    no say then.
    """
    moved = [
        (sympy.expand(d.first - position(name)), r)
        for r in references
        for d in r.dims
        if isinstance(d.index, Along) and d.index.axis == name and d.first is not None
    ]
    stored = [shift for shift, r in moved if r.writes]
    plain = [shift for shift, r in moved if shift.is_zero and not r.masked]
    nowhere = [sympy.Integer(0)]
    return tuple(dict.fromkeys(stored or plain or [shift for shift, _ in moved] or nowhere))
