"""guarded(launched, site) -> the adjoint of a load that the forward kernel may never do.

for tm in tile(offsets[g], offsets[g + 1]):
    y[tm] = x[tm] * exp(w[g])            d_w[g] = exp(w[g]) * (sum over tm of dy[tm] * x[tm])

A group without rows does not read w[g], which may hold anything.  Its gradient is 0, and not
0 * NaN: what is more than the sum itself is asked for only where there are rows.  What all groups
read is asked for where one of them has rows.
"""

from __future__ import annotations

from ..ir import Apply, Const, Expr
from ..language.build import binary, cast, where
from ..language.op import OPS
from .adjoints import AdjointSite
from .forward import Launched
from .graph import Graph, Over


def guarded(launched: Launched, site: AdjointSite) -> Expr:
    """The adjoint, and 0 where a loop that the load stands in has no iterations."""
    graph, value = launched.graph, site.adjoint
    if _vanishes(graph, value):
        return value
    load = graph.named(site.load)
    own = graph.scope(load)
    around = launched.inside.get(getattr(load, "name", ""), ())
    loc, runs = site.load.loc, None
    for axis in reversed(graph.ordered({*around} - own)):
        known = graph.ranges[axis]
        if runs is not None and axis in graph.scope(runs):  # in any of its iterations
            once = graph.over(axis, graph.add(cast(runs, "float32", loc)), "max", loc)
            runs = graph.add(binary("gt", once, 0.0, loc))
        elif known.axis.static is None:
            here = graph.add(binary("lt", known.begin, known.end, loc))
            runs = here if runs is None else graph.add(binary("logical_and", runs, here, loc))
    if runs is None:
        return value
    return graph.add(where(runs, value, 0.0, loc))


def _vanishes(graph: Graph, value: Expr) -> bool:
    """Whether it is a sum over iterations and nothing else: 0 where there are none."""
    match graph.term(value):
        case Over(_, _, "sum"):
            return True
        case Apply(op, args) if OPS[op].linear:
            return all(_vanishes(graph, a) for a in args)
        case Apply("mul", (x, Const())):
            return _vanishes(graph, x)
        case _:
            return False
