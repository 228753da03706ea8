"""vanishes(graph, name, roots) -> whether a loop may run over the hull of its axis's range.

for tk in tile(begin, min(end, tq.end)):
    s = where(tk.index <= tq.index, s, -inf); p = exp(s - m); total = total + p.sum(1)

Positions of tk behind the tile tq add nothing, since p is 0 there: the author's mask says more than
the range.  So the sum is the same over [begin, end), and may be taken in any order of loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from ..ir import Apply, Const, Expr, Load, TileIndex, TileScalar, Var
from ..ir.traversal import reduced
from ..language.op import SAME
from .graph import Graph, Near, Term, parts_of

Outside = Literal["zero", "-inf", ""]
# Operations whose result is 0 where their operand is.
ODD = frozenset(
    [
        "neg",
        "abs",
        "sqrt",
        "sin",
        "tanh",
        "erf",
        "silu",
        "gelu_tanh",
        "gelu_erf",
        "relu",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
    ]
)
GIVEN = SAME | {"cast"}


def vanishes(graph: Graph, name: str, roots: Iterable[Expr]) -> bool:
    """Whether all that is folded along the axis is neutral outside of the author's range."""
    (near,) = graph.ranges[name].near
    known: dict[str, Outside] = {}
    for value, term in graph.reached(roots).items():
        known[value] = _outside(graph, term, name, near, known)
        if name not in term.type.shape and not _folds(term, name, known):
            return False
    return True


def _folds(term: Term, name: str, known: dict[str, Outside]) -> bool:
    """Whether a value without the dimension does not see what is outside."""
    if isinstance(term, Load):
        return True
    along = [e for e in parts_of(term) if name in e.type.shape]
    if not along:
        return not any(isinstance(e, TileScalar) and e.axis == name for e in parts_of(term))
    op = getattr(term, "op", "")
    what = [known.get(e.name, "") if isinstance(e, Var) else "" for e in along]
    if op in ("sum", "dot") and isinstance(term, Apply):
        places = [e for e, dim in reduced(term) if e.type.shape[dim] == name]
        return bool(places) and "zero" in what
    return op == "max" and what == ["-inf"]


def _outside(graph: Graph, term: Term, name: str, near: Near, known: dict[str, Outside]) -> Outside:
    """What a value is at positions outside of the author's range."""
    if not isinstance(term, Apply) or name not in term.type.shape:
        return ""
    parts: list[Outside] = [known.get(a.name, "") if isinstance(a, Var) else "" for a in term.args]
    match term.op:
        case "where":
            return _masked(graph, term, name, near, parts)
        case "mul" | "logical_and":
            if "-inf" in parts:
                other = term.args[1 - parts.index("-inf")]
                return "-inf" if isinstance(other, Const) and other.value > 0 else ""
            return "zero" if "zero" in parts else ""
        case "div":
            return parts[0]
        case "exp" | "exp2":
            return "zero" if parts[0] == "-inf" else ""
        case "add" | "sub":
            if parts[0] == "-inf" or (term.op == "add" and parts[1] == "-inf"):
                return "-inf"
            return "zero" if parts == ["zero", "zero"] else ""
        case "dot":
            return "zero" if "zero" in parts else ""
        case op if op in GIVEN:
            return parts[0]
        case op if op in ODD:
            return "zero" if parts[0] == "zero" else ""
        case _:
            return ""


def _masked(graph: Graph, term: Apply, name: str, near: Near, parts: list[Outside]) -> Outside:
    condition, _, no = term.args
    other = no.value if isinstance(no, Const) else None
    value: Outside = "zero" if other == 0 else "-inf" if other == -math.inf else ""
    if value and _implies(graph, condition, name, near):
        return value
    return parts[1] if parts[1] and parts[1] == (value or parts[2]) else ""


def _implies(graph: Graph, condition: Expr, name: str, near: Near) -> bool:
    """Whether a condition holds only where the axis is near enough to the other one."""
    found = list(_limits(graph, condition, name, near.other))
    high = min((n for side, n in found if side == "high"), default=None)
    low = max((n for side, n in found if side == "low"), default=None)
    fits_high = near.high is None or (high is not None and high <= near.high)
    return fits_high and (near.low is None or (low is not None and low >= near.low))


def _limits(
    graph: Graph, condition: Expr, name: str, other: str
) -> Iterable[tuple[Literal["high", "low"], int]]:
    """Numbers between which a condition keeps the index of an axis, less that of the other."""
    term = graph.term(condition)
    if not isinstance(term, Apply):
        return
    if term.op == "logical_and":
        for arg in term.args:
            yield from _limits(graph, arg, name, other)
    if term.op in GIVEN:
        yield from _limits(graph, term.args[0], name, other)
    if term.op not in ("le", "lt", "ge", "gt"):
        return
    left, right = (_linear(graph, a) for a in term.args)
    if left is None or right is None:
        return
    # term: difference + rest (op) 0
    counts = {a: left[0].get(a, 0) - right[0].get(a, 0) for a in {*left[0], *right[0]}}
    rest = left[1] - right[1]
    sign = counts.get(name, 0)
    if {a for a, n in counts.items() if n} != {name, other} or sign != -counts[other]:
        return
    if abs(sign) != 1:
        return
    below = (term.op in ("le", "lt")) == (sign == 1)
    strict = int(term.op in ("lt", "gt"))
    yield ("high", -sign * rest - strict) if below else ("low", -sign * rest + strict)


def _linear(graph: Graph, expr: Expr) -> tuple[dict[str, int], int] | None:
    """A sum of indices of tiles and a number: how often each index counts, and the number."""
    match graph.term(expr):
        case TileIndex(axis):
            return {axis: 1}, 0
        case Const(int(value)):
            return {}, value
        case Apply("expand_dims" | "broadcast", (x,)):
            return _linear(graph, x)
        case Apply("add" | "sub" as op, (x, y)):
            one, two = _linear(graph, x), _linear(graph, y)
            if one is None or two is None:
                return None
            sign = 1 if op == "add" else -1
            counts = {a: one[0].get(a, 0) + sign * two[0].get(a, 0) for a in {*one[0], *two[0]}}
            return counts, one[1] + sign * two[1]
        case _:
            return None
