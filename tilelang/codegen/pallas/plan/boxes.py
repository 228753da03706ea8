"""Boxes: how many groups, and how many rows that follow each other, a step moves to or from boxes.

Both blocks are as large as copies want them to be, and a tile has the rows of about two blocks of
groups in the mean: every step asks each group of its block whether it has rows in the tile.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.codegen.pallas.passes.group_boxes import copies_rows
from tilelang.codegen.pallas.target import MIB, Target, padded_bytes
from tilelang.language.dtypes import itemsize
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

# Of a tile, and of the boxes of a step.  By the estimate for v6e, jagged_to_padded of production
# takes 514 us; with half the rows or bytes of a tile 526, and with twice of anything no less.
MOST_ROWS, MOST_BYTES, BOX_BYTES = 2048, 2 * MIB, 4 * MIB


def blocks_in_boxes(problem: Problem, name: str, target: Target) -> dict[str, int]:
    """The block of the loop over groups, and that of their rows.

    Raises Refused where the loop does more than to copy rows, or not even two boxes fit.
    """
    copy, kernel, axis = copies_rows(problem, name), problem.ir, problem.axis(name)
    flat, box = copy.load, copy.store
    if not copy.to_box:
        flat, box = box, flat
    (rows, columns), (count, kept, _) = (kernel.tensor(e.tensor).shape for e in (flat, box))
    dtype = kernel.tensor(box.tensor).dtype
    tile = target.rows(itemsize(dtype))
    most = min(MOST_ROWS, tile * (MOST_BYTES // padded_bytes((tile, columns), dtype, target)))
    mean = max(rows // max(count, 1), 1)
    fit = BOX_BYTES // padded_bytes((kept, columns), dtype, target)
    together = min(most // 2 // mean, fit, count)
    if together < 2 or most < tile:
        raise Refused(
            Rule.CONFIG, f"groups of {axis.user} are too long to be moved together", axis.loc
        )
    all_rows = _power(max(2 * rows - 1, tile))
    return {name: _power(together), copy.rows.name: min(_power(most), all_rows)}


def with_halves(blocks: dict[str, int]) -> Iterator[dict[str, int]]:
    """Both blocks, and half of both, where that is two boxes and more."""
    yield blocks
    half = {name: size // 2 for name, size in blocks.items()}
    if min(half.values()) >= 2:
        yield half


def _power(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)
