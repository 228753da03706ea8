"""Write out: loops that run once are their bodies, and loops that never run what they begin with.

    for g in grid(1): A(g); (for t in tile(0, 0): B); C   ->   A(0); C

Loops that run once disappear here, so later stages never guard a loop of one step.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir import Body, Expr, GridIndex, Loop
from ..ir.traversal import inlined, rewrite_body, substitute


def write_out(
    body: Body, once: Collection[str], never: Collection[str], index: dict[str, Expr]
) -> Body:
    """Replaces loops over axes in `once` by their bodies and drops loops over axes in `never`.

    `index` holds the constant index of `hl.grid` axes that run once.
    """

    def change(expr: Expr) -> Expr | None:
        return index.get(expr.axis) if isinstance(expr, GridIndex) else None

    def run(stmts: Body, ends: dict[str, Expr]) -> Body:
        """The statements written out; `ends` collects what names of loops that vanish stand for."""
        out: Body = ()
        for position, stmt in enumerate(stmts):
            if not isinstance(stmt, Loop):
                out += (stmt,)
                continue
            rest = stmts[position + 1 :]
            if stmt.axis in never:
                values = {c.out: c.init for c in stmt.carries}
                ends |= values
                return out + run(substitute(rest, values), ends)
            if stmt.axis in once:
                entry = {c.name: c.init for c in stmt.carries}
                inside = substitute(stmt.body, entry)
                values = {c.out: inlined(c.next, entry) for c in stmt.carries}
                ends |= values
                return out + run(inside + substitute(rest, values), ends)
            own: dict[str, Expr] = {}
            body = run(stmt.body, own)
            carries = tuple(replace(c, next=inlined(c.next, own)) for c in stmt.carries)
            out += (replace(stmt, carries=carries, body=body),)
        return out

    return run(rewrite_body(body, change), {})
