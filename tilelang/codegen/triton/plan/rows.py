"""Rows: the tile in which long rows are reduced along their columns, by how often they are read.

    once, to several results   4 rows x 256 columns, one for each warp, so that no sum crosses warps
    once, to one               8 rows x 512 columns by 8 warps, the next tiles copied ahead
    several times              one row x 2048 columns by 8 warps: caches hold it to the end

The times were taken on an H100 (80 GB HBM3, torch 2.11.0, Triton 3.6.0, 2026-11-27) in bfloat16;
benchmarks/h100.json has them: a cross entropy of 8192 x 128256 795 us instead of 1107, sums of 256
x 1048576 203 instead of 251, a layer norm of 16384 x 4096 in three passes 100 instead of 188.
"""

from __future__ import annotations

from tilelang.ir import Loop, every_loop
from tilelang.schedule.problem import Problem

from .roles import minor, products
from .tile import Tile


def row_tile(problem: Problem) -> Tile | None:
    """The tile, or None where no tiles of a row's columns are reduced, or where products are."""
    if products(problem.ir):
        return None
    found = (_of_nest(problem, tuple(every_loop((nest,)))) for nest in problem.ir.body)
    return next(filter(None, found), None)


def _of_nest(problem: Problem, loops: tuple[Loop, ...]) -> Tile | None:
    tiles = [s for s in loops if problem.axis(s.axis).kind == "tile"]
    inner = [s for s in tiles if not any(isinstance(one, Loop) for one in s.body)]
    along = [s for s in inner if not minor(problem.ir, s.axis) and s.axis not in problem.read]
    carried = [len(s.carries) for s in along if s.carries]
    if not carried or len(inner) == len(tiles):
        return None
    axes = frozenset(s.axis for s in along)
    if len(along) > 1:
        return Tile(2048, 2048, 256, axes=axes)
    return Tile(256, 1024, 256, axes=axes) if carried[0] > 1 else Tile(512, 4096, 512, 3, axes=axes)
