"""Memory: how much shared memory a launch needs, estimated from its products.

Loads that feed a product are copied `stages` times ahead; other operands pass through shared memory
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import (
    Apply,
    Assign,
    Expr,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Var,
    statement_exprs,
    statements,
    walk,
)
from tilelang.ir.traversal import definitions
from tilelang.language.dtypes import itemsize


def shared_bytes(ir: KernelIR, blocks: Mapping[str, int], stages: int) -> int:
    """Bytes of shared memory that the largest launch needs."""
    return max((_launch(ir, loop, blocks, stages) for loop in ir.body), default=0)


def _launch(ir: KernelIR, loop: Loop, blocks: Mapping[str, int], stages: int) -> int:
    made = definitions(ir.body)
    inside = max((_body(s.body, blocks, stages, made) for s in _loops(loop)), default=0)
    return inside


def _loops(loop: Loop) -> list[Loop]:
    return [s for s in statements((loop,)) if isinstance(s, Loop)]


def _body(
    body: tuple[Stmt, ...], blocks: Mapping[str, int], stages: int, made: Mapping[str, Expr]
) -> int:
    """Bytes of the operands of one loop's own products, each load once."""
    own = {s.name for s in body if isinstance(s, Assign)}
    found: dict[Expr, int] = {}
    for stmt in body:
        if isinstance(stmt, Loop):
            continue
        for expr in statement_exprs(stmt):
            for dot in (e for e in walk(expr) if isinstance(e, Apply) and e.op == "dot"):
                for operand in dot.args:
                    load = _load(operand, made, own)
                    size = _bytes(load or operand, blocks)
                    found[load or operand] = size * (stages if load is not None else 1)
    return sum(found.values())


def _load(expr: Expr, made: Mapping[str, Expr], own: set[str]) -> Load | None:
    """The load that an operand is, if it is one of the loop's own."""
    match expr:
        case Load():
            return expr
        case Apply("transpose" | "cast", (inner,)):
            return _load(inner, made, own)
        case Var(name) if name in own:
            return _load(made[name], made, own)
        case _:
            return None


def _bytes(expr: Expr, blocks: Mapping[str, int]) -> int:
    lanes = (power_of_two(d if isinstance(d, int) else blocks.get(d, 1)) for d in expr.type.shape)
    return prod(lanes) * itemsize(expr.type.dtype)
