"""Wide carries: what loops carry is of 32 bits, or a vector of bfloat16; Mosaic has no others.

    for t carrying seen_1 = seen: bool       ->   for t carrying seen_1 = cast(seen, int32)
        seen_2 = seen_1 | x[t] > 0           ->       seen_2 = (seen_1 != 0) | x[t] > 0
        next seen_1 = seen_2                 ->       next seen_1 = cast(seen_2, int32)
    y[g] = seen_3                            ->   y[g] = seen_3 != 0

Values of 8 and 16 bits become float32 or int32 and back, exactly.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.ir import Apply, Carry, Const, Expr, KernelIR, Loop, Stmt, Type, Var, every_loop
from tilelang.ir.traversal import map_body, substitute
from tilelang.language.dtypes import wide_of

from .wide_operands import cast

HELD = ("float32", "int32", "uint32")


def wide_carries(ir: KernelIR) -> KernelIR:
    """The kernel whose loops carry what the compiler of TPUs carries."""
    carries = (c for loop in every_loop(ir.body) for c in loop.carries)
    narrow = [c for c in carries if not _held(c.init.type)]
    if not narrow:
        return ir
    values = {name: _narrow(name, c.init.type) for c in narrow for name in (c.name, c.out)}

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, Loop):
            return (stmt,)
        return (replace(stmt, carries=tuple(map(_carried, stmt.carries))),)

    return replace(ir, body=map_body(substitute(ir.body, values), change))


def _held(kind: Type) -> bool:
    return kind.dtype in HELD or (kind.dtype == "bfloat16" and kind.rank > 0)


def _carried(carry: Carry) -> Carry:
    if _held(carry.init.type):
        return carry
    wide = wide_of(carry.init.type.dtype)
    return replace(carry, init=cast(carry.init, wide), next=cast(carry.next, wide))


def _narrow(name: str, kind: Type) -> Expr:
    """What a loop carries, as what it is."""
    wide = Var(name, replace(kind, dtype=wide_of(kind.dtype)))
    if kind.dtype != "bool":
        return cast(wide, kind.dtype)
    return Apply("ne", (wide, Const(0, Type((), "int32"))), kind)
