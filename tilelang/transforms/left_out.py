"""masked(launched) -> Launched: a load that an `if` may leave out says so.

    if n[g] > 0:                               x[t]  becomes  load(x, [t], mask=n[g] > 0, other=1)
        y[t] = exp(x[t]) * w[g]

Of what is not read nothing is known: its gradient is 0, and so is its share in that of w, and not
0 * NaN.  Another number stands for it, at which next to every derivative is finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..ir import Apply, Expr, Load, Var
from ..language.build import binary
from .forward import Launched
from .graph import Graph, Term, parts_of

INSTEAD = 1.0
Under = Mapping[str, frozenset[Expr]]


def masked(launched: Launched) -> Launched:
    """The launch whose loads are under the conditions that all their uses are under."""
    graph, stores = launched.graph, launched.stores
    under = _under(graph, [(s.value, s.mask) for s in stores])
    new: dict[str, Expr] = {}
    inside = dict(launched.inside)
    for name, conditions in under.items():
        load = graph.values[name]
        if isinstance(load, Load) and load.type.dtype.startswith(("float", "bfloat")):
            made = graph.add(_when(graph, load, conditions))
            if isinstance(made, Var) and made.name != name:
                new[name], inside[made.name] = made, inside.get(name, ())
    if not new:
        return launched
    moved = tuple(replace(s, value=graph.replaced(s.value, new)) for s in stores)
    return replace(launched, stores=moved, inside=inside)


def _under(graph: Graph, roots: Iterable[tuple[Expr, Expr | None]]) -> Under:
    """Conditions of which every use of a value asks that they hold."""
    found: dict[str, frozenset[Expr]] = {}

    def used(value: Expr, conditions: frozenset[Expr]) -> None:
        if isinstance(value, Var) and value.name in graph.values:
            found[value.name] = found.get(value.name, conditions) & conditions

    roots = tuple(roots)
    for value, mask in roots:
        used(value, frozenset() if mask is None or mask.type.rank else frozenset({mask}))
    for name, term in reversed(graph.reached(value for value, _ in roots).items()):
        asked = found.get(name, frozenset[Expr]())
        for part, more in _asked(term):
            used(part, asked | more)
    return found


def _asked(term: Term) -> Iterable[tuple[Expr, frozenset[Expr]]]:
    """What a value is computed from, and what holds besides where it is asked for."""
    match term:
        case Apply("where", (condition, one, other)) if not condition.type.rank:
            yield from ((condition, frozenset()), (one, frozenset({condition})))
            yield other, frozenset()
        case _:
            yield from ((part, frozenset()) for part in parts_of(term))


def _when(graph: Graph, load: Load, conditions: Iterable[Expr]) -> Load:
    """The load under those conditions that are known where it is done."""
    scope = graph.scope(graph.named(load))
    for condition in sorted(conditions, key=str):
        if graph.scope(condition) <= scope:
            mask, other = condition, INSTEAD
            if load.mask is not None:
                mask, other = binary("logical_and", load.mask, condition, load.loc), load.other
            load = replace(load, mask=graph.add(mask), other=other)
    return load
