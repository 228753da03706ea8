"""Why an axis is parallel or ordered, in the author's names and without the kind in front."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import sympy
from sympy.core.function import AppliedUndef

from ..ir import Along, Assign, Carry, Expr, Gather, KernelIR, Load, Var, walk
from .access import Reference
from .conflicts import Pairing
from .injective import Proof, reach
from .placed import placed
from .ranges import Ranges, depends
from .symbols import axes_of, written

KINDS = {
    "sum": ("a sum", "sums"),
    "max": ("a maximum", "maxima"),
    "min": ("a minimum", "minima"),
    "product": ("a product", "products"),
    "and": ("a logical and", "logical ands"),
    "or": ("a logical or", "logical ors"),
}


def listed(names: Iterable[str]) -> str:
    """a; a and b; a, b and c"""
    *front, last = dict.fromkeys(names)
    return f"{', '.join(front)} and {last}" if front else last


def carrying(carries: Sequence[Carry], reduction: str | None) -> str:
    """carries acc, a sum"""
    names = tuple(dict.fromkeys(c.called for c in carries))
    kind = "" if reduction is None else f", {KINDS[reduction][len(names) > 1]}"
    return f"carries {', '.join(names)}{kind}"


# ---------------------------------------------------------------- parallel


def apart(axis: str, pairs: Sequence[Pairing], known: Ranges) -> str:
    """The proofs in words, one clause per kind of proof.

    Of two stores it is said what order has to do with it, not that one is to other places anyway.
    """
    user = known.scope.users[axis]
    clauses: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for pair in pairs:
        if pair.proof is None or not pair.other.writes:
            continue
        if pair.other == pair.store or pair.proof.tables:
            key = noun(pair.store, pair.proof), tuple(sorted(pair.proof.tables))
            clauses.setdefault(key, []).append(pair.store.tensor)
    if not clauses:
        return "carries nothing and stores nothing"
    return "; ".join(_clause(user, *key, stored) for key, stored in clauses.items())


def resting(pairs: Sequence[Pairing]) -> tuple[str, ...]:
    """The tensors on whose being sorted the proofs rest."""
    return tuple(sorted({t for pair in pairs if pair.proof for t in pair.proof.tables}))


def _clause(user: str, what: str, tables: tuple[str, ...], stored: Sequence[str]) -> str:
    if tables:
        verb = "is" if len(tables) == 1 else "are"
        because = f"because {listed(tables)} {verb} sorted"
        return f"{listed(stored)} {what} of different {user} are disjoint {because}"
    return f"each {user} writes its own {what} of {listed(stored)}"


def noun(store: Reference, proof: Proof) -> str:
    """What the author calls the part of a tensor that one position of a dimension selects."""
    rank = len(store.dims)
    if rank == 1 or proof.dim < 0 or store.base != store.tensor:
        return "elements"
    if proof.dim == 0:
        return "rows"
    return "columns" if rank == 2 else "slices"


# ---------------------------------------------------------------- ordered


def obstacles(axis: str, pairs: Sequence[Pairing], known: Ranges) -> tuple[str, ...]:
    """What could not be proved, each once."""
    found = [obstacle(axis, p, known) for p in pairs if p.proof is None]
    return tuple(dict.fromkeys(found))


def obstacle(axis: str, pair: Pairing, known: Ranges) -> str:
    """Why two iterations may touch the same element."""
    user, name = known.scope.users[axis], pair.store.tensor
    if updates(pair.store, pair.other):
        return f"updates elements of {name} that another {user} may update too"
    if not pair.other.writes:
        return f"reads {pair.other.tensor}, which another {user} may have stored"
    if pair.other != pair.store:
        return f"two stores to {name} may touch the same element in different {user}"
    for reason in _reasons(axis, pair.store, known):
        return reason
    return f"{name} of different {user} could not be proved to be disjoint"


def updates(one: Reference, other: Reference) -> bool:
    """Whether both are of atomic updates with one op, which may be done in any order."""
    return one.combine is not None and one.combine == other.combine


def _reasons(axis: str, store: Reference, known: Ranges) -> Iterator[str]:
    name = store.tensor
    for dim in store.dims:
        if isinstance(dim.index, Gather):
            yield f"a scatter through {picked(dim.index.expr, known.scope.ir)} may hit one " + (
                f"{'row' if len(store.dims) > 1 else 'element'} of {name} twice"
            )
    if not _mentions(axis, store, known):
        yield f"the same elements of {name} are stored again"
    yield from _overlaps(axis, store, known)
    for dim in store.dims:
        for call in _calls(dim.first):
            yield f"{written(call, known.scope)} may name the same element of {name} twice"


def picked(expr: Expr, ir: KernelIR) -> str:
    """The name of an index value."""
    if isinstance(expr, Var):
        assigned = (s for s, _ in placed(ir.body) if isinstance(s, Assign))
        return next((s.user for s in assigned if s.name == expr.name), expr.name)
    loads = (e.tensor for e in walk(expr) if isinstance(e, Load))
    return next(loads, "an index value")


def _mentions(axis: str, store: Reference, known: Ranges) -> bool:
    """Whether the positions that are stored depend on the axis at all."""
    for dim in store.dims:
        if dim.first is None or dim.last is None:
            return True
        bounds = reach(dim.first, dim.last, store.loops, axis, known)
        inner = store.loops[store.loops.index(axis) + 1 :]
        moving = axes_of(dim.first, known.scope)
        moving |= {a for b in bounds or () for a in axes_of(b, known.scope)}
        if axis in moving or any(axis in depends(a, known) for a in moving & set(inner)):
            return True
    return False


def _overlaps(axis: str, store: Reference, known: Ranges) -> Iterator[str]:
    """Loops inside the axis, with ranges that depend on it, along which the store moves."""
    for dim in store.dims:
        if isinstance(dim.index, Along) and axis in depends(dim.index.axis, known):
            interval = known.intervals[dim.index.axis]
            begin = written(interval.begin, known.scope)
            end = written(interval.end, known.scope)
            inner = known.scope.users[dim.index.axis]
            yield f"ranges [{begin}, {end}) of {inner} may overlap"


def _calls(expr: sympy.Expr | None) -> list[sympy.Expr]:
    """Loaded integers in a position, in a fixed order."""
    return [] if expr is None else sorted(expr.atoms(AppliedUndef), key=str)
