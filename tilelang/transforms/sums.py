"""result(graph, axis, ...) -> what a loop leaves of each value that it carries, as a formula.

acc = acc + f                       acc + sum of f over the axis
acc = acc * a + f                   what a scan leaves: see `scans`
m = maximum(m, f)                   maximum(m, largest f over the axis)
total = total * exp(m - new) + f    the same sum, with the last m in the place of every m, where
                                    f is scaled by exp(-new): see `gauge`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import Loc
from ..ir import Apply, Const, Expr, Var
from ..language.build import binary, unary
from ..language.shapes import broadcast
from .gauge import STAYS, Move, Seeds, moves, shift_of
from .graph import Graph, How, Scan, number
from .linear import Linear, linear
from .refuse import Underivable

EXTREMES: Mapping[str, How] = {"maximum": "max", "minimum": "min"}


@dataclass(frozen=True)
class _Extreme:
    """A carry that becomes the larger or smaller of itself and others: its last value."""

    name: str
    first: Expr
    new: Expr
    last: Expr


def result(
    graph: Graph,
    axis: str,
    carried: Sequence[Var],
    first: Sequence[Expr],
    after: Sequence[Expr],
    users: Mapping[str, tuple[str, Loc]],
    scans: Mapping[str, Expr],
) -> tuple[Expr, ...]:
    """The last values of the carries: `first` on entry, `after` one iteration.

    scans  what iterations meet of some carries
    """
    names = frozenset(c.name for c in carried)
    extremes: dict[str, _Extreme] = {}
    for carry, init, new in zip(carried, first, after, strict=True):
        found = _extreme(graph, axis, carry, init, new, names)
        if found is not None:
            extremes[carry.name] = found
    out: list[Expr] = []
    for carry, init, new in zip(carried, first, after, strict=True):
        if carry.name in extremes:
            out.append(extremes[carry.name].last)
            continue
        others, scan = tuple(extremes.values()), scans.get(carry.name)
        summed = _sum(graph, axis, carry, init, new, names, others, scan)
        if summed is None:
            user, loc = users[carry.name]
            loop = graph.ranges[axis].axis.user
            what = f"the loop over {loop} changes {user} in a way that is no sum"
            raise Underivable(what, loc)
        out.append(summed)
    return tuple(out)


# ---------------------------------------------------------------- largest and smallest


def _extreme(
    graph: Graph, axis: str, carry: Var, init: Expr, after: Expr, names: frozenset[str]
) -> _Extreme | None:
    """The carry as an extreme, which may be detached as a whole."""
    new = after
    term = whole = graph.term(new)
    if isinstance(whole, Apply) and whole.op == "detach":
        new, term = whole.args[0], graph.term(whole.args[0])
    if not isinstance(term, Apply) or term.op not in EXTREMES:
        return None
    parts = graph.operands(new, term.op)
    rest = [p for p in parts if p != carry]
    if len(rest) != len(parts) - 1 or any(graph.uses(p, names) for p in rest):
        return None
    value = rest[0]
    for part in rest[1:]:
        value = graph.add(binary(term.op, value, part, term.loc))
    value = graph.add(broadcast(value, carry.type.shape, term.loc))
    last = graph.over(axis, value, EXTREMES[term.op], term.loc)
    start = number(graph.term(init))
    if whole is not term:
        last = graph.add(unary("detach", last, term.loc))
        init = init if start is not None else graph.add(unary("detach", init, term.loc))
    neutral = -float("inf") if term.op == "maximum" else float("inf")
    if start != neutral:
        last = graph.add(binary(term.op, init, last, term.loc))
    return _Extreme(carry.name, init, after, last)


# ---------------------------------------------------------------- sums


def _sum(
    graph: Graph,
    axis: str,
    carry: Var,
    init: Expr,
    new: Expr,
    names: frozenset[str],
    extremes: Sequence[_Extreme],
    scan: Expr | None,
) -> Expr | None:
    """The last value of a carry that is added to, and may be scaled; None if it is not."""
    known = linear(graph, new, carry)
    if known is None:
        return None
    rest = known.rest
    if known.factor is not None and isinstance(term := scan and graph.term(scan), Scan):
        return graph.named(replace(term, whole=True))
    if rest is None:
        return init if known.factor is None else None
    if known.factor is not None or graph.uses(rest, names):
        return _gauged(graph, axis, carry, init, known, names, extremes)
    loc = getattr(graph.term(new), "loc", None)
    summed = graph.over(axis, graph.add(broadcast(rest, carry.type.shape, loc)), "sum", loc)
    if number(graph.term(init)) == 0:
        return summed
    return graph.add(binary("add", init, summed, loc))


# ---------------------------------------------------------------- sums in a gauge


SCALED = Move("scale", (("new", -1.0), ("old", 1.0)))
FOLLOWS = tuple((SCALED, rest) for rest in (Move("scale", (("new", -1.0),)), Move("any scale")))
STAY = ((STAYS, STAYS), (STAYS, Move("any scale")))  # the gauge is detached wherever it is read


def _gauged(
    graph: Graph,
    axis: str,
    carry: Var,
    init: Expr,
    known: Linear,
    names: frozenset[str],
    extremes: Sequence[_Extreme],
) -> Expr | None:
    """The sum of an online softmax, in its last gauge; None where that is not proved."""
    factor, rest = known.factor, known.rest
    if factor is None or rest is None:
        return None
    used = [g for g in extremes if graph.uses(factor, (g.name,)) or graph.uses(rest, (g.name,))]
    if len(used) != 1 or graph.uses(rest, names - {used[0].name}):
        return None
    gauge = used[0]
    if graph.uses(factor, names - {gauge.name}) or not isinstance(gauge.new, Var):
        return None
    old = Var(gauge.name, gauge.last.type)
    moving = {**shift_of(old, "old"), **shift_of(gauge.new, "new")}
    seeds = Seeds(moving, graph.scope(gauge.last))
    if (moves(graph, factor, seeds), moves(graph, rest, seeds)) not in FOLLOWS:
        return None
    held = replace(seeds, held=True)
    if (moves(graph, factor, held), moves(graph, rest, held)) not in (*FOLLOWS, *STAY):
        return None  # what is detached of one part alone is no detail of how sums are kept small
    last = {gauge.name: gauge.last, gauge.new.name: gauge.last}
    if not _is_one(graph, graph.replaced(factor, last)):
        return None
    loc = getattr(graph.term(rest), "loc", None)
    value = graph.add(broadcast(graph.replaced(rest, last), carry.type.shape, loc))
    summed = graph.over(axis, value, "sum", loc)
    if number(graph.term(init)) == 0:
        return summed
    if number(graph.term(gauge.first)) is not None:
        return None  # a sum that begins with more than nothing, before there is a maximum
    return graph.add(binary("add", graph.add(_scaled(graph, factor, gauge, init)), summed, loc))


def _scaled(graph: Graph, factor: Expr, gauge: _Extreme, init: Expr) -> Expr:
    """What a sum began with, in the last gauge."""
    assert isinstance(gauge.new, Var)
    by = graph.replaced(factor, {gauge.name: gauge.first, gauge.new.name: gauge.last})
    return binary("mul", init, by, None)


def _is_one(graph: Graph, expr: Expr) -> bool:
    """exp(m - m), and what is made of it by repeating."""
    match graph.term(expr):
        case Apply("expand_dims" | "broadcast" | "cast", (x,)):
            return _is_one(graph, x)
        case Apply("mul", (x, y)):
            return _is_one(graph, x) and _is_one(graph, y)
        case Apply("exp" | "exp2", (x,)):
            term = graph.term(x)
            if not isinstance(term, Apply) or term.op != "sub":
                return False
            return _gauge_of(graph, term.args[0]) == _gauge_of(graph, term.args[1])
        case Const(1 | 1.0):
            return True
        case _:
            return False


def _gauge_of(graph: Graph, expr: Expr) -> Expr:
    """m of where(m == -inf, 0, m): as `gauge` says, that counts as m."""
    match graph.term(expr):
        case Apply("where", (condition, Const(), m)) if m in graph.parts(condition):
            return m
        case Apply("detach", (x,)):
            return _gauge_of(graph, x)
        case Apply("mul", (x, Const(value))):
            inner = _gauge_of(graph, x)
            return graph.add(binary("mul", inner, value, None))
        case _:
            return expr
