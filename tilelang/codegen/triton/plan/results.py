"""Results: shared memory that values pass through on their way to memory.

Registers hold results of products as these make them, and memory is written 16 bytes at a time by
each thread, along rows.  What both have in one thread anyway does not pass: a result goes in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tilelang.codegen.triton.target import WARP, Target
from tilelang.ir import Along, Apply, Expr, Load, Store, reached
from tilelang.language.dtypes import itemsize
from tilelang.language.op import OPS, SAME

from .reductions import LANES, WIDE, lanes_of, value_bytes

LEAST = 4 * WIDE  # bytes of a thread from which on results leave tensor memory a quarter at a time
MATRIX = 16  # rows of a warp in a result of sm_90; a thread has the eighth after its own too


def result_bytes(
    stores: Iterable[Store], blocks: Mapping[str, int], made: Mapping[str, Expr]
) -> int:
    """Bytes of the largest one: what is made of loads alone lies as they do."""
    stored = (s.value for s in stores if s.value.type.rank > 1)
    return max((value_bytes(v, blocks) for v in stored if not of_loads(v, made)), default=0)


def leaving_bytes(
    stores: Iterable[Store], blocks: Mapping[str, int], made: Mapping[str, Expr],
    cut: Collection[str], target: Target, warps: int,
) -> int:  # fmt: skip
    """The most that is on its way at one time; each number of rows that are `cut` goes alone."""
    most = 0
    for store in stores:
        last = store.index[-1] if store.index else None
        whole = isinstance(last, Along) and last.axis in cut
        parts = 1 if whole else _parts(store.value, blocks, target, warps)
        most = max(most, result_bytes([store], blocks, made) // parts)
    return most


def _parts(value: Expr, blocks: Mapping[str, int], target: Target, warps: int) -> int:
    """How many parts a result goes in."""
    if value.type.rank != 2:
        return 1
    if target.columns:
        return 4 if value_bytes(value, blocks) >= LEAST * WARP * warps else 1
    rows, columns = (lanes_of(d, blocks) for d in value.type.shape)
    size = itemsize(value.type.dtype)
    if target.matrix_warps == 1 or size > 2 or MATRIX * warps > rows:
        return 1  # a thread has other numbers of these
    beside = warps * (LANES // max(min(LANES, columns * size // WIDE), 1))  # rows stored at once
    later = rows // max(beside, MATRIX * warps)
    return max(later, 1) * (2 if beside <= MATRIX // 2 else 1)


def of_loads(expr: Expr, made: Mapping[str, Expr]) -> bool:
    """Whether a value is computed number by number of loads, which the compiler lays out for it."""

    def ends(part: Expr) -> bool:
        return isinstance(part, Load) or not part.type.shape

    def apart(part: Expr) -> bool:
        return isinstance(part, Apply) and (
            OPS[part.op].kind == "elementwise" or part.op in {*SAME, "full"}
        )

    return all(ends(e) or apart(e) for e in reached(expr, made, lambda part: not ends(part)))
