"""reduction(loop, definitions) -> the associative op that a loop combines its carries with.

acc = acc + x            a sum       acc = where(c, acc + x, acc)     a sum
m = maximum(m, x)        a maximum   m, l = f(m, x), g(l, m, x)       none: each needs the other
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir import Apply, Assign, Carry, Expr, KernelIR, Loop, Var, children
from .placed import placed

OPS: Mapping[str, str] = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "mul": "product",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
}


@dataclass(frozen=True)
class Definitions:
    """Where values come from: by assignment, as a loop's carry, or as what a loop leaves."""

    values: Mapping[str, Expr]
    outs: Mapping[str, Carry]
    uses: Mapping[str, frozenset[str]]


def definitions(ir: KernelIR) -> Definitions:
    """Every Var of the kernel; `uses` holds the names that a name is computed from."""
    values: dict[str, Expr] = {}
    outs: dict[str, Carry] = {}
    carried: list[Carry] = []
    for stmt, _ in placed(ir.body):
        if isinstance(stmt, Assign):
            values[stmt.name] = stmt.value
        elif isinstance(stmt, Loop):
            carried += stmt.carries
            outs |= {c.out: c for c in stmt.carries}
    return Definitions(values, outs, _closure(values, carried))


def _closure(values: Mapping[str, Expr], carried: list[Carry]) -> dict[str, frozenset[str]]:
    direct = {name: names(value) for name, value in values.items()}
    for carry in carried:
        direct[carry.out] = direct[carry.name] = names(carry.init) | names(carry.next)
    return {name: _reachable(name, direct) for name in direct}


def _reachable(name: str, direct: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found: set[str] = set()
    queue = [name]
    while queue:
        for other in direct.get(queue.pop(), ()):
            if other not in found:
                found.add(other)
                queue.append(other)
    return frozenset(found)


def names(expr: Expr) -> frozenset[str]:
    """The Vars in an expression."""
    own = frozenset({expr.name}) if isinstance(expr, Var) else frozenset[str]()
    return own.union(*(names(child) for child in children(expr)))


def sources_of(expr: Expr, known: Definitions) -> frozenset[str]:
    """The names that the expression is computed from."""
    own = names(expr)
    return own.union(*(known.uses.get(name, frozenset()) for name in own))


def depends_on(expr: Expr, wanted: frozenset[str], known: Definitions) -> bool:
    """Whether the expression is computed from one of the names."""
    return bool(wanted & sources_of(expr, known))


def reduction(loop: Loop, known: Definitions) -> str | None:
    """The op, if every carry of the loop is combined by it with values that use no carry."""
    carried = frozenset(c.name for c in loop.carries)
    ops = {combination(c.next, c.name, carried, known) for c in loop.carries}
    op = ops.pop() if len(ops) == 1 else None
    return OPS.get(op) if op is not None else None


@dataclass(frozen=True)
class _Search:
    """One carry among those of its loop; `found` holds what names are of it.

    inside  what the loops leave that are being looked into: none is combined with its own result
    """

    carried: frozenset[str]
    known: Definitions
    found: dict[str, str | None]
    inside: frozenset[str] = frozenset()

    def free(self, expr: Expr) -> bool:
        """Whether a value is computed without any carry of the loop."""
        return not depends_on(expr, self.carried, self.known)


def combination(expr: Expr, carry: str, carried: frozenset[str], known: Definitions) -> str | None:
    """The op by which `expr` combines the carry with other values; "" if it is the carry itself.

    None if the carry is used in any other way, or another carry is used at all.
    """
    return _combined(expr, _search(carry, carried, known))


def _search(
    carry: str, carried: frozenset[str], known: Definitions, inside: frozenset[str] = frozenset()
) -> _Search:
    search = _Search(carried, known, {carry: ""}, inside)
    for name, value in known.values.items():  # in order: a long chain is not recursion
        search.found[name] = None if carry not in known.uses[name] else _combined(value, search)
    return search


def _combined(expr: Expr, search: _Search) -> str | None:
    match expr:
        case Var(name) if name in search.found:
            return search.found[name]
        case Var(name) if name in search.known.outs and name not in search.inside:
            search.found[name] = _through(search.known.outs[name], search)
            return search.found[name]
        case Apply("where", (condition, a, b)) if search.free(condition):
            return _one({_combined(a, search), _combined(b, search)})
        case Apply(op, (a, b)) if op in OPS:
            holding = [x for x in (a, b) if not search.free(x)]
            return _one({op, _combined(holding[0], search)}) if len(holding) == 1 else None
        case _:
            return None


def _one(ops: set[str | None]) -> str | None:
    """The single op of the parts, where "" is the carry untouched."""
    rest = ops - {""}
    return (rest.pop() if rest else "") if len(rest) <= 1 else None


def _through(inner: Carry, search: _Search) -> str | None:
    """A loop inside that goes on with the carry."""
    inside = search.inside | {inner.out}
    within = _search(inner.name, search.carried | {inner.name}, search.known, inside)
    return _one({_combined(inner.init, search), _combined(inner.next, within)})
