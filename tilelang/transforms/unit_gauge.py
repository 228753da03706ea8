"""in_unit_gauge(launched, sites, ...) -> Gauged: adjoints in the gauge in which a sum is 1.

The result of an online softmax is the same for any m (see `gauge`), and so is its gradient.  Of
all that m may be, one makes the sum of the weights 1:

    m' = m + log(total)     total' = sum of exp(s - m') = 1     exp(s - m') = exp(s - m) / total

With it one number is read for two, and nothing is divided.  It is taken where m is the largest of
the very s, so that the sum is at least 1 and has a logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import Apply, Const, Expr, Var
from ..language.build import binary, unary
from ..language.shapes import full
from .adjoints import AdjointSite, is_gauge
from .forward import Launched, Stored
from .gauge import Seeds, moves, shift_of
from .graph import Graph, Over, Term, number, parts_of

LOG = {"exp": "log", "exp2": "log2"}
SHAPES = ("expand_dims", "broadcast", "squeeze")


@dataclass(frozen=True)
class Softmax:
    """`total` is the sum of exp(s - m), and `m` the largest s, over the same elements."""

    m: Var
    total: Var
    log: str


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
        found = _softmax(graph, Var(name, term.type)) if isinstance(term, Over) else None
        if found and found.m.name not in taken and is_gauge(graph, stores, forward, found.m.name):
            taken.add(found.m.name)
            yield found


def _softmax(graph: Graph, total: Var) -> Softmax | None:
    axes, inner = _folded(graph, total, "sum")
    term = graph.term(inner)
    if not isinstance(term, Apply) or term.op not in LOG:
        return None
    less = graph.term(term.args[0])
    if not isinstance(less, Apply) or less.op != "sub":
        return None
    scores, m = less.args[0], _plain(graph, less.args[1])
    if not isinstance(m, Var) or _folded(graph, _from_number(graph, m), "max") != (axes, scores):
        return None
    alike = m.type == total.type and graph.scope(m) == graph.scope(total)
    return Softmax(m, total, LOG[term.op]) if alike else None


def _folded(graph: Graph, expr: Expr, how: str) -> tuple[tuple[str, ...], Expr]:
    """What a value folds, and over which loops; dimensions are folded beside them."""
    axes: list[str] = []
    while True:
        match graph.term(expr):
            case Over(axis, value, own) if own == how:
                axes.append(axis)
                expr = value
            case Apply(op, (value,)) if op == how:
                expr = value
            case _:
                return tuple(axes), expr


def _from_number(graph: Graph, m: Expr) -> Expr:
    """x of maximum(number, x): what a running maximum begins with."""
    match graph.term(m):
        case Apply("maximum", (first, x)) if number(first, graph.term(first)) is not None:
            return x
        case _:
            return m


def _plain(graph: Graph, expr: Expr) -> Expr:
    """m of where(m == -inf, 0, m), in any shape."""
    match graph.term(expr):
        case Apply(op, (x,)) if op in SHAPES:
            return _plain(graph, x)
        case Apply("where", (condition, Const(0 | 0.0), m)) if _is_empty(graph, condition, m):
            return _plain(graph, m)
        case _:
            return expr


def _is_empty(graph: Graph, condition: Expr, m: Expr) -> bool:
    """m == -inf, where nothing was seen."""
    match graph.term(condition):
        case Apply("eq", (x, Const(value))):
            return x == m and value == -math.inf
        case _:
            return False


# ---------------------------------------------------------------- what stands for what


def _fixed(
    graph: Graph, found: Softmax, stores: Sequence[Stored], roots: Sequence[Expr]
) -> Mapping[str, Expr] | None:
    """Values in the new gauge; None where one cannot be had without sums of the old one.

    What the gauge does not move and the forward kernel has stays as it is: out is acc / total.
    """
    forward = graph.reached(s.value for s in stores)
    others = _other_sums(graph, found, forward)
    above = _computed_from(graph, others, roots)
    ready = {s.value.name for s in stores if isinstance(s.value, Var)} | (above & {*forward})
    seeds = Seeds(shift_of(found.m, "m"), graph.scope(found.m))
    fixed = _of_itself(graph, found)
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


def _of_itself(graph: Graph, found: Softmax) -> dict[str, Expr]:
    """m + log(total) and 1."""
    total, loc = found.total, getattr(graph.term(found.total), "loc", None)
    grown = binary("add", found.m, unary(found.log, total, loc), loc)
    one = full(total.type.shape, 1.0, total.type.dtype, loc)
    hint = f"log_{graph.hints.get(total.name, 'sum')}"
    return {found.m.name: graph.add(grown, hint), total.name: graph.add(one)}


def _other_sums(graph: Graph, found: Softmax, forward: Mapping[str, Term]) -> set[str]:
    """What else loops of the forward kernel make in this gauge."""
    sums = {n: t for n, t in forward.items() if isinstance(t, Over) and n != found.total.name}
    return {n for n, t in sums.items() if graph.uses(t.value, (found.m.name,))}


def _computed_from(graph: Graph, names: Collection[str], roots: Sequence[Expr]) -> set[str]:
    """Those of all values that the roots reach that are computed from the names."""
    found = set(names)
    for name, term in graph.reached(roots).items():  # parts first
        if any(isinstance(p, Var) and p.name in found for p in parts_of(term)):
            found.add(name)
    return found
