"""check_kernel(kernel, target, names): what no config makes legal, said at the author's line."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from .. import ir
from ..errors import Loc
from .refusal import Refused, Rule


class Computes(Protocol):
    """A target, by the dtypes that it computes in; `products`: those it multiplies matrices of."""

    @property
    def refused(self) -> frozenset[str]: ...
    @property
    def products(self) -> frozenset[str]: ...


def check_kernel(kernel: ir.KernelIR, target: Computes, names: Set[str]) -> None:
    """Refused for names, stores and dtypes that the generated source cannot have.

    names  modules of the generated source.  What a target computes with is checked before a
    compiler says so in words of its own.
    """
    for name, loc in ((kernel.name, kernel.loc), *((t.name, t.loc) for t in kernel.tensors)):
        if name in names:
            raise Refused(
                Rule.KERNEL,
                f"the name {name} is that of a module in the generated source",
                loc,
                f"rename it; the names {', '.join(sorted(names))} are taken",
            )
    for stmt in ir.every_store(kernel.body):
        if kernel.tensor(stmt.tensor).view is not None:
            raise Refused(Rule.KERNEL, *_of_view(kernel, stmt))
    for tensor in kernel.tensors:
        if tensor.dtype in target.refused:
            raise Refused(
                Rule.KERNEL,
                f"{tensor.name} is {tensor.dtype}, and {target} does not compute in it",
                tensor.loc or kernel.loc,
                "use bfloat16 or float32",
            )
    for stmt in ir.statements(kernel.body):
        for expr in ir.statement_exprs(stmt):
            for part in ir.walk(expr):
                _check_dtype(part, target, stmt.loc)


def _of_view(kernel: ir.KernelIR, store: ir.Store) -> tuple[str, Loc | None, str]:
    """What is wrong with a store through a view of an array in another shape, and what to write."""
    array = kernel.tensor(kernel.root(store.tensor))
    what = (
        f"{store.tensor} is a view that merges or splits dimensions, or is indexed by a number in "
        "one of length 1 that it adds: stores through such views "
    )
    if array.role == "input":
        hint = f"pass {array.name} in the shape of {store.tensor}, as a view of the caller's"
        return f"{what}of an argument are not supported", store.loc, hint
    hint = f"store by {store.tensor} alone, or make {array.name} in that shape and return a view"
    return f"{what}are supported where all stores to {array.name} are by one", store.loc, hint


def _check_dtype(expr: ir.Expr, target: Computes, loc: Loc | None) -> None:
    if expr.type.dtype in target.refused:
        raise Refused(
            Rule.KERNEL,
            f"a value is {expr.type.dtype}, and {target} does not compute in it",
            loc,
            "cast it to bfloat16 or float32",
        )
    operands = expr.args if isinstance(expr, ir.Apply) and expr.op == "dot" else ()
    unknown = [a.type.dtype for a in operands if a.type.dtype not in target.products]
    if unknown:
        raise Refused(
            Rule.KERNEL,
            f"{target} has no matrix product of {unknown[0]} values",
            loc,
            f"cast the operands first; it has products of {', '.join(sorted(target.products))}",
        )
