"""in_unit_gauge(launched, sites, ...) -> Gauged: adjoints in the gauge in which a sum is 1.

The result of an online softmax is the same for any m (see `gauge`), and so is its gradient.  Of
all that m may be, one makes the sum of the weights 1:

    m' = m + log(total)     total' = sum of exp(s - m') = 1     exp(s - m') = exp(s - m) / total

With it one number is read for two, and nothing is divided.  It is taken where m is the largest of
the very s, so that the sum is at least 1 and has a logarithm.  A sum that the kernel keeps from
zero counts as 1 where nothing was seen: there are no weights that it would scale.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import Expr, Var
from ..language.build import binary, unary
from ..language.shapes import full
from .adjoints import AdjointSite, is_gauge
from .forward import Launched
from .gauge import Seeds, moves, shift_of
from .graph import Graph, Over, Scan, Stored, Term, parts_of
from .softmax import Softmax, kept_from_zero, seen, softmax


@dataclass(frozen=True)
class Gauged:
    """The sites in the best gauge; `made` are values of the forward kernel that it lacked."""

    sites: tuple[AdjointSite, ...]
    made: frozenset[str]


def in_unit_gauge(
    launched: Launched, sites: Sequence[AdjointSite], stored: Collection[str]
) -> Gauged:
    """Each adjoint in the best gauge; `stored` are the arrays that have a cotangent."""
    graph = launched.graph
    stores = [s for s in launched.stores if s.tensor in stored]
    done = Gauged(tuple(sites), frozenset())
    for found in tuple(_softmaxes(graph, stores)):
        fixed = _fixed(graph, found, stores, [s.adjoint for s in done.sites])
        if fixed is not None:
            moved = (replace(s, adjoint=graph.replaced(s.adjoint, fixed)) for s in done.sites)
            made = frozenset(graph.reached((fixed[found.m.name],)))
            done = Gauged(tuple(moved), done.made | made)
    return done


# ---------------------------------------------------------------- which there are


def _softmaxes(graph: Graph, stores: Sequence[Stored]) -> Iterator[Softmax]:
    """The sums that a gauge of all results has."""
    forward = graph.reached(s.value for s in stores)
    taken: set[str] = set()
    for name, term in forward.items():
        found = softmax(graph, Var(name, term.type)) if isinstance(term, Over) else None
        if found and found.m.name not in taken and is_gauge(graph, stores, forward, found.m.name):
            taken.add(found.m.name)
            yield found


# ---------------------------------------------------------------- what stands for what


def _fixed(
    graph: Graph, found: Softmax, stores: Sequence[Stored], roots: Sequence[Expr]
) -> Mapping[str, Expr] | None:
    """Values in the new gauge; None where one cannot be had without sums of the old one.

    What the gauge does not move and the forward kernel has stays as it is: out is acc / total.
    """
    forward = graph.reached(s.value for s in stores)
    fixed = _of_itself(graph, found, graph.reached((*(s.value for s in stores), *roots)))
    if fixed is None:
        return None
    others = _other_sums(graph, found, forward)
    above = _computed_from(graph, others, roots)
    ready = {s.value.name for s in stores if isinstance(s.value, Var)} | (above & {*forward})
    seeds = Seeds(shift_of(found.m, "m"), graph.scope(found.m))
    stack, seen = list(roots), set[str]()
    while stack:
        expr = stack.pop()
        if not isinstance(expr, Var) or expr.name in seen or expr.name in fixed:
            continue
        seen.add(expr.name)
        move = moves(graph, expr, seeds) if expr.name in ready else None
        if move is not None and move.free:
            fixed[expr.name] = expr
        elif expr.name in others:
            return None
        else:
            stack += graph.parts(expr)
    return fixed


def _of_itself(graph: Graph, found: Softmax, values: Mapping[str, Term]) -> dict[str, Expr] | None:
    """m + log(total) and 1; None where a sum that is kept from zero may be less than 1."""
    total, loc = found.total, getattr(graph.term(found.total), "loc", None)
    kept = [n for n, t in values.items() if kept_from_zero(graph, t) == found]
    if kept and not found.bare:
        return None
    least = binary("maximum", total, 1.0, loc) if kept else total
    grown = graph.add(
        binary("add", found.m, unary(found.log, least, loc), loc),
        f"log_{graph.hints.get(total.name, 'sum')}",
    )
    fixed = {found.m.name: grown}
    for name in (total.name, *kept):
        kind = graph.values[name].type
        fixed[name] = graph.add(full(kind.shape, 1.0, kind.dtype, loc))
    for name, term in values.items() if found.bare else ():
        asked = seen(graph, term)
        if asked is not None and asked.softmax == found:
            own = graph.replaced(asked.total, {total.name: grown})
            fixed[name] = graph.add(binary("gt" if asked.holds else "eq", own, -math.inf, loc))
    return fixed


def _other_sums(graph: Graph, found: Softmax, forward: Mapping[str, Term]) -> set[str]:
    """What else loops of the forward kernel make in this gauge."""
    loops = {n: t for n, t in forward.items() if isinstance(t, Over | Scan)}
    own = (found.m.name,)
    return {n for n, t in loops.items() if any(graph.uses(p, own) for p in parts_of(t))} - {
        found.total.name
    }


def _computed_from(graph: Graph, names: Collection[str], roots: Sequence[Expr]) -> set[str]:
    """Those of all values that the roots reach that are computed from the names."""
    found = set(names)
    for name, term in graph.reached(roots).items():  # parts first
        if any(isinstance(p, Var) and p.name in found for p in parts_of(term)):
            found.add(name)
    return found
