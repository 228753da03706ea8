"""Sides: how the two operands of a product lie beside what was loaded."""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.ir import Apply, Expr, Load, reached
from tilelang.language.dtypes import itemsize

from .alignment import LEAST_COPY
from .results import of_loads


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


def is_narrow(load: Load) -> bool:
    """Whether each thread that turns a matrix wants less of it at once than one copy brings."""
    return itemsize(load.type.dtype) < LEAST_COPY


def turned_matrices(dot: Apply, made: Mapping[str, Expr]) -> tuple[Load, ...]:
    """Of what a left operand is computed number by number, before it is turned.

    By the compiler's figures for sums of keys that are weighted, times values: float32 is copied
    ahead, and read as the product wants it; bfloat16 stays in registers, and passes memory turned.
    """
    if not (is_turned(dot) and of_loads(dot.args[0], made)):
        return ()
    loads = dict.fromkeys(e for e in reached(dot.args[0], made) if isinstance(e, Load))
    return tuple(load for load in loads if load.type.rank > 1)
