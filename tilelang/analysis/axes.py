"""axis_fact(axis, ...) -> AxisFact: parallel only if it was proved, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy

from ..ir import Along, Axis, Expr, KernelIR, Load, Loop, walk
from .access import Reference
from .carries import OPS, Definitions, names, reduction
from .conflicts import Pairing, independent, pairings
from .facts import AxisFact
from .injective import separate
from .ranges import Ranges, depends, extent, nonempty
from .sentences import apart, carrying, obstacles, updates
from .symbols import axes_of, position

CLAUSES = 2  # reasons that a sentence gives; one obstacle is enough to make an axis ordered


def axis_fact(
    axis: Axis,
    loop: Loop,
    references: Sequence[Reference],
    defined: Definitions,
    known: Ranges,
) -> AxisFact:
    """Everything that is known of one loop axis."""
    name = axis.name
    pairs = pairings(name, references, known)
    op = reduction(loop, defined) if loop.carries else _updated(pairs)
    reasons = (carrying(loop.carries, op),) if loop.carries else ()
    reasons += obstacles(name, pairs, known)
    outer = depends(name, known)
    tables = offsets(axis, known.scope.ir, defined)
    return AxisFact(
        name=name,
        kind="ordered" if reasons else "parallel",
        why="; ".join(reasons[:CLAUSES]) or apart(name, pairs, known),
        carries=tuple(dict.fromkeys(c.user for c in loop.carries)),
        reduction=op,
        interval=known.intervals[name],
        extent=extent(name, known),
        depends=outer,
        ragged=bool(outer or tables or not _constant(name, known)),
        disjoint=disjoint_over(name, references, known) if _placed(axis, references) else None,
        offsets=tables,
        nonempty=nonempty(name, known),
        independent=not reasons and independent(name, references, known),
        limit=known.limits.get(name),
    )


def _updated(pairs: Sequence[Pairing]) -> str | None:
    """The op of the atomic updates that are all that keeps iterations from being independent."""
    meeting = [p for p in pairs if p.proof is None]
    ops = {p.store.combine for p in meeting if updates(p)}
    every = all(updates(p) for p in meeting)
    return OPS[ops.pop() or ""] if every and len(ops) == 1 else None


def _constant(name: str, known: Ranges) -> bool:
    interval = known.intervals[name]
    return bool(interval.begin.is_Integer and interval.end.is_Integer)


def _placed(axis: Axis, references: Sequence[Reference]) -> bool:
    """Whether its iterations have positions: tiles that only reach into tensors cut none."""
    if axis.kind == "grid":
        return True
    indices = ((d.index, r.writes) for r in references for d in r.dims)
    return any(
        isinstance(i, Along) and i.axis == axis.name and (writes or not i.loose)
        for i, writes in indices
    )


def disjoint_over(name: str, references: Sequence[Reference], known: Ranges) -> str | None:
    """The innermost axis around over which the positions of this axis rise and never overlap.

    Positions are those in the tensors: of `x[start + t.index]`, the range of t moved by start.
    """
    shift = common_shift(name, references)
    interval = known.intervals[name]
    moving = axes_of(interval.begin + shift, known.scope) | axes_of(
        interval.end + shift, known.scope
    )
    around = [a for a in reversed(known.around[name]) if a in moving]
    return next((a for a in around if separate(name, a, shift, known) is not None), None)


def common_shift(name: str, references: Sequence[Reference]) -> sympy.Expr:
    """The offset by which every access along the axis moves it; 0 if they differ."""
    shifts = {
        sympy.expand(d.first - position(name))
        for r in references
        for d in r.dims
        if isinstance(d.index, Along) and d.index.axis == name and d.first is not None
    }
    return shifts.pop() if len(shifts) == 1 else sympy.Integer(0)


def offsets(axis: Axis, ir: KernelIR, defined: Definitions) -> tuple[str, ...]:
    """The tensors that the bounds read, directly or through named values."""
    found: dict[str, None] = {}
    for expr in (axis.begin, axis.end):
        for value in (expr, *_sources(expr, defined.values, defined)):
            found |= {e.tensor: None for e in walk(value) if isinstance(e, Load)}
    return tuple(found)


def _sources(expr: Expr, values: Mapping[str, Expr], defined: Definitions) -> list[Expr]:
    """The definitions that an expression is computed from."""
    own = names(expr)
    every = own.union(*(defined.uses.get(name, frozenset()) for name in own))
    return [values[name] for name in sorted(every) if name in values]
