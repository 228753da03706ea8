"""Tile: how much of rows a program reduces at a time, in loops without products."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 8  # warps


@dataclass(frozen=True)
class Tile:
    """Columns and elements of a tile at most, and how many elements a warp has.

    rows     at most, where they are those of groups
    axes     those along which rows are reduced, or written afterwards
    stages   one more than how many tiles ahead are copied
    most     warps at most
    """

    columns: int
    elements: int
    per_warp: int
    stages: int = 1
    rows: int = 1
    axes: frozenset[str] = frozenset()
    most: int = MOST

    def warps(self, elements: int) -> int:
        """Warps for a value of so many elements."""
        return min(max(elements // self.per_warp, 1), self.most)
