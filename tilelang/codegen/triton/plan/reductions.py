"""Reductions: shared memory that values pass through where lanes meet others.

    x[64, 4, 256].sum(1)        lanes of one result may lie in several warps

Triton spreads the lanes of what is loaded as memory has them: 16 bytes to a thread along the last
dimension, then threads of a warp and then warps over the last, the first and the others, as far as
each goes.  Warps that lie along the reduced dimension give their results to each other in shared
memory; a result of several dimensions passes through it once more, to be stored as memory has it.
So does a value whose lanes change places, or what it becomes, whichever is larger: the compiler's
figures for joins and reshapes of 64 to 128 lanes on sm_80, sm_90 and sm_100 are that or less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from tilelang.codegen.triton.passes.moved_lanes import taken_from
from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import Apply, Dim, Expr, Load, Loop, every_expr, reached
from tilelang.language.dtypes import itemsize
from tilelang.language.op import OPS

WIDE = 16  # bytes that one thread loads at once
LANES = 32  # threads of a warp
FLOAT = 4  # bytes of a number while it is added up


def reduction_bytes(
    loop: Loop, blocks: Mapping[str, int], warps: int, made: Mapping[str, Expr]
) -> int:
    """The most that one of the reductions of a launch needs."""
    exprs = list(every_expr((loop,)))
    found = {e: None for e in exprs if isinstance(e, Apply) and OPS[e.op].kind == "reduce"}
    summed = max((_bytes(e, blocks, warps, made) for e in found), default=0)
    return max(summed, moved_bytes(exprs, blocks))


def moved_bytes(exprs: Iterable[Expr], blocks: Mapping[str, int]) -> int:
    """The most that one of the expressions needs to change the places of lanes."""
    moving = ((e, *found) for e in exprs if (found := taken_from(e, {})))
    return max((value_bytes(value, blocks) for values in moving for value in values), default=0)


def value_bytes(expr: Expr, blocks: Mapping[str, int]) -> int:
    """Bytes of a value, with all of its lanes."""
    return prod(lanes_of(d, blocks) for d in expr.type.shape) * itemsize(expr.type.dtype)


def _bytes(reduced: Apply, blocks: Mapping[str, int], warps: int, made: Mapping[str, Expr]) -> int:
    (operand, *_), axis = reduced.args, reduced.attr("axis")
    shape = [lanes_of(d, blocks) for d in operand.type.shape]
    loads = [e for e in reached(operand, made) if isinstance(e, Load) and e.type.shape]
    least = min((itemsize(e.type.dtype) for e in loads), default=FLOAT)
    along = warps_along(shape, warps, WIDE // least)[axis]
    results = prod(n for d, n in enumerate(shape) if d != axis)
    kept = 2 * FLOAT if reduced.op.startswith("arg") else FLOAT
    between = along * results * kept if along > 1 else 0
    return max(between, results * FLOAT if between and len(shape) > 2 else 0)


def warps_along(shape: list[int], warps: int, wide: int) -> list[int]:
    """How many warps lie along each dimension of a value that is loaded."""
    last = len(shape) - 1
    threads, left, found = LANES, warps, [1] * len(shape)
    for d in (last, *range(last)):
        own = min(wide, max(prod(shape) // (LANES * warps), 1), shape[d]) if d == last else 1
        lanes = max(min(threads, shape[d] // own), 1)
        found[d] = max(min(left, shape[d] // (own * lanes)), 1)
        threads, left = threads // lanes, left // found[d]
    return found


def lanes_of(dim: Dim, blocks: Mapping[str, int]) -> int:
    """How many lanes a dimension of a value has."""
    return power_of_two(dim if isinstance(dim, int) else blocks.get(dim, 1))
