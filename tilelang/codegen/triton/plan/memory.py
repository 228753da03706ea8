"""Memory: how much shared memory a launch needs, estimated from its products.

Loads that feed a product are copied `stages` times ahead; other operands pass through shared memory
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    Expr,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    TileIndex,
    TileScalar,
    Var,
    statement_exprs,
    statements,
    walk,
)
from tilelang.ir.traversal import definitions, index_exprs, inlined
from tilelang.language.dtypes import itemsize


def shared_bytes(ir: KernelIR, blocks: Mapping[str, int], stages: int) -> int:
    """Bytes of shared memory that the largest launch needs."""
    return max((_launch(ir, loop, blocks, stages) for loop in ir.body), default=0)


def _launch(ir: KernelIR, loop: Loop, blocks: Mapping[str, int], stages: int) -> int:
    made = definitions(ir.body)
    loops = (s for s in statements((loop,)) if isinstance(s, Loop))
    return max((_body(s, blocks, stages, made) for s in loops), default=0)


def _body(loop: Loop, blocks: Mapping[str, int], stages: int, made: Mapping[str, Expr]) -> int:
    """Bytes of the operands of one loop's own products, each load once.

    What does not move with the loop is copied once; left operands that are computed stay in
    registers.
    """
    own = {s.name for s in loop.body if isinstance(s, Assign)}
    found: dict[Expr, int] = {}
    for expr in (e for s in loop.body if not isinstance(s, Loop) for e in statement_exprs(s)):
        for dot in (e for e in walk(expr) if isinstance(e, Apply) and e.op == "dot"):
            for side, operand in enumerate(dot.args):
                load = _load(operand, made, own)
                if load is None and side == 0:
                    continue
                moves = load is not None and _moves(load, loop.axis, made)
                found[load or operand] = _bytes(load or operand, blocks) * (stages if moves else 1)
    return sum(found.values())


def _moves(load: Load, axis: str, made: Mapping[str, Expr]) -> bool:
    """Whether iterations of a loop load different elements."""
    parts = [e for i in load.index for x in index_exprs(i) for e in walk(inlined(x, made))]
    along = any(isinstance(i, Along) and i.axis == axis for i in load.index)
    return along or any(
        isinstance(e, GridIndex | TileIndex | TileScalar) and e.axis == axis for e in parts
    )


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
