"""Cut sums: products along long rows, as sums of products along parts of them.

    s = dot(q[t, :], k[u, :].T)   ->   part = dot(q[t, 0:64], k[u, 0:64].T)
                                       s = part + dot(q[t, 64:128], k[u, 64:128].T)

Warps that multiply by themselves read all of both operands before they begin, and for each product
of float32 they hold those twice: of rows of 256 numbers registers spilled.  Nothing else moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilelang.ir import Apply, Assign, Expr, KernelIR, Loop, Stmt, Var, every_expr
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import definitions, map_body, map_stmt, rewriting
from tilelang.language.build import binary
from tilelang.passes.tile_sums import PartOfDim


def cut_sums(ir: KernelIR, part: Callable[[Apply], int | None]) -> KernelIR:
    """The kernel with such products in parts as long as `part` says; None: in one."""

    def wanted(expr: Expr) -> int | None:
        return part(expr) if isinstance(expr, Apply) and expr.op == "dot" else None

    if not any(map(wanted, every_expr(ir.body))):
        return ir
    whole = PartOfDim("", ir, definitions(ir.body), ir.stored())
    taken = names_in(ir) | {ir.name}

    def statement(stmt: Stmt) -> tuple[Stmt, ...]:
        before: list[Stmt] = []

        def change(expr: Expr) -> Expr | None:
            length = wanted(expr)
            parts = _parts(expr, length, whole) if length and isinstance(expr, Apply) else ()
            if not parts:
                return None  # but there may be products in it
            first, *others = parts
            for one in others:
                name = take("part", taken)
                before.append(Assign(name, first, one.loc or stmt.loc, name))
                first = binary("add", Var(name, first.type), one, None)
            return first

        made = map_stmt(stmt, rewriting(change))
        if isinstance(made, Loop):  # what it carries on is computed at its end
            return (replace(made, body=(*made.body, *before)),)
        return (*before, made)

    return replace(ir, body=map_body(ir.body, statement))


def _parts(dot: Apply, length: int, whole: PartOfDim) -> tuple[Apply, ...]:
    """The products of so many numbers each; none where an operand is not made of its parts."""
    contract: tuple[int, int] = dot.attr("contract")
    size = dot.args[0].type.shape[contract[0]]
    assert isinstance(size, int), "tiles are as long as the config says"
    made: list[Apply] = []
    for first in range(0, size, length):
        part = replace(whole, along=min(length, size - first), first=first)
        a, b = (part.of(arg, dim) for arg, dim in zip(dot.args, contract, strict=True))
        if a is None or b is None:
            return ()
        made.append(replace(dot, args=(a, b)))
    return tuple(made)
