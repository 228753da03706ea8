"""Groups: the tile in which rows of groups are reduced, by how often they are read.

    once, columns in tiles     16 x 128 by one warp, the next tiles copied ahead
    several times, in tiles    half of a group's rows x 64 or 32, for two passes that caches serve
    several times, whole       as many rows of groups as 16384 numbers are, of odd rows 8192; 32768
                               of groups of up to 128 rows

The times were taken on an H100 (80 GB HBM3, torch 2.11.0, Triton 3.6.0, 2026-11-23): 256 to 16384
groups, even and skewed, of 128 MiB to 256 MiB of rows of 128 to 2048 bfloat16 or 512 float32.
"""

from __future__ import annotations

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import Along, At, every_expr
from tilelang.schedule.problem import Problem

from .lives import rows_alive
from .roles import minor, products, scattered
from .shapes import rows_of
from .tile import MOST, Tile

# Read once: one warp keeps whole columns, so that no sum crosses warps, and what the next tiles
# read is on its way: 101 to 108 us for 256 MiB in all layouts, where 64 for each thread of 4 warps
# took 105 to 141, and a copy takes 90.
ONCE_ROWS, ONCE_COLUMNS, ONCE_PER_WARP, ONCE_AHEAD = 16, 128, 4096, 3
# Several values of such a tile at once share the registers of a thread: the gradient of a norm, of
# 8 whole rows of 1024, spilled 1,160 bytes on the 2 warps that a sum has (sm_90, ptxas).
# Read again: tiles so large that few groups are under way at a time, of which caches still hold the
# rows; but no larger than half of a group, whose other lanes are idle.  286 us instead of 327 for
# groups of 1024 rows, 234 instead of 252 (256 rows), 213 and 269 (64), 202 and 259 (16).
AGAIN_ROWS, AGAIN_PER_WARP = (16, 256), 1024
# Of whole rows, 64 numbers for each thread of up to 8 warps.  Of groups of 128 rows on average half
# a group by 16 warps takes 260 us instead of 339 (2026-11-27); of 1024 rows 453, and 8 warps 428.
WHOLE_ROWS, WHOLE_ELEMENTS, WHOLE_PER_WARP = (16, 128), 16384, 2048
# Numbers of rows of an odd length are read one by one, each by an address that takes two registers:
# 64 of them for each thread spilled 520 bytes (a layer norm of groups of 33 columns, sm_90).
ODD_ELEMENTS, ODD_PER_WARP = WHOLE_ELEMENTS // 2, WHOLE_PER_WARP // 2


def group_tile(problem: Problem) -> Tile | None:
    """The tile, or None where no rows of groups are reduced, or where products do."""
    ragged = [a.name for a in problem.ir.axes if a.kind == "tile" and problem.rises(a.name)]
    placed = scattered(problem.ir)  # the last row for a place stays: nothing is reduced
    ordered = any(problem.fact(a).kind == "ordered" and a not in placed for a in ragged)
    if not ordered or products(problem.ir) or any(not minor(problem.ir, a) for a in ragged):
        return None
    if len(ragged) == 1:
        elements = 2 * ONCE_PER_WARP
        per_warp = ONCE_PER_WARP // power_of_two(rows_alive(problem.ir, ragged[0]))
        return Tile(ONCE_COLUMNS, elements, per_warp, ONCE_AHEAD, ONCE_ROWS, most=2 * MOST)
    if not _columns(problem, frozenset(ragged)):
        rows = _rows(problem, ragged, *WHOLE_ROWS)
        if _odd(problem, frozenset(ragged)):
            return Tile(1, ODD_ELEMENTS, ODD_PER_WARP, rows=rows)
        times = 2 if _rows(problem, ragged, least=1, most=2 * WHOLE_ROWS[1]) <= WHOLE_ROWS[1] else 1
        return Tile(1, WHOLE_ELEMENTS * times, WHOLE_PER_WARP, rows=rows, most=MOST * times)
    least, most = AGAIN_ROWS
    rows = max(_rows(problem, ragged, least, 2 * most) // 2, least)
    columns = 64 if rows <= 32 else 32
    return Tile(columns, rows * columns, AGAIN_PER_WARP, rows=rows)


def _rows(problem: Problem, ragged: list[str], least: int, most: int) -> int:
    """Rows of a group on average, within bounds."""
    return max(min(rows_of(problem, problem.ir.axis(a), most) for a in ragged), least)


def _odd(problem: Problem, ragged: frozenset[str]) -> bool:
    """Whether rows of such tiles begin at no multiples of two numbers."""
    shapes = {t.name: t.shape for t in problem.ir.tensors}
    rows = (
        shapes[r.tensor]
        for r in problem.references
        if not isinstance(r.index[-1], At)
        and any(isinstance(i, Along) and i.axis in ragged for i in r.index[:-1])
    )
    return any(shape[-1] % 2 for shape in rows)


def _columns(problem: Problem, ragged: frozenset[str]) -> bool:
    """Whether tiles of rows are tiles of columns too."""
    shapes = (v.type.shape for v in every_expr(problem.ir.body))
    return any(isinstance(d, str) and d not in ragged for s in shapes if ragged & {*s} for d in s)
