"""asked_once(graph, roots, until) -> roots: what is selected was not selected before.

where(c, exp(where(c, x, y) - m) * z, 0)     where(c, exp(x - m) * z, 0)

Lanes that the condition leaves out hold anything then.  What is used elsewhere as well stays as it
is, or else it would be computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from ..ir import Apply, Expr, Var
from ..language.op import ELEMENTWISE
from .graph import Graph, parts_of


def asked_once(graph: Graph, roots: Sequence[Expr], until: Collection[str]) -> list[Expr]:
    """The same values; what is in `until` is not computed, and stays."""
    reached = graph.reached(roots, until)
    terms = [term for name, term in reached.items() if name not in until]
    uses = Counter((*roots, *(part for term in terms for part in parts_of(term))))
    alone = {e.name for e, n in uses.items() if isinstance(e, Var) and n == 1} - {*until}
    fixed: dict[str, Expr] = {}
    for name, term in reached.items():
        if isinstance(term, Apply) and term.op == "where" and name not in until:
            condition, x, y = term.args
            found = _selected(graph, x, condition, alone)
            if found != x:
                fixed[name] = graph.add(replace(term, args=(condition, found, y)))
    kept = {name: Var(name, graph.values[name].type) for name in until}
    return [graph.replaced(root, {**kept, **fixed}) for root in roots] if fixed else list(roots)


def _selected(graph: Graph, expr: Expr, condition: Expr, alone: Collection[str]) -> Expr:
    """What the value is where the condition holds, for every lane that it has a number of."""
    term = graph.term(expr)
    if not (isinstance(expr, Var) and expr.name in alone and isinstance(term, Apply)):
        return expr
    if expr.type.shape != condition.type.shape or term.op not in ELEMENTWISE:
        return expr
    if term.op == "where" and term.args[0] == condition:
        inner = term.args[1]
        return inner if inner.type == expr.type else expr
    args = tuple(_selected(graph, a, condition, alone) for a in term.args)
    return graph.add(replace(term, args=args)) if args != term.args else expr
