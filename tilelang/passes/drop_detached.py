"""Drop detached: what says that no gradient passes is for those who ask for one.

    y[i] = x[i] * detach(x[i])   ->   y[i] = x[i] * x[i]

Gradients are derived of the kernel before; a plan is made of the one after.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import Apply, Expr, KernelIR, every_expr
from ..ir.traversal import rewrite, rewrite_body


def drop_detached(ir: KernelIR) -> KernelIR:
    """The kernel that computes the same and has no `detach`; itself, if it has none."""
    if not any(isinstance(e, Apply) and e.op == "detach" for e in every_expr(ir.body)):
        return ir
    return replace(ir, body=rewrite_body(ir.body, _operand))


def _operand(expr: Expr) -> Expr | None:
    if isinstance(expr, Apply) and expr.op == "detach":
        return rewrite(expr.args[0], _operand)
    return None
