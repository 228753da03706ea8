"""Sides: how the two operands of a product lie beside what was loaded."""

from __future__ import annotations

from tilelang.ir import Apply, Expr


def sums_across(dot: Apply, side: int) -> bool:
    """Whether a product sums over another than the last dimension of what was loaded."""
    contract: tuple[int, int] = dot.attr("contract")
    operand, across = dot.args[side], contract[side] != dot.args[side].type.rank - 1
    while isinstance(operand, Apply) and operand.op in ("transpose", "cast"):
        across ^= operand.op == "transpose"
        operand = operand.args[0]
    return across


def registers_turn(operand: Expr) -> bool:
    """Whether registers turn what is multiplied."""
    while isinstance(operand, Apply) and operand.op == "cast":
        operand = operand.args[0]
    return isinstance(operand, Apply) and operand.op == "transpose"


def is_turned(dot: Apply) -> bool:
    """Whether the left operand is multiplied in another order than it has."""
    contract: tuple[int, int] = dot.attr("contract")
    left = dot.args[0]
    return contract[0] != left.type.rank - 1 or (isinstance(left, Apply) and left.op == "transpose")
