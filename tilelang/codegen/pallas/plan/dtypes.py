"""Dtypes: what a target computes with, checked before a compiler says so in words of its own."""

from __future__ import annotations

from tilelang.codegen.pallas.target import Target
from tilelang.errors import Loc, PlanError
from tilelang.ir import Apply, Expr, KernelIR, statement_exprs, statements, walk


def check_dtypes(ir: KernelIR, target: Target) -> None:
    """PlanError for a tensor, or a product of two values, that the target has no dtype for."""
    for tensor in ir.tensors:
        if tensor.dtype in target.refused:
            raise PlanError(
                f"{tensor.name} is {tensor.dtype}, and {target} does not compute in it",
                tensor.loc or ir.loc,
                "use bfloat16 or float32",
            )
    for stmt in statements(ir.body):
        for expr in statement_exprs(stmt):
            for part in walk(expr):
                _check_value(part, target, stmt.loc)


def _check_value(expr: Expr, target: Target, loc: Loc | None) -> None:
    if expr.type.dtype in target.refused:
        raise PlanError(
            f"a value is {expr.type.dtype}, and {target} does not compute in it",
            loc,
            "cast it to bfloat16 or float32",
        )
    if not (isinstance(expr, Apply) and expr.op == "dot"):
        return
    unknown = [a.type.dtype for a in expr.args if a.type.dtype not in target.products]
    if unknown:
        raise PlanError(
            f"{target} has no matrix product of {unknown[0]} values",
            loc,
            f"cast the operands first; it has products of {', '.join(sorted(target.products))}",
        )
