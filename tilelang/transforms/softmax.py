"""softmax(graph, total) -> the parts of a sum of exponentials that are kept small by their largest.

    m = max(s)     total = sum(exp(s - m)) >= 1, since exp(0) is in it, or 0 where nothing was seen

So what keeps the total from zero has no say where a row has weights at all, and where it has none
the maximum is a number, which nothing passes to:

    maximum(total, 1e-20)    where(total > 0, total, 1)    total + 1e-20      are the total
    total > 0                                                                 asks what was seen
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..ir import Apply, Const, Expr, Var
from .graph import Graph, Over, Term, number

LOG = {"exp": "log", "exp2": "log2"}
SHAPES = ("expand_dims", "broadcast", "squeeze")
# Whether `total OP limit` holds where there were weights, for limits of 0 and for others below 1.
ASKED: Mapping[str, tuple[bool | None, bool | None]] = {
    "gt": (True, True), "ge": (None, True), "ne": (True, None),
    "lt": (None, False), "le": (False, False), "eq": (False, None),
}  # fmt: skip
MIRRORED = {"gt": "lt", "ge": "le", "ne": "ne", "lt": "gt", "le": "ge", "eq": "eq"}
LOST = 2.0**-25  # added to 1 in float32, it is rounded away


@dataclass(frozen=True)
class Softmax:
    """`total` is the sum of exp(s - m), and `m` the largest s, over the same elements.

    bare   where nothing was seen m is -inf: the total is 0 or at least 1, and never between
    """

    m: Var
    total: Var
    log: str
    bare: bool


@dataclass(frozen=True)
class Seen:
    """A condition that holds where a total is at least 1, and not where it is 0; or the reverse.

    total   in the shape in which it is compared
    """

    softmax: Softmax
    total: Expr
    holds: bool


def softmax(graph: Graph, total: Expr) -> Softmax | None:
    """The softmax whose weights a value adds up, in any shape."""
    total = _in_any_shape(graph, total)
    if not isinstance(total, Var) or not isinstance(graph.term(total), Over):
        return None
    axes, inner = _folded(graph, total, "sum")
    weight, holds = _selected(graph, inner)
    match graph.term(weight):
        case Apply("exp" | "exp2" as op, (power,)):
            less = graph.term(power)
        case _:
            return None
    if not isinstance(less, Apply) or less.op != "sub":
        return None
    m = _plain(graph, less.args[1])
    first, most = _from_number(graph, m)
    over, scores = _folded(graph, most, "max")
    rest = _left_out(graph, scores, less.args[0], holds)
    alike = m.type == total.type and graph.scope(m) == graph.scope(total) and over == axes
    if rest is None or not alike or not isinstance(m, Var):
        return None
    return Softmax(m, total, LOG[op], first == rest == -math.inf)


def kept_from_zero(graph: Graph, expr: Term | Expr) -> Softmax | None:
    """The softmax whose total a value is, but where that is 0."""
    match graph.term(expr) if isinstance(expr, Var) else expr:
        case Apply("maximum", (x, y)):
            found, limit = _beside_number(graph, x, y)
            return found if limit and _below_one(limit) else None
        case Apply("add", (x, y)):
            found, limit = _beside_number(graph, x, y)
            return found if limit and 0 < limit <= LOST else None
        case Apply("where", (condition, x, y)):
            asked = seen(graph, _in_any_shape(graph, condition))
            if asked is None:
                return None
            own, other = (x, y) if asked.holds else (y, x)
            same = softmax(graph, own) == asked.softmax
            return asked.softmax if same and number(graph.term(other)) is not None else None
        case _:
            return None


def seen(graph: Graph, condition: Term | Expr) -> Seen | None:
    """What a condition asks of a total, if it is whether there were weights."""
    term = graph.term(condition) if isinstance(condition, Var) else condition
    if not isinstance(term, Apply) or term.op not in MIRRORED:
        return None
    x, y = term.args
    op, limit = term.op, number(graph.term(y))
    if limit is None:
        x, op, limit = y, MIRRORED[op], number(graph.term(x))
    found = softmax(graph, x)
    if found is None or limit is None or not _below_one(limit):
        return None
    zero, others = ASKED[op]
    holds = zero if limit == 0 else others
    return None if holds is None else Seen(found, x, holds)


def _below_one(limit: float) -> bool:
    return 0 <= limit < 1


def _beside_number(graph: Graph, x: Expr, y: Expr) -> tuple[Softmax | None, float | None]:
    """A total and the number that it is compared with or added to, in either order."""
    for total, other in ((x, y), (y, x)):
        limit = number(graph.term(other))
        if limit is not None:
            return softmax(graph, total), limit
    return None, None


# ---------------------------------------------------------------- what a sum is made of


def _folded(graph: Graph, expr: Expr, how: str) -> tuple[tuple[str, ...], Expr]:
    """What a value folds, and over which loops; dimensions are folded beside them."""
    axes: list[str] = []
    while True:
        match graph.term(expr):
            case Over(axis, value, own) if own == how:
                axes.append(axis)
                expr = value
            case Apply(op, (value,)) if op in (how, "detach" if how == "max" else ""):
                expr = value
            case _:
                return tuple(axes), expr


def _selected(graph: Graph, weight: Expr) -> tuple[Expr, Expr | None]:
    """w and c of where(c, w, 0); there is no condition where all weights count."""
    match graph.term(weight):
        case Apply("where", (condition, w, Const(0 | 0.0))):
            return w, condition
        case _:
            return weight, None


def _left_out(graph: Graph, scores: Expr, weighed: Expr, holds: Expr | None) -> float | None:
    """The number that the maximum sees where the sum has no weight; None if it sees others.

    It may see the scores before they were masked by the same condition, but no score of no weight.
    """
    if holds is None:
        return -math.inf if scores == weighed else None
    match graph.term(scores):
        case Apply("where", (condition, x, Const(value))) if condition == holds:
            return value if weighed in (scores, x) else None
        case _:
            return None


def _from_number(graph: Graph, m: Expr) -> tuple[float, Expr]:
    """What a running maximum begins with, and the largest of the rest."""
    match graph.term(m):
        case Apply("maximum", (first, x)):
            start = number(graph.term(first))
            return (-math.inf, m) if start is None else (start, x)
        case _:
            return -math.inf, m


def _in_any_shape(graph: Graph, expr: Expr) -> Expr:
    """The value that this one repeats or has in another shape."""
    match graph.term(expr):
        case Apply(op, (x,)) if op in SHAPES:
            return _in_any_shape(graph, x)
        case _:
            return expr


def _plain(graph: Graph, expr: Expr) -> Expr:
    """m of where(m == -inf, 0, m), in any shape."""
    expr = _in_any_shape(graph, expr)
    match graph.term(expr):
        case Apply("detach", (x,)):  # nothing passes through a gauge anyway
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
