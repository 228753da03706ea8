"""Empty: sums and products over a dimension of no elements are their neutral value, no loads."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Apply, Expr, KernelIR
from .nest import rewrite_stmt

NEUTRAL = {"sum": 0, "any": False, "all": True}


def fold_empty(ir: KernelIR) -> KernelIR:
    """The kernel in which nothing is reduced over a dimension of length zero."""
    if all(0 not in tensor.shape for tensor in ir.tensors):
        return ir
    return replace(ir, body=tuple(rewrite_stmt(s, _folded) for s in ir.body))


def _folded(expr: Expr) -> Expr | None:
    if not isinstance(expr, Apply):
        return None
    neutral = _neutral(expr)
    if neutral is None:
        return None
    return Apply("full", (), expr.type, (("value", neutral),), expr.loc)


def _neutral(expr: Apply) -> int | bool | None:
    """What an op gives because it goes over nothing; None if it does not."""
    if expr.op in NEUTRAL:
        shape = expr.args[0].type.shape
        return NEUTRAL[expr.op] if shape[int(expr.attr("axis"))] == 0 else None  # type: ignore[call-overload]
    if expr.op == "dot":
        left, _ = expr.attr("contract")  # type: ignore[misc]
        return 0 if expr.args[0].type.shape[left] == 0 else None
    return None
