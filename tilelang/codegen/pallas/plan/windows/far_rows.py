"""Far rows: rows that an index array picks -> where the array lies that they are picked of.

    table[idx[tm] // 2, :]   ->   row i of the tile is row `idx[tm * block + i] // 2` of the table

A small array is a block in vector memory; a large one stays where it is, and its rows are copied.
"""

from __future__ import annotations

from tilelang.codegen.pallas.target import Target, stays, whole_lanes
from tilelang.ir import Gather, Index, Span
from tilelang.language.dtypes import itemsize

from .types import ByIndex, ByTile, Fetched, Whole, WindowDim, extent_of


def picked_dims(
    near: tuple[WindowDim, ...],
    far: tuple[WindowDim, ...],
    index: tuple[Index, ...],
    shape: tuple[int, ...],
    dtype: str,
    target: Target,
    stored: bool,
) -> tuple[WindowDim, ...]:
    """How an array whose rows are picked is cut: as a block (`near`), or row by row (`far`).

    A block of an array that is `stored` to may be larger: rows that lie far away are copied in
    turns, and rows of narrow types with those beside them, both ways.
    """
    at = next(d for d, entry in enumerate(index) if isinstance(entry, Gather))
    tile = target.rows(itemsize(dtype)) if len(near) - at == 2 else 1
    rounded = tile if tile > target.sublanes else 1  # a row of 32-bit values is read alone
    unit = {target.sublanes: 1, 2 * target.sublanes: target.sublanes}.get(tile, tile)
    # an array in HBM has tiles of 8 rows for 16-bit types, too
    block = (*near[:at], Whole(-(-shape[at] // rounded) * rounded), *near[at + 1 :])
    single = (*far[:at], Fetched(unit), *far[at + 1 :])
    held = tuple(b for b in (extent_of(d) for d in block) if b is not None)
    parts = _parts_can_move(index, at, shape, stored, target)
    if stays(held, dtype, target, stored) or not parts or not _can_copy(single, at, shape, target):
        return block
    return single


def _parts_can_move(
    index: tuple[Index, ...], at: int, shape: tuple[int, ...], stored: bool, target: Target
) -> bool:
    """Whether a static part of rows can be copied: of their last dimension, in whole tiles.

    More than the part may be read, but not stored.
    """
    for d, entry in enumerate(index):
        if isinstance(entry, Span) and d != at and (entry.start, entry.stop) != (0, shape[d]):
            cut = whole_lanes(entry, shape[d], target)
            if d != len(index) - 1 or (stored and cut != (entry.start, entry.stop)):
                return False
    return True


def _can_copy(dims: tuple[WindowDim, ...], at: int, shape: tuple[int, ...], target: Target) -> bool:
    """Whether rows can be copied on their own: copies take whole register tiles of the array."""
    if len(dims) - at < 2 or (len(dims) - at == 2 and shape[at] < 2 * target.sublanes):
        return False
    for d, dim in enumerate(dims):
        if isinstance(dim, ByTile) and shape[d] % dim.block:
            return False
        if d != at and not isinstance(dim, ByTile | ByIndex | Whole):
            return False
        if isinstance(dim, Whole) and dim.block != shape[d]:
            return False
    return True
