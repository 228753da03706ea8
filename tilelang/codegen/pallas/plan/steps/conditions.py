"""Conditions as data: in which steps a section of the body runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilelang.codegen.pallas.plan.rewriting import said
from tilelang.codegen.pallas.plan.windows.types import Number
from tilelang.ir import Apply
from tilelang.ir.text import expression

OTHERWISE = {"lt": "ge", "le": "gt"}


@dataclass(frozen=True)
class AtDim:
    """The grid dimension of `axis` is at its first (or last) iteration."""

    axis: str
    end: Literal["first", "last"]


@dataclass(frozen=True)
class Turns:
    """One of the numbers of a block differs from the step before, or there is none.

    That is the row before of the step table, or the iteration before of grid dimension `axis`.
    """

    numbers: tuple[Number, ...]
    axis: str | None = None


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
    """The position that a block's number is made of, which goes up by one, is the block's first.

    first: so is that of the first iteration of grid dimension `axis`, wherever it is.
    """

    axis: str
    number: Number
    first: bool


@dataclass(frozen=True)
class Runs:
    """The tile of `axis` holds a position of its range (or the index lies in it)."""

    axis: str


@dataclass(frozen=True)
class Clear:
    """All of some comparisons hold, with which no mask leaves out a lane; else: not all do."""

    limits: tuple[Apply, ...]
    clear: bool = True

    @property
    def tests(self) -> tuple[Apply, ...]:
        """What holds: all of it, or else any of it."""
        if self.clear:
            return self.limits
        return tuple(replace(limit, op=OTHERWISE[limit.op]) for limit in self.limits)

    def __str__(self) -> str:
        limits = " & ".join(expression(said(limit)) for limit in self.limits)
        return f"no mask in steps where {limits}: every lane is meant, and they have a body without"


@dataclass(frozen=True)
class Back:
    """All of the tests hold, of the block of a window that was shown before, and left.

    `rows` of it come back, in its dimension number `place`.
    """

    ref: str
    tests: tuple[Apply, ...]
    place: int
    rows: int


Condition = AtDim | Turns | Ends | InPhase | Enters | RowStarts | Runs | Clear | Back
