"""Tables as data: numbers that the lanes of a block get from a row of a table, each its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.ir import Type


@dataclass(frozen=True)
class Diagonals:
    """Numbers of a line: [i, j] is the one at `first` + j - i, in it or behind its ends."""

    line: Any
    first: Any
    type: Type


@dataclass(frozen=True)
class LaneGather:
    """Numbers of a table [1, n] at positions that are a block; those outside are at its ends."""

    table: Any
    place: Any
    type: Type
