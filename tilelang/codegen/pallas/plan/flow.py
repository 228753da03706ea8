"""Flow: how whole arrays come, and go, in pieces of their rows.  Data only.

Pieces that are used are waited for by steps, or, where there is one step, by turns of its loops.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from tilelang.ir import Expr, Var
from tilelang.ir.integers import INT

from .physical import PExpr

HERE = Var("flow.here", INT)  # how many pieces are here
GONE = Var("flow.gone", INT)  # how many have gone, or are on their way
REACH = Var("flow.reach", INT)  # how many pieces a step is at, or before
BACK = Var("flow.back", INT)  # the first piece that it uses
LOW = Var("flow.low", INT)  # where the rows begin that are used, and where they end, of
HIGH = Var("flow.high", INT)  # several iterations


@dataclass(frozen=True)
class Comes:
    """What is waited for.

    lacks, reach  whether pieces that are used are not here, and which are after the wait
    here          how many there are then
    """

    lacks: PExpr
    reach: PExpr
    here: Expr


@dataclass(frozen=True)
class Goes:
    """What goes.

    passed, left  whether more pieces are left behind than had gone, and how many those are
    gone          how many there are then
    """

    passed: PExpr
    left: PExpr
    gone: Expr


@dataclass(frozen=True)
class Again:
    """What had gone before a step that changes it.

    back, again  the first piece that it uses, and whether that has gone
    early        the same before it is known which piece that is
    """

    back: PExpr
    again: PExpr
    early: PExpr


def _exprs(*parts: Comes | Goes | Again | None) -> tuple[PExpr, ...]:
    """Everything that is computed for these, in the order of their fields."""
    return tuple(getattr(p, f.name) for p in parts if p is not None for f in fields(p))


@dataclass(frozen=True)
class Turn:
    """What a turn of the loop over `axis` waits for, and what goes behind it."""

    axis: str
    comes: Comes | None
    goes: Goes | None

    @property
    def exprs(self) -> tuple[PExpr, ...]:
        """Everything that a turn computes for it."""
        return _exprs(self.comes, self.goes)


@dataclass(frozen=True)
class ByStep:
    """What each step waits for, and what goes behind it.

    ends  where the rows begin and end that one iteration uses, if a step has several
    """

    comes: Comes
    goes: Goes
    again: Again
    ends: tuple[Expr, ...] = ()

    @property
    def exprs(self) -> tuple[PExpr, ...]:
        """Everything that a step computes for it."""
        return (*self.ends, *_exprs(self.comes, self.again, self.goes))


@dataclass(frozen=True)
class Flow:
    """Whole arrays come, and go, in pieces of their rows, while something is computed.

    rows, pieces  of a piece, and how many there are
    step, turns   who waits for them: every step, or turns of loops in the only one
    """

    rows: int
    pieces: int
    step: ByStep | None
    turns: tuple[Turn, ...] = ()

    def turn(self, axis: str) -> Turn | None:
        return next((t for t in self.turns if t.axis == axis), None)
