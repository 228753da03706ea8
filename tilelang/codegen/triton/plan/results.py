"""Results: shared memory that values pass through on their way to memory.

Registers hold results of products as these make them, and memory is written 16 bytes at a time by
each thread, along rows.  What both have in one thread anyway does not pass: a result goes in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from tilelang.codegen.triton.target import WARP
from tilelang.ir import Along, Apply, Expr, Load, Store, reached
from tilelang.language.dtypes import itemsize
from tilelang.language.op import ELEMENTWISE, SAME

from .pipe import MATRIX_ROWS, Pipe
from .reductions import LANES, WIDE, lanes_of, value_bytes

LEAST = 4 * WIDE  # bytes of a thread from which on results leave tensor memory a quarter at a time
MATRIX = 16  # rows of a warp in a result; a thread has the eighth after its own too


def result_bytes(
    stores: Iterable[Store], blocks: Mapping[str, int], made: Mapping[str, Expr]
) -> int:
    """Bytes of the largest one: what is made of loads alone lies as they do."""
    stored = (s.value for s in stores if s.value.type.rank > 1)
    return max((value_bytes(v, blocks) for v in stored if not of_loads(v, made)), default=0)


def leaving_bytes(
    stores: Iterable[Store], blocks: Mapping[str, int], made: Mapping[str, Expr],
    cut: Collection[str], rows: Mapping[str, int], pipe: Pipe, chained: bool,
) -> int:  # fmt: skip
    """The most that is on its way at one time; each number of rows that are `cut` goes alone.

    rows   bytes that rows of an array begin at a multiple of: what a thread writes at a time
    """
    most = 0
    for store in stores:
        last = store.index[-1] if store.index else None
        whole = isinstance(last, Along) and last.axis in cut
        at_once = max(rows.get(store.tensor, WIDE), itemsize(store.value.type.dtype))
        parts = 1 if whole else _parts(store.value, blocks, at_once, pipe, chained)
        most = max(most, result_bytes([store], blocks, made) // parts)
    return most


def _parts(value: Expr, blocks: Mapping[str, int], own: int, pipe: Pipe, chained: bool) -> int:
    """How many parts a result goes in: what a thread has before and after is in none or in all.

    Such numbers are the next one and those of other rows.  As many dimensions of two as 16 bytes
    are numbers go in one part, on sm_90 the first for 2 bytes; each of the others halves it.
    """
    if value.type.rank < 2:
        return 1
    size, warps = itemsize(value.type.dtype), pipe.warps
    *batch, rows, columns = (lanes_of(d, blocks) for d in value.type.shape)
    if batch and prod(batch) == 1:
        return 1
    wide = rows >= MATRIX_ROWS and pipe.grouped and not batch
    if wide and pipe.target.columns:
        return 4 if value_bytes(value, blocks) >= LEAST * WARP * warps else 1
    down = warps if chained else min(warps, rows // MATRIX)
    down = down if wide else 1 if batch else _warps_down(rows, columns, warps, chained)
    later = MATRIX * down
    if later > rows or size < 2:
        return 1
    at_once = max(warps * LANES // max(columns * size // own, 1), 1)  # rows that are stored
    halves = [MATRIX // 2, *(later << n for n in range((rows // later).bit_length() - 1))]
    # warps of a batch have one matrix after another
    halves += [rows * warps << n for n in range((prod(batch) // warps).bit_length() - 1)]
    common = (own > size) + sum(row >= at_once for row in halves)
    together = 1 if wide and size == 2 else (WIDE // size).bit_length() - 1
    return 1 << max(common - together, 0)


def _warps_down(rows: int, columns: int, warps: int, chained: bool) -> int:
    """How many warps lie along the rows of a result that each of them multiplies a part of.

    Triton 3.6 gives all to the longer side where one loop has several products, and else as many
    as leave each warp as many tiles of 16 rows as of 8 columns.
    """
    if chained:
        return warps if rows >= columns else 1
    down, tall, broad = 1, rows // MATRIX, columns // (MATRIX // 2)
    while warps > 1:
        if tall >= broad:
            down, tall = down * 2, max(tall // 2, 1)
        else:
            broad //= 2
        warps //= 2
    return down


def of_loads(expr: Expr, made: Mapping[str, Expr]) -> bool:
    """Whether a value is computed number by number of loads, which the compiler lays out for it."""

    def ends(part: Expr) -> bool:
        return isinstance(part, Load) or not part.type.shape

    def apart(part: Expr) -> bool:
        return isinstance(part, Apply) and (part.op in ELEMENTWISE or part.op in {*SAME, "full"})

    return all(ends(e) or apart(e) for e in reached(expr, made, lambda part: not ends(part)))
