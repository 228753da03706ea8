"""linear(graph, value, carry) -> Linear: a value as a multiple of a carry, and a rest without it.

acc * a + f              factor a, rest f
acc + a * (f - acc)      factor 1 - a, rest a * f
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir import Apply, Const, Expr, Type, Var
from ..language.build import binary, unary, where
from .graph import Graph


@dataclass(frozen=True)
class Linear:
    """factor * carry + rest; None is 1, and 0."""

    factor: Expr | None
    rest: Expr | None

    @property
    def parts(self) -> tuple[Expr, ...]:
        """What stands beside the carry."""
        return tuple(e for e in (self.factor, self.rest) if e is not None)


def linear(graph: Graph, expr: Expr, carry: Var) -> Linear | None:
    """The value as a multiple of the carry and a rest without it."""
    if expr == carry:
        return Linear(None, None)
    term = graph.term(expr)
    if not isinstance(term, Apply):
        return None
    inside = [graph.uses(a, (carry.name,)) for a in term.args]
    match term.op, term.args, inside:
        case "where", (condition, x, y), [False, _, _]:
            return _selected(graph, term, condition, x, y, carry)
        case (("add" | "sub"), (x, y), [True, False]):
            return _plus(graph, term, linear(graph, x, carry), y)
        case "add", (x, y), [False, True]:
            return _plus(graph, term, linear(graph, y, carry), x)
        case "sub", (x, y), [False, True]:
            less = _negative(graph, linear(graph, y, carry), term)
            return _plus(graph, replace(term, op="add"), less, x)
        case (("add" | "sub"), (x, y), [True, True]):
            return _both(graph, term, linear(graph, x, carry), linear(graph, y, carry))
        case "neg", (x,), _:
            return _negative(graph, linear(graph, x, carry), term)
        case (("mul" | "div"), (x, y), [True, False]):
            return _times(graph, term, linear(graph, x, carry), y)
        case "mul", (x, y), [False, True]:
            return _times(graph, term, linear(graph, y, carry), x)
        case "cast", (x,), _:
            return linear(graph, x, carry)
        case _:
            return None


def _negative(graph: Graph, found: Linear | None, term: Apply) -> Linear | None:
    if found is None:
        return None

    def less(value: Expr) -> Expr:
        return graph.add(unary("neg", value, term.loc))

    one = Const(-1.0, Type((), term.type.dtype))
    factor = one if found.factor is None else less(found.factor)
    return Linear(factor, None if found.rest is None else less(found.rest))


def _both(graph: Graph, term: Apply, x: Linear | None, y: Linear | None) -> Linear | None:
    """The sum of two multiples, or their difference: h + a * (f - h)."""
    if x is None or y is None:
        return None
    one = Const(1.0, Type((), term.type.dtype))
    factor = graph.add(binary(term.op, x.factor or one, y.factor or one, term.loc))
    found = Linear(factor, x.rest)
    return found if y.rest is None else _plus(graph, term, found, y.rest)


def _plus(graph: Graph, term: Apply, found: Linear | None, other: Expr) -> Linear | None:
    if found is None:
        return None
    if found.rest is not None:
        other = graph.add(binary(term.op, found.rest, other, term.loc))
    elif term.op == "sub":
        other = graph.add(unary("neg", other, term.loc))
    return Linear(found.factor, other)


def _times(graph: Graph, term: Apply, found: Linear | None, by: Expr) -> Linear | None:
    if found is None:
        return None
    before = Const(1.0, by.type) if found.factor is None else found.factor
    plain = found.factor is None and term.op == "mul"
    factor = by if plain else graph.add(binary(term.op, before, by, term.loc))
    rest = None if found.rest is None else graph.add(binary(term.op, found.rest, by, term.loc))
    return Linear(factor, rest)


def _selected(
    graph: Graph, term: Apply, condition: Expr, x: Expr, y: Expr, carry: Var
) -> Linear | None:
    """where(c, a * acc + f, acc): a where c holds and 1 elsewhere, f where c holds."""
    both = linear(graph, x, carry), linear(graph, y, carry)
    if both[0] is None or both[1] is None:
        return None

    def chosen(yes: Expr | None, no: Expr | None, instead: float) -> Expr | None:
        if yes is None and no is None:
            return None
        own, other = (instead if e is None else e for e in (yes, no))
        return graph.add(where(condition, own, other, term.loc))

    factor = chosen(both[0].factor, both[1].factor, 1.0)
    return Linear(factor, chosen(both[0].rest, both[1].rest, 0.0))
