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
from tilelang.ir import Apply, Dim, Expr, KernelIR, Load, Loop, Store, meant, reached
from tilelang.language.dtypes import itemsize
from tilelang.language.op import REDUCTIONS

from .alignment import row_alignment
from .loops import own_exprs

WIDE = 16  # bytes that one thread loads at once
LANES = 32  # threads of a warp
FLOAT = 4  # bytes of a number while it is added up


def reduction_bytes(
    ir: KernelIR, loop: Loop, blocks: Mapping[str, int], warps: int, made: Mapping[str, Expr]
) -> int:
    """The most that one of the reductions of a loop needs, without those of loops inside."""
    exprs = [e for e in own_exprs(loop) if isinstance(e, Apply)]
    found = dict.fromkeys(e for e in exprs if e.op in REDUCTIONS)
    summed = max((_bytes(ir, e, blocks, warps, made) for e in found), default=0)
    beside = ((meant(a, made), e) for e in exprs if e.type.rank > 1 for a in e.args)
    alone = max((_alone_bytes(a, e, blocks, warps) for a, e in beside), default=0)
    stores = (s for s in loop.body if isinstance(s, Store))
    stored = max((_stored_bytes(s, blocks, warps, made) for s in stores), default=0)
    return max(summed, moved_bytes(exprs, blocks), alone, stored)


def _alone_bytes(value: Expr, user: Expr, blocks: Mapping[str, int], warps: int) -> int:
    """Bytes of a row that is loaded alone, and computed with beside several of them.

    Triton loads it once for all threads, unless there are more of these than numbers; of one row
    every thread has what it loaded.
    """
    while isinstance(value, Apply) and value.op == "cast":
        value = value.args[0]
    if not (isinstance(value, Load) and value.type.rank == 1):
        return 0
    narrow = itemsize(value.type.dtype)
    shape = [lanes_of(d, blocks) for d in user.type.shape]
    apart = warps_along(shape, warps, WIDE // narrow)[-1] < warps
    size = value_bytes(value, blocks)
    return size if apart and size >= LANES * warps * narrow else 0


def _stored_bytes(
    store: Store, blocks: Mapping[str, int], warps: int, made: Mapping[str, Expr]
) -> int:
    """Bytes of what threads store other numbers of than they have.

    Sums along one of two dimensions lie as the others do, and loads as they have most to a thread.
    More bytes than that are stored by threads of their own, as are sums over the first of three
    whose rows are shorter than a warp, or of fewer bytes than what is added.
    """
    value = store.value
    parts = [e for e in reached(value, made) if e.type.shape]
    sums = [e for e in parts if isinstance(e, Apply) and e.op in REDUCTIONS]
    if value.type.rank < 2:
        return value_bytes(value, blocks) if sums and value.type.rank else 0
    sizes = {itemsize(e.type.dtype) for e in parts if isinstance(e, Load) and e.type.rank > 1}
    size = FLOAT if store.combine else itemsize(value.type.dtype)
    deep = any(e.args[0].type.rank > 2 and e.attr("axis") == 0 for e in sums)
    short = lanes_of(value.type.shape[-1], blocks) * size < WIDE * LANES
    if not sizes or (size <= min(sizes) and not (deep and (short or size < max(sizes)))):
        return 0
    narrow, lanes = min(size, *sizes), prod(lanes_of(d, blocks) for d in value.type.shape)
    return min(lanes * narrow, WIDE * max(FLOAT // narrow, 1) * LANES * warps)


def moved_bytes(exprs: Iterable[Expr], blocks: Mapping[str, int]) -> int:
    """The most that one of the expressions needs to change the places of lanes."""
    moving = ((e, *found) for e in exprs if (found := taken_from(e, {})))
    return max((value_bytes(value, blocks) for values in moving for value in values), default=0)


def value_bytes(expr: Expr, blocks: Mapping[str, int]) -> int:
    """Bytes of a value, with all of its lanes."""
    return prod(lanes_of(d, blocks) for d in expr.type.shape) * itemsize(expr.type.dtype)


def _bytes(
    ir: KernelIR, reduced: Apply, blocks: Mapping[str, int], warps: int, made: Mapping[str, Expr]
) -> int:
    (operand, *_), axis = reduced.args, reduced.attr("axis")
    shape = [lanes_of(d, blocks) for d in operand.type.shape]
    loads = [e for e in reached(operand, made) if isinstance(e, Load) and e.type.rank > 1]
    wide = max((at_once(ir, e) for e in loads), default=WIDE // FLOAT)
    along = warps_along(shape, warps, wide)[axis]
    results = prod(n for d, n in enumerate(shape) if d != axis)
    kept = 2 * FLOAT if reduced.op.startswith("arg") else FLOAT
    between = along * results * kept if along > 1 else 0
    return max(between, results * FLOAT if between and len(shape) > 2 else 0)


def at_once(ir: KernelIR, load: Load) -> int:
    """How many numbers of a row one thread loads at once."""
    return max(row_alignment(ir, load.tensor) // itemsize(load.type.dtype), 1)


def warps_along(shape: list[int], warps: int, wide: int) -> list[int]:
    """How many warps lie along each dimension of a value that is loaded."""
    return [warps for _, _, warps in lanes_along(shape, warps, wide)]


def lanes_along(shape: list[int], warps: int, wide: int) -> list[tuple[int, int, int]]:
    """Numbers of a thread, threads and warps along each dimension of a value that is loaded."""
    last = len(shape) - 1
    threads, left, found = LANES, warps, [(1, 1, 1)] * len(shape)
    for d in (last, *range(last)):
        own = min(wide, max(prod(shape) // (LANES * warps), 1), shape[d]) if d == last else 1
        lanes = max(min(threads, shape[d] // own), 1)
        found[d] = own, lanes, max(min(left, shape[d] // (own * lanes)), 1)
        threads, left = threads // lanes, left // found[d][-1]
    return found


def lanes_of(dim: Dim, blocks: Mapping[str, int]) -> int:
    """How many lanes a dimension of a value has."""
    return power_of_two(dim if isinstance(dim, int) else blocks.get(dim, 1))
