"""Facts: what is true of a kernel, whatever the device.  Data only; the proofs are beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import Loc
from ..ir import Along, Expr

AxisKind = Literal["parallel", "ordered"]


@dataclass(frozen=True)
class AxisFact:
    """What is known of one loop axis.

    kind       parallel: iterations may run in any order; ordered: they may not
    why        the sentence that says why; used verbatim in explain(), errors and comments
    carries    user names of the values that are passed from one iteration to the next
    depends    outer axes that begin or end depend on (through loads too)
    ragged     begin or end is read from memory or depends on an outer axis
    disjoint   the outer axis over which its ranges rise and never overlap, given that the offsets
               are sorted (ranges [offsets[g], offsets[g + 1])); None if that was not proved.  When
               every access is `x[start + t.index]` these are the ranges moved by start
    nonempty   proved to run at least once whenever the enclosing loops run
    limit      of hl.grid: what the plan keeps the index below, whatever was read from memory
    independent  parallel, and proved so for iterations with different enclosing indices too: the
               axis may be moved outside of the loops around it
    """

    name: str
    kind: AxisKind
    why: str
    carries: tuple[str, ...]
    depends: tuple[str, ...]
    ragged: bool
    disjoint: str | None
    nonempty: bool
    independent: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class PositionFact:
    """Whether a scalar index lies in a dimension of `size` positions.

    kind   proved: in every step, whatever tensors hold; refused: it certainly leaves the dimension;
           dynamic: neither, so that loads are clamped and stores left out where it does
    why    the numbers that this rests on
    hint   what to write instead, where it is refused
    """

    expr: Expr
    size: int
    kind: Literal["proved", "dynamic", "refused"]
    why: str
    hint: str
    loc: Loc | None


@dataclass(frozen=True)
class StoreFact:
    """What is known of one plain store.

    varies  tile axes around it that neither the index nor a carry depends on, although the value
            depends on which positions one of their tiles covers
    """

    tensor: str
    varies: tuple[str, ...]
    loc: Loc


@dataclass(frozen=True)
class OutputFact:
    """What is known of the stores to one tensor.

    covered  every element is certainly written, so that its initial value is never seen
    """

    tensor: str
    covered: bool


@dataclass(frozen=True)
class Leaving:
    """A tile that was not proved to lie in its dimension of `size`: on which sides it may not."""

    index: Along
    size: int
    before: bool
    behind: bool


@dataclass(frozen=True)
class Facts:
    """Everything that analysis proved about one KernelIR.

    `sorted` names the tensors that the proofs take to be non-decreasing: those that give a range
    [T[e], T[e + 1]).
    """

    axes: tuple[AxisFact, ...]
    outputs: tuple[OutputFact, ...]
    positions: tuple[PositionFact, ...]
    stores: tuple[StoreFact, ...]
    sorted: tuple[str, ...] = ()
    leaving: tuple[Leaving, ...] = ()

    def axis(self, name: str) -> AxisFact:
        return next(a for a in self.axes if a.name == name)

    def stays_inside(self, expr: Expr, size: int) -> bool:
        """Whether a scalar index was proved to lie in a dimension of that size."""
        proved = (p for p in self.positions if p.kind == "proved")
        return any((p.expr, p.size) == (expr, size) for p in proved)

    def output(self, tensor: str) -> OutputFact:
        return next(o for o in self.outputs if o.tensor == tensor)
