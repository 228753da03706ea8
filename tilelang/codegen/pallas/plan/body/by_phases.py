"""By phases: the first products of all iterations of a loop within the step stand before the rest.

    for h in range(8):                          for h in range(8):
        scores = q[h] @ k[h].T                      scores_ref[h] = q[h] @ k[h].T
        p = exp(scores - max(scores))           for h in range(8):
        acc[h] = acc[h] + p @ v[h]                  p = exp(scores_ref[h] - max(scores_ref[h]))
                                                    acc[h] = acc[h] + p @ v[h]

A matrix unit gives its results in the order in which products were asked for.  Iterations that are
written one after the other therefore wait for each other, whatever the compiler does: the second
product of one is asked for before the first product of the next.

It is legal because iterations are independent, and what moves to the front is only computed, from
memory that no iteration has written by then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan, extents
from tilelang.codegen.pallas.plan.lives import is_costly, products
from tilelang.codegen.pallas.plan.physical import Bind, Keep, Kept, PExpr, PStmt
from tilelang.codegen.pallas.plan.reads import sources, targets
from tilelang.codegen.pallas.plan.rewriting import rewrite
from tilelang.codegen.pallas.plan.types import in_scratch
from tilelang.codegen.pallas.target import Target, padded_bytes
from tilelang.ir import Apply, GridIndex, Var
from tilelang.language.op import kind_of

# The part of vector memory that may hold first products until the rest asks for them: a guess.
SHARE = 4

Stmts = tuple[PStmt, ...]


@dataclass(frozen=True)
class Phases:
    """The statements of one iteration in two parts, and what scratch memory holds in between."""

    first: Stmts
    rest: Stmts
    kept: tuple[Kept, ...]


def by_phases(
    stmts: Stmts,
    axes: Mapping[str, AxisPlan],
    at: tuple[GridIndex, ...],
    target: Target,
    taken: frozenset[str],
) -> Phases | None:
    """The statements of an iteration in two phases; None where that is no gain, or not legal.

    `at` is the iteration, and `taken` are the names of what scratch memory holds already.
    """
    found = halves(stmts)
    if found is None:
        return None
    first, rest, held = found
    kept = {s.name: Kept(_free(s.name, taken), s.value.type, at) for s in held}
    many = math.prod(axes[index.axis].tiles or 1 for index in at)
    held = ((extents(k.type, axes), in_scratch(k.type.dtype)) for k in kept.values())
    sizes = (padded_bytes(shape, dtype, target) for shape, dtype in held)
    if many < 2 or many * sum(sizes) > target.vmem_default // SHARE:
        return None
    own = {name for s in first for name in physical.names_read(s)}
    stored = tuple(part for s in first for part in _stored(s, kept, own))
    return Phases(stored, _with_reads(_live(rest), kept), tuple(kept.values()))


def halves(stmts: Stmts) -> tuple[Stmts, Stmts, tuple[Bind, ...]] | None:
    """The first products of an iteration, the rest, and the values that are handed on.

    None where nothing waits for first products, or they cannot move to the front.
    """
    first = _needed(stmts, _first_products(stmts)) if waits(stmts) else None
    if first is None:
        return None
    rest = tuple(s for s in stmts if s not in first or (isinstance(s, Bind) and _again(s)))
    read = {name for s in rest for name in physical.names_read(s)}
    held = (s for s in first if isinstance(s, Bind) and not _again(s) and s.name in read)
    return first, rest, tuple(held)


def waits(stmts: Stmts) -> bool:
    """Whether some operation that takes long needs the result of a product."""
    parts = (e for each in _behind(stmts, _first_products(stmts)) for e in each)
    return any(isinstance(e, Apply) and kind_of(e.op) in ("reduce", "contract") for e in parts)


def _free(name: str, taken: frozenset[str]) -> str:
    while name in taken:
        name += "_all"
    return name


# ---------------------------------------------------------------- which statements


def _first_products(stmts: Stmts) -> frozenset[str]:
    """Locals that products make of no result of another product."""
    behind: set[str] = set()
    found: set[str] = set()
    for stmt in stmts:
        waits = not behind.isdisjoint(physical.names_read(stmt))
        if any(products(stmt)) or waits:
            behind |= physical.names_made(stmt)
        if isinstance(stmt, Bind) and any(products(stmt)) and not waits:
            found.add(stmt.name)
    return frozenset(found)


def _behind(stmts: Stmts, products: frozenset[str]) -> Iterator[Iterator[PExpr]]:
    """What the statements evaluate that wait for first products."""
    names = set(products)
    for stmt in stmts:
        if not names.isdisjoint(physical.names_read(stmt)):
            names |= physical.names_made(stmt)
            yield physical.parts_of(stmt)


def _needed(stmts: Stmts, products: frozenset[str]) -> Stmts | None:
    """First products with all that they are made of; None if one of these cannot move."""
    names, found = set(products), list[PStmt]()
    for place, stmt in reversed(list(enumerate(stmts))):
        if names.isdisjoint(physical.names_made(stmt)):
            continue
        if not isinstance(stmt, Bind) or not _moves(stmt, stmts, place):
            return None
        names |= physical.names_read(stmt)
        found.insert(0, stmt)
    return tuple(found)


def _moves(stmt: Bind, stmts: Stmts, place: int) -> bool:
    """Whether other iterations, and what stands before it in its own, leave what it reads."""
    own = {e.name for e in physical.kept_read(stmt)}  # every iteration has its own value
    shared = sources(stmt.value) - {e.name for e in physical.parts_of(stmt) if isinstance(e, Var)}
    return own.isdisjoint(targets(stmts[:place])) and shared.isdisjoint({*targets(stmts)} - own)


# ---------------------------------------------------------------- the two parts


def _again(stmt: Bind) -> bool:
    """Whether the rest computes a value again that first products need, too."""
    return not is_costly(stmt.value)


def _live(stmts: Stmts) -> Stmts:
    """The statements without copies that nothing reads."""
    out: list[PStmt] = []
    read: set[str] = set()
    for stmt in reversed(stmts):
        if not isinstance(stmt, Bind) or stmt.name in read:
            read |= physical.names_read(stmt)
            out.insert(0, stmt)
    return tuple(out)


def _stored(stmt: PStmt, kept: Mapping[str, Kept], own: Collection[str]) -> Stmts:
    """A statement of the first phase; what that reads itself, too, is a local besides."""
    if not (isinstance(stmt, Bind) and stmt.name in kept):
        return (stmt,)
    place = kept[stmt.name]
    if stmt.name not in own:
        return (Keep(place.name, stmt.value, stmt.loc, place.at),)
    return stmt, Keep(place.name, Var(stmt.name, place.type), stmt.loc, place.at)


def _with_reads(stmts: Stmts, kept: Mapping[str, Kept]) -> Stmts:
    """The rest with what scratch memory holds: read once where it is used, or into a local."""
    out = list(stmts)
    for name, place in kept.items():
        uses = [i for i, s in enumerate(out) if name in physical.names_read(s)]
        reads = (e for i in uses for e in physical.parts_of(out[i]) if e == Var(name, place.type))
        if len(tuple(reads)) > 1:
            out.insert(uses[0], Bind(name, place, None, ""))
            continue
        for i in uses:
            out[i] = rewrite(out[i], lambda e, n=name, p=place: p if _names(e, n) else e)
    return tuple(out)


def _names(expr: PExpr, name: str) -> bool:
    return isinstance(expr, Var) and expr.name == name
