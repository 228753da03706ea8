"""adjoints(launched, cotangents, wanted) -> AdjointSite...: how the loss changes with each load.

One rule per operation (`language.derivatives`), and one for loops: an adjoint that leaves an axis
is summed over it, whether the axis was broadcast along, or folded by a loop of the forward kernel.
So the adjoint of x[tm, tk] lives where x[tm, tk] does: every gradient is made where it is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from ..ir import Apply, Dim, Expr, Load, Var
from ..language.build import binary, cast, reduce, where
from ..language.derivatives import FLAT, RULES, NoRule, OpUse
from ..language.dtypes import is_float
from ..language.shapes import broadcast, expand_dims
from .forward import Launched
from .gauge import Seeds, moves, shift_of
from .graph import Graph, Over, Scan, Stored, Term
from .refuse import Underivable
from .scans import of_factor, reversed_scan, wide
from .softmax import kept_from_zero, softmax

EXTREMES = frozenset(("max", "min", "maximum", "minimum"))


@dataclass(frozen=True)
class AdjointSite:
    """The gradient of load.tensor gets `adjoint` added at load.index, where load.mask holds."""

    load: Load
    adjoint: Expr


@dataclass
class _Reverse:
    """Collects adjoints; `active` are the values that something wanted passes through."""

    graph: Graph
    active: Collection[str]
    found: dict[str, list[Expr]] = field(default_factory=dict)

    def push(self, expr: Expr, adjoint: Expr, around: frozenset[str]) -> None:
        """Adds to the adjoint of a value what comes from a place inside the loops `around`."""
        if not isinstance(expr, Var) or expr.name not in self.active:
            return
        adjoint = self.graph.add(fitted(adjoint, expr.type.shape))
        for axis in reversed(self.graph.ordered(around - self.graph.scope(expr))):
            adjoint = self.graph.over(axis, adjoint, "sum", getattr(adjoint, "loc", None))
        self.found.setdefault(expr.name, []).append(adjoint)

    def taken(self, name: str) -> Expr | None:
        """The whole adjoint of a value, when all that uses it was asked."""
        parts = self.found.pop(name, ())
        total = None
        for part in parts:
            total = part if total is None else self.graph.add(binary("add", total, part, None))
        return total


def adjoints(
    launched: Launched, cotangents: Mapping[str, str], wanted: Collection[str]
) -> tuple[AdjointSite, ...]:
    """The sites of all wanted arrays; `cotangents` names that of each array that is stored."""
    graph = launched.graph
    stores = [s for s in launched.stores if s.tensor in cotangents]
    forward = graph.reached(s.value for s in stores)
    reverse = _Reverse(graph, _active(graph, stores, forward, wanted))
    for store in stores:
        arriving = _arriving(store, cotangents[store.tensor])
        reverse.push(store.value, graph.add(arriving), graph.closed(store.around))
    sites: list[AdjointSite] = []
    for name, term in reversed(forward.items()):
        adjoint = reverse.taken(name)
        if adjoint is None:
            continue
        if isinstance(term, Load):
            sites.append(AdjointSite(term, adjoint))
        else:
            _pass_on(reverse, Var(name, term.type), term, adjoint)
    return tuple(sites)


def _arriving(store: Stored, cotangent: str) -> Expr:
    """The cotangent at the place of a store, where it is stored at all."""
    read = Load(cotangent, store.index, store.type, store.mask, 0.0, store.loc)
    return cast(read, "float32", store.loc)


def _active(
    graph: Graph, stores: Sequence[Stored], forward: Mapping[str, Term], wanted: Collection[str]
) -> set[str]:
    """Float values that depend on a wanted array, but for those that are a gauge."""
    active: set[str] = set()
    for name, term in forward.items():
        passes = not (isinstance(term, Apply) and term.op in FLAT)
        parts = graph.parts(Var(name, term.type))
        own = isinstance(term, Load) and term.tensor in wanted
        below = passes and any(isinstance(p, Var) and p.name in active for p in parts)
        if is_float(term.type.dtype) and (own or (below and not isinstance(term, Load))):
            active.add(name)
    gauges = {n for n in active if _extreme(forward[n]) and is_gauge(graph, stores, forward, n)}
    return active - gauges


def _extreme(term: Term) -> bool:
    how = term.how if isinstance(term, Over) else getattr(term, "op", "")
    return how in EXTREMES


def is_gauge(
    graph: Graph, stores: Sequence[Stored], forward: Mapping[str, Term], name: str
) -> bool:
    """Whether every result stays the same when this value is shifted."""
    value = Var(name, forward[name].type)
    seeds = Seeds(shift_of(value, "m"), graph.scope(value))
    ways = (seeds, replace(seeds, held=True))
    found = (moves(graph, s.value, way) for s in stores for way in ways)
    return all(m is not None and m.free for m in found)


def _pass_on(reverse: _Reverse, value: Var, term: Term, adjoint: Expr) -> None:
    graph = reverse.graph
    around = graph.scope(value)
    match term:
        case Over(axis, inner, "sum"):
            reverse.push(inner, adjoint, around | {axis})
        case Over():
            inner, share = _to_extremes(graph, value, term, adjoint)
            reverse.push(inner, share, graph.scope(share))
        case Scan():
            arriving, first = reversed_scan(graph, term, adjoint)
            reverse.push(term.value, arriving, graph.scope(arriving))
            reverse.push(term.first, first, graph.scope(first))
            if term.factor is not None:
                factor = of_factor(graph, term, arriving)
                reverse.push(term.factor, factor, graph.scope(factor))
        case Apply("transpose", (x,)) if isinstance(sum_ := graph.term(adjoint), Over):
            turned = _by_rule(graph, value, term, sum_.value)[0]
            assert turned is not None
            reverse.push(x, graph.over(sum_.axis, graph.add(turned), "sum", sum_.loc), around)
        case Apply() if (total := _kept_total(graph, term)) is not None:
            reverse.push(total, adjoint, around)
        case Apply():
            for arg, part in zip(term.args, _by_rule(graph, value, term, adjoint), strict=True):
                if part is not None:
                    reverse.push(arg, graph.add(part), around)
        case Load():
            pass
        case _:
            assert_never(term)


def _kept_total(graph: Graph, term: Apply) -> Expr | None:
    """The operand that gets all of an adjoint: a total that is kept from zero.

    Where it is 0 there are no weights that what passes through it could change.
    """
    found = kept_from_zero(graph, term)
    if found is None or not found.bare:
        return None
    return next(a for a in term.args if softmax(graph, a) == found)


def _by_rule(graph: Graph, value: Var, term: Apply, adjoint: Expr) -> tuple[Expr | None, ...]:
    """The adjoints of operands; what is narrow is computed in float32, but products."""
    if term.op != "dot":
        term = replace(term, args=tuple(graph.add(wide(a)) for a in term.args))
    try:
        return RULES[term.op](OpUse(term, graph.add(wide(value)), adjoint))
    except NoRule as no:
        raise Underivable(f"{term.op}: {no}", term.loc) from None


# ---------------------------------------------------------------- largest over a loop

# Where one of these is the same of two operands, they are the same, or its derivative is 0.
GROWING = frozenset(("exp", "exp2", "log", "log2", "log1p", "sqrt", "tanh", "sigmoid", "erf"))


def _to_extremes(graph: Graph, value: Var, term: Over, adjoint: Expr) -> tuple[Expr, Expr]:
    """The elements that a loop takes the largest of, and what each gets: equals share alike.

    m = largest over tm of max(x[tm, tf], axis=0): every x[tm, tf] that is m gets its part.
    What grows with an operand is not compared, but the operand: two loops may round it differently.
    """
    inner, layers = term.value, list[Over | Apply]([term])
    while (below := _continued(graph.term(inner), term.how)) is not None:
        layers.append(below)
        inner = graph.parts(inner)[0]
    largest, compared = _beneath(graph, value, inner, layers)
    for layer in layers:
        largest, adjoint = (_unfolded(graph, layer, e) for e in (largest, adjoint))
    here = graph.add(binary("eq", compared, largest, term.loc))
    count = graph.add(cast(here, "float32", term.loc))
    for layer in reversed(layers):
        if isinstance(layer, Over):
            if _differs(graph, inner, layer.axis):
                count = graph.over(layer.axis, count, "sum", term.loc)
        else:
            axis, kept = layer.attr("axis"), layer.attr("keepdim")
            count = graph.add(reduce("sum", count, axis, kept, term.loc))
    for layer in layers:
        count = _unfolded(graph, layer, count)
    share = binary("div", adjoint, count, term.loc)
    return inner, graph.add(where(here, share, 0.0, term.loc))


def _beneath(
    graph: Graph, largest: Expr, element: Expr, layers: Sequence[Over | Apply]
) -> tuple[Expr, Expr]:
    """The largest and an element, or what both are the same growing function of.

    layers  how the largest is made of elements, the outermost first
    """
    operand = element
    while isinstance(term := graph.term(operand), Apply) and term.op in GROWING:
        (operand,) = term.args
    if operand is element:
        return largest, element
    made = operand
    for layer in reversed(layers):
        if isinstance(layer, Over):
            made = graph.over(layer.axis, made, layer.how, layer.loc)
        else:
            axis, kept = layer.attr("axis"), layer.attr("keepdim")
            made = graph.add(reduce(layer.op, made, axis, kept, layer.loc))
    return made, operand


def _differs(graph: Graph, element: Expr, axis: str) -> bool:
    """Whether a loop meets other elements in each iteration, and not the same one again."""
    return axis in graph.scope(element)


def _continued(term: Term | Expr, how: str) -> Over | Apply | None:
    """A fold of the same kind, over a loop or over a dimension."""
    match term:
        case Over() if term.how == how:
            return term
        case Apply(op) if op == how:
            return term
        case _:
            return None


def _unfolded(graph: Graph, layer: Over | Apply, expr: Expr) -> Expr:
    """A folded value beside what it was folded from."""
    if not isinstance(layer, Apply) or layer.attr("keepdim"):
        return expr
    return graph.add(expand_dims(expr, layer.attr("axis"), layer.loc))


# ---------------------------------------------------------------- shapes


def fitted(adjoint: Expr, shape: tuple[Dim, ...]) -> Expr:
    """An adjoint in the shape of an operand: added up over what was repeated."""
    while adjoint.type.rank > len(shape):
        adjoint = reduce("sum", adjoint, 0, False, None)
    for place, (have, want) in enumerate(zip(adjoint.type.shape, shape, strict=False)):
        if have != want and want == 1:
            adjoint = reduce("sum", adjoint, place, True, None)
    return broadcast(adjoint, shape, None)
