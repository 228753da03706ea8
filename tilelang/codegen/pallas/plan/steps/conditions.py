"""Conditions as data: in which steps a section of the body runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AtDim:
    """The grid dimension of `axis` is at its first (or last) iteration."""

    axis: str
    end: Literal["first", "last"]


@dataclass(frozen=True)
class Turns:
    """A table column differs from the step before, or there is none.

    `packed` maps a column to the rows that share a block: there the block number must differ.
    """

    columns: tuple[str, ...]
    packed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Ends:
    """The step is the first (or last) of the loops over `inner`, within one iteration of `outer`.

    Both are columns of the step table.
    """

    outer: tuple[str, ...]
    inner: tuple[str, ...]
    end: Literal["first", "last"]


@dataclass(frozen=True)
class InPhase:
    """The step is one of loop number `phase` of the loops in a row."""

    phase: int


@dataclass(frozen=True)
class Enters:
    """The step is the first of loop `phase` or of a later one, in one iteration of `outer`.

    The loop itself may have no step.
    """

    outer: tuple[str, ...]
    phase: int


@dataclass(frozen=True)
class RowStarts:
    """The index of a grid dimension is the first of its block of `rows`."""

    axis: str
    rows: int


@dataclass(frozen=True)
class Runs:
    """The tile of `axis` holds a position of its range (or the index lies in it)."""

    axis: str


Condition = AtDim | Turns | Ends | InPhase | Enters | RowStarts | Runs
