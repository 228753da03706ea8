"""refuse_long(kernel): no position is so long, once it is written out, that no compiler ends.

    mid = (lo + hi) // 2                 each step of a search that is written out has the one
    lo = where(o[mid] <= r, mid, lo)     before it several times, and is twice as long
    hi = where(o[mid] <= r, hi, mid)

Whether scalar memory has all that a position is made of is asked of it as one expression.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.analysis.uses import references
from tilelang.errors import Loc, PlanError
from tilelang.ir import At, Expr, Gather, KernelIR, Var, every_loop
from tilelang.ir.traversal import children, definitions

LONGEST = 8_000  # operations: of half as many planning takes seconds, of twice as many a minute


def refuse_long(kernel: KernelIR) -> None:
    """PlanError at the first position or bound of a loop that is longer."""
    defined, known = definitions(kernel.body), dict[str, int]()

    def size(expr: Expr) -> int:
        if not isinstance(expr, Var):
            return 1 + sum(map(size, children(expr)))
        if expr.name not in known:
            known[expr.name] = size(defined[expr.name]) if expr.name in defined else 1
        return known[expr.name]

    for expr, loc in _positions(kernel):
        if (found := size(expr)) > LONGEST:
            what = f"a position is {found:,} operations long, once all of it is written out"
            hint = "compute it step by step in a loop that carries it: for _ in hl.grid(steps): ..."
            raise PlanError(what, loc, hint)


def _positions(kernel: KernelIR) -> Iterator[tuple[Expr, Loc | None]]:
    for site in references(kernel.body):
        yield from ((e.expr, site.loc) for e in site.index if isinstance(e, At | Gather))
    for loop in every_loop(kernel.body):
        axis = kernel.axis(loop.axis)
        yield from ((bound, axis.loc) for bound in (axis.begin, axis.end))
