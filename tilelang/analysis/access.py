"""references(ir, scope) -> every read and write of a tensor, with its access map.

y[tm + start, g, 0:64]    dims  (tm + start, g, [0, 63])    loops  the axes around the statement
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import sympy

from ..errors import Loc
from ..ir import (
    Along,
    Apply,
    At,
    Expr,
    Gather,
    Index,
    KernelIR,
    Load,
    Loop,
    Span,
    Store,
    statement_exprs,
    walk,
)
from .placed import Place, placed
from .symbols import Meanings, position, symbolic


@dataclass(frozen=True)
class Reach:
    """Positions first <= p <= last of one dimension; None: any position (a gather)."""

    first: sympy.Expr | None
    last: sympy.Expr | None
    index: Index


@dataclass(frozen=True)
class Reference:
    """One array reference of the program.

    array    the tensor in memory, behind views
    base     the tensor whose dimensions `dims` are those of (a permuted view is undone)
    mask     where it does not hold, a range may leave the tensor
    combine  the op of an atomic update: of its store, and of the load of the old value
    """

    tensor: str
    array: str
    base: str
    writes: bool
    dims: tuple[Reach, ...]
    loops: Place
    mask: Expr | None
    loc: Loc | None
    launch: int
    combine: str | None = None

    @property
    def masked(self) -> bool:
        return self.mask is not None


@dataclass(frozen=True)
class Site:
    """Where a statement stands: the axes around it and the number of its launch."""

    known: Meanings
    loops: Place
    launch: int


def references(ir: KernelIR, known: Meanings) -> tuple[Reference, ...]:
    """Reads and writes in program order; a loop's bounds are read by the loops around it."""
    bounds = {a.name: (a.begin, a.end) for a in ir.axes}
    found: list[Reference] = []
    launch = -1
    for stmt, around in placed(ir.body):
        launch += not around
        here = Site(known, around, launch)
        if isinstance(stmt, Loop):
            found += _loads(bounds[stmt.axis], here)
            found += _carried(stmt, here)
        elif isinstance(stmt, Store):
            found += [_of_update(r, e, stmt) for r, e in _loaded(statement_exprs(stmt), here)]
            found.append(replace(_reference(stmt, True, here), combine=stmt.combine))
        else:
            found += _loads(statement_exprs(stmt), here)
    return tuple(found)


def _of_update(reference: Reference, load: Load, store: Store) -> Reference:
    """The load of the old value of an atomic update belongs to the update."""
    updates = isinstance(store.value, Apply) and any(a is load for a in store.value.args[:1])
    return replace(reference, combine=store.combine) if updates else reference


def _carried(loop: Loop, here: Site) -> list[Reference]:
    """Initial values are read before the loop, next values in it."""
    inside = replace(here, loops=(*here.loops, loop.axis))
    before = _loads([c.init for c in loop.carries], here)
    return before + _loads([c.next for c in loop.carries], inside)


def _loads(exprs: Sequence[Expr], here: Site) -> list[Reference]:
    return [reference for reference, _ in _loaded(exprs, here)]


def _loaded(exprs: Sequence[Expr], here: Site) -> list[tuple[Reference, Load]]:
    loads = (e for expr in exprs for e in walk(expr) if isinstance(e, Load))
    return [(_reference(load, False, here), load) for load in loads]


def _reference(at: Load | Store, writes: bool, here: Site) -> Reference:
    ir = here.known.ir
    shape = ir.tensor(at.tensor).shape
    dims = tuple(_reach(i, size, here.known) for i, size in zip(at.index, shape, strict=True))
    base, dims = _undo_permutes(at.tensor, dims, ir)
    return Reference(
        at.tensor, ir.root(at.tensor), base, writes, dims, here.loops, at.mask, at.loc, here.launch
    )


def _reach(index: Index, size: int, known: Meanings) -> Reach:
    match index:
        case At(expr):
            place = symbolic(expr, known)
            if place.is_Integer and place < 0:
                place += size
            return Reach(place, place, index)
        case Along(axis, offset):
            moved = position(axis) if offset is None else position(axis) + symbolic(offset, known)
            return Reach(moved, moved, index)
        case Span(start, stop):
            return Reach(sympy.Integer(start), sympy.Integer(stop - 1), index)
        case Gather():
            return Reach(None, None, index)
        case _:
            assert_never(index)


def _undo_permutes(
    tensor: str, dims: tuple[Reach, ...], ir: KernelIR
) -> tuple[str, tuple[Reach, ...]]:
    view = ir.tensor(tensor).view
    if view is None or view.how != "permute":
        return tensor, dims
    source = sorted(zip(view.arg, dims), key=lambda pair: pair[0])
    return _undo_permutes(view.source, tuple(d for _, d in source), ir)
