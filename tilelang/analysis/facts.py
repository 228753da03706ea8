"""Facts: what is true of a kernel, whatever the device.  Data only; `str` of it is a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import indent
from typing import Literal

import sympy

from ..errors import Loc
from ..ir import Along, Expr
from ..ir.text import expression, position

AxisKind = Literal["parallel", "ordered"]


@dataclass(frozen=True)
class Interval:
    """begin <= position < end of a tile axis, as sympy expressions over outer axes and loads.

    A scalar load such as offsets[g + 1] is the sympy function application offsets(g + 1); the
    begin and end of an outer tile `tq` are the symbols `tq.begin` and `tq.end`.
    """

    begin: sympy.Expr
    end: sympy.Expr

    def __str__(self) -> str:
        return f"[{self.begin}, {self.end})"


@dataclass(frozen=True)
class AxisFact:
    """What is known of one loop axis.

    kind       parallel: iterations may run in any order; ordered: they may not
    why        the sentence that says why; used verbatim in explain(), errors and comments
    carries    user names of the values that are passed from one iteration to the next
    reduction  the associative op that combines the carry ("sum", "max", ...), or by which its
               iterations update the same elements of a tensor (hl.atomic_add); else None
    interval   its range
    extent     end - begin when it is a constant, else None
    depends    outer axes that begin or end depend on (through loads too)
    ragged     begin or end is read from memory or depends on an outer axis
    disjoint   the outer axis over which its ranges rise and never overlap, given that the offsets
               are sorted (ranges [offsets[g], offsets[g + 1])); None if that was not proved.  When
               every access is `x[start + t.index]` these are the ranges moved by start
    offsets    the tensors that its bounds read
    nonempty   proved to run at least once whenever the enclosing loops run
    limit      of hl.grid: what the plan keeps the index below, whatever was read from memory
    independent  parallel, and proved so for iterations with different enclosing indices too: the
               axis may be moved outside of the loops around it
    """

    name: str
    kind: AxisKind
    why: str
    carries: tuple[str, ...]
    reduction: str | None
    interval: Interval
    extent: int | None
    depends: tuple[str, ...]
    ragged: bool
    disjoint: str | None
    offsets: tuple[str, ...]
    nonempty: bool
    independent: bool = False
    limit: int | None = None

    def __str__(self) -> str:
        known = {
            f"{self.extent} positions": self.extent is not None,
            "ragged": self.ragged,
            f"depends on {_listed(self.depends)}": self.depends,
            f"reads {_listed(self.offsets)}": self.offsets,
            f"ranges disjoint over {self.disjoint}": self.disjoint,
            "may be empty": not self.nonempty,
            f"index kept below {self.limit}": self.limit is not None,
            "may move outside of the loops around it": self.independent,
        }
        lines = [f"{self.name}: {self.kind}, because {self.why}"]
        lines.append(
            "; ".join([f"    range {self.interval}", *(w for w, is_so in known.items() if is_so)])
        )
        if self.carries:
            lines.append(
                f"    carries {_listed(self.carries)} ({self.reduction or 'no reduction'})"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Access:
    """One array reference.

    map        one sympy expression per tensor dimension; None where a gather picks the position
    axes       one entry per dimension: the tile or grid axis that moves it alone, or None
    """

    tensor: str
    writes: bool
    map: tuple[sympy.Expr | None, ...]
    axes: tuple[str | None, ...]
    loc: Loc | None

    def __str__(self) -> str:
        places = ["rows" if place is None else str(place) for place in self.map]
        return f"{'written' if self.writes else 'read'} at [{', '.join(places)}]"


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

    def __str__(self) -> str:
        return f"{expression(self.expr)} of {self.size}: {self.kind}, {self.why}"


@dataclass(frozen=True)
class StoreFact:
    """What is known of one plain store.

    varies  tile axes around it that neither the index nor a carry depends on, although the value
            depends on which positions one of their tiles covers
    """

    tensor: str
    varies: tuple[str, ...]
    loc: Loc

    def __str__(self) -> str:
        if not self.varies:
            return f"{self.tensor}: the same whatever the blocks"
        return f"{self.tensor}: varies with the tiles of {_listed(self.varies)}"


@dataclass(frozen=True)
class OutputFact:
    """What is known of the stores to one tensor.

    covered    every element is certainly written, so that its initial value is never seen
    injective  axes in which the store was proved to touch disjoint elements
    revisited  axes over whose iterations the same elements are written again
    read       the kernel also reads this tensor
    """

    tensor: str
    covered: bool
    injective: tuple[str, ...]
    revisited: tuple[str, ...]
    read: bool

    def __str__(self) -> str:
        known = [
            "covered" if self.covered else "not covered",
            f"injective in {_listed(self.injective)}",
            f"revisited over {_listed(self.revisited)}",
        ]
        return f"{self.tensor}: {'; '.join([*known, *(['read, too'] if self.read else [])])}"


@dataclass(frozen=True)
class Leaving:
    """A tile that was not proved to lie in its dimension of `size`: on which sides it may not."""

    index: Along
    size: int
    before: bool
    behind: bool

    def __str__(self) -> str:
        sides = [s for s, leaves in (("before", self.before), ("behind", self.behind)) if leaves]
        return f"{position((self.index,))} may lie {' or '.join(sides)} the {self.size} positions"


@dataclass(frozen=True)
class WidthFact:
    """The largest element offset that an access can form, and whether it stays below 2**31."""

    tensor: str
    largest: int
    fits_int32: bool

    def __str__(self) -> str:
        return f"offsets up to {self.largest}{'' if self.fits_int32 else ', more than int32'}"


@dataclass(frozen=True)
class Facts:
    """Everything that analysis proved about one KernelIR.

    `sorted` names the tensors that the proofs take to be non-decreasing: those that give a range
    [T[e], T[e + 1]).
    """

    axes: tuple[AxisFact, ...]
    accesses: tuple[Access, ...]
    outputs: tuple[OutputFact, ...]
    widths: tuple[WidthFact, ...]
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

    def __str__(self) -> str:
        sections: dict[str, Iterable[object]] = {
            "axes": self.axes,
            "arrays": self._arrays(),
            "outputs": self.outputs,
            "positions": self.positions,
            "stores": self.stores,
            "tiles that may leave their arrays": self.leaving,
            "taken to be sorted": self.sorted,
        }
        pages = [
            "\n".join([title, *(indent(str(fact), "  ") for fact in facts)])
            for title, facts in sections.items()
            if facts
        ]
        return "\n\n".join(pages) + "\n"

    def _arrays(self) -> list[str]:
        """One text for each array: how large offsets in it get, and where it is accessed."""
        widths = {w.tensor: str(w) for w in self.widths}
        return [
            "\n    ".join(
                [
                    f"{tensor}: {widths.get(tensor, 'no offsets')}",
                    *dict.fromkeys(str(a) for a in self.accesses if a.tensor == tensor),
                ]
            )
            for tensor in dict.fromkeys(a.tensor for a in self.accesses)
        ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
