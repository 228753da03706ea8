"""running_maximum(loop) -> the maximum that a loop only keeps to keep its numbers small.

    m_new = maximum(m, max(s))                     total = total * exp(m - m_new) + sum(p)
    p = exp(s - m_new)                             m = m_new

Whatever m is on the way, the sums are the same when they are scaled to the m of the end: so several
iterations may take the largest of all of theirs at once.  That is proved by `transforms.gauge`: a
shift of m scales what the loop carries, and a shift of m_new scales what it becomes, alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilelang import ir
from tilelang.ir import Expr
from tilelang.ir.traversal import rewrite
from tilelang.transforms.gauge import Move, Seeds, moves, shift_of
from tilelang.transforms.graph import Graph


@dataclass(frozen=True)
class Added:
    """A carry that becomes `scaled`, itself as the maximum scales it, and a sum or a product."""

    carry: str
    scaled: Expr
    term: ir.Apply


@dataclass(frozen=True)
class RunningMaximum:
    """`carry` becomes `next`, the larger of it and `value`, which `first` statements make.

    lows    what `value` is the largest of, where everything else vanishes with -inf in its place
    added   what the loop carries besides, if so
    """

    carry: str
    next: str
    value: Expr
    first: frozenset[str]
    lows: str | None = None
    added: tuple[Added, ...] = ()


def running_maximum(loop: ir.Loop) -> RunningMaximum | None:
    """The running maximum of a loop without loops and stores in it; None if there is no such."""
    defined = {s.name: s.value for s in loop.body if isinstance(s, ir.Assign)}
    carried = frozenset(c.name for c in loop.carries)
    for carry in loop.carries:
        found = _larger(carry, defined)
        if found is None:
            continue
        name, value = found
        first = frozenset(_needed(value, defined))
        if not (first | _names(value)) & carried and _scales(loop, carry, name):
            return _vanishing(RunningMaximum(carry.name, name, value, first), loop, defined)
    return None


def _larger(carry: ir.Carry, defined: Mapping[str, Expr]) -> tuple[str, Expr] | None:
    """The name of maximum(m, x), and x."""
    m = ir.Var(carry.name, carry.init.type)
    if not isinstance(carry.next, ir.Var) or carry.next.name not in defined:
        return None
    match defined[carry.next.name]:
        case ir.Apply("maximum", (a, b)) if (a == m) != (b == m) and a.type == b.type:
            return carry.next.name, b if a == m else a
        case _:
            return None


def _names(expr: Expr) -> set[str]:
    return set(ir.read_by((expr,)))


def _needed(expr: Expr, defined: Mapping[str, Expr]) -> Iterator[str]:
    """The names that a value is computed from, those of carries too."""
    seen: set[str] = set()
    stack = [expr]
    while stack:
        for name in _names(stack.pop()) - seen:
            seen.add(name)
            yield name
            stack += [defined[name]] if name in defined else []


def _scales(loop: ir.Loop, m: ir.Carry, name: str) -> bool:
    """Whether everything else that the loop carries is scaled by the maximum, and nothing else."""
    graph = Graph()
    known = _terms(graph, loop.body)
    larger = known[name]
    if not isinstance(larger, ir.Var):
        return False
    old, new = (shift_of(ir.Var(n, m.init.type), w) for n, w in ((m.name, "m"), (larger.name, "n")))
    others = [c for c in loop.carries if c is not m]
    after = {c.name: graph.add(_with(c.next, known)) for c in others}
    nothing = {c.name: Move("any scale") for c in others}
    scales: dict[str, Move] = {}
    for carry in others:
        found = moves(graph, after[carry.name], Seeds({**nothing, **old, **new}, ()))
        if found is None or not (found.free or found.how == "scale"):
            return False
        if {w for w, _ in found.by} - {"n"}:
            return False
        scales[carry.name] = Move("scale", tuple(("m", by) for _, by in found.by))
    seeds = Seeds({**scales, **old, **new}, ())
    return all(_alike(moves(graph, after[n], seeds), scale) for n, scale in scales.items())


def _alike(found: Move | None, scale: Move) -> bool:
    if found is None or scale.free:
        return found is not None and found.free
    return found == Move("scale", tuple(("n", by) for _, by in scale.by))


def _terms(graph: Graph, body: Iterable[ir.Stmt]) -> dict[str, Expr]:
    known: dict[str, Expr] = {}
    for stmt in body:
        if isinstance(stmt, ir.Assign):
            known[stmt.name] = graph.add(_with(stmt.value, known))
    return known


def _with(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    return rewrite(expr, lambda e: known.get(e.name) if isinstance(e, ir.Var) else None)


# ---------------------------------------------------------------- what vanishes


def _vanishing(
    running: RunningMaximum, loop: ir.Loop, defined: Mapping[str, Expr]
) -> RunningMaximum:
    """The same with what it adds up, if all of that is 0 for the rows of an iteration of -inf."""
    match running.value:
        case ir.Apply("max", (ir.Var(lows),)) if lows in defined:
            others = [c for c in loop.carries if c.name != running.carry]
            found = [_added(c, running, lows, loop, defined) for c in others]
            added = tuple(a for a in found if a is not None)
            if len(added) == len(others):
                return replace(running, lows=lows, added=added)
        case _:
            pass  # another value may vanish nowhere
    return running


def _added(
    carry: ir.Carry, running: RunningMaximum, lows: str, loop: ir.Loop, defined: Mapping[str, Expr]
) -> Added | None:
    own = ir.Var(carry.name, carry.init.type)
    match ir.meant(carry.next, defined):
        case ir.Apply("add", (a, b)) as total if total.type == own.type:
            pairs = (a, b), (b, a)
        case _:
            return None
    if isinstance(carry.next, ir.Var) and _used(carry.next.name, loop):
        return None
    carried = {c.name for c in loop.carries}
    known = {n: e for n, e in defined.items() if n != running.next}
    for scaled, term in pairs:
        made = ir.meant(term, defined)
        if carried.intersection(_needed(made, known)) or made.type != own.type:
            continue
        if _meets(scaled, own, running, defined) and _is_zero(made, lows, running, defined):
            assert isinstance(made, ir.Apply)
            return Added(carry.name, scaled, made)
    return None


def _used(name: str, loop: ir.Loop) -> bool:
    """Whether a value is asked for besides being carried on."""
    values = [s.value for s in loop.body if isinstance(s, ir.Assign)]
    return any(name in _names(v) for v in values) or (
        sum(name in _names(c.next) for c in loop.carries) > 1
    )


def _meets(scaled: Expr, own: ir.Var, running: RunningMaximum, defined: Mapping[str, Expr]) -> bool:
    """Whether it is the carry itself where the maximum stays as it was."""
    same = {running.carry: ir.Var(running.next, own.type)}

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, ir.Var) or expr.name in (own.name, running.next):
            return None
        if expr.name == running.carry:
            return replace(same[running.carry], type=expr.type)
        return rewrite(defined[expr.name], change) if expr.name in defined else None

    return without_factors(rewrite(scaled, change), {running.next}) == own


def _is_zero(expr: Expr, lows: str, running: RunningMaximum, defined: Mapping[str, Expr]) -> bool:
    """Whether a sum or a product is 0 with -inf in the place of `lows`."""
    match expr:
        case ir.Apply("sum" | "dot", (first, *_)):
            return _without(first, lows, running, defined) == "zero"
        case _:
            return False


def _without(
    expr: Expr, lows: str, running: RunningMaximum, defined: Mapping[str, Expr]
) -> Literal["low", "zero"] | None:
    """What a value is with -inf in the place of `lows`: that, 0, or nobody knows.

    A maximum that is -inf makes NaN of an iteration that does run, and of this one.
    """

    def of(part: Expr) -> Literal["low", "zero"] | None:
        match part:
            case ir.Var(name):
                return "low" if name == lows else of(defined[name]) if name in defined else None
            case ir.Apply("sub", (a, b)) if of(a) == "low" and _is_top(b, running, defined):
                return "low"
            case ir.Apply("mul", (a, ir.Const(by))) if 0 < by < math.inf:
                return of(a)
            case ir.Apply("exp" | "exp2", (a,)) if of(a) == "low":
                return "zero"
            case ir.Apply("cast" | "expand_dims" | "squeeze" | "transpose" | "broadcast", (a,)):
                return of(a) if part.type.dtype.startswith(("float", "bfloat")) else None
            case _:
                return None

    return of(expr)


def _is_top(expr: Expr, running: RunningMaximum, defined: Mapping[str, Expr]) -> bool:
    """The maximum in any shape."""
    match expr:
        case ir.Var(name) if name != running.next and name in defined:
            return _is_top(defined[name], running, defined)
        case ir.Var(name):
            return name == running.next
        case ir.Apply("expand_dims" | "broadcast", (inner,)):
            return _is_top(inner, running, defined)
        case _:
            return False


# ---------------------------------------------------------------- factors that are 1


def without_factors(expr: Expr, largest: Collection[str], ones: Collection[str] = ()) -> Expr:
    """The value without factors exp(m - m) of the largest m; `ones` are names of such."""

    def change(part: Expr) -> Expr | None:
        match part:
            case ir.Apply("mul" | "div", (a, b)) if is_one(b, largest, ones):
                kept = a
            case ir.Apply("mul", (a, b)) if is_one(a, largest, ones):
                kept = b
            case _:
                return None
        return without_factors(kept, largest, ones) if kept.type == part.type else None

    return rewrite(expr, change)


def is_one(expr: Expr, largest: Collection[str], ones: Collection[str]) -> bool:
    """Whether a value is exp(m - m), in any shape."""
    match expr:
        case ir.Var(name):
            return name in ones
        case ir.Apply("expand_dims" | "broadcast", (inner,)):
            return is_one(inner, largest, ones)
        case ir.Apply("exp" | "exp2", (ir.Apply("sub", (ir.Var(name) as a, b)),)):
            return a == b and name in largest
        case _:
            return False
