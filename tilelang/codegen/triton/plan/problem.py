"""Prepared: a kernel while it is planned for one GPU, and what is asked of it again and again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilelang.analysis.facts import Facts
from tilelang.analysis.masks import masked_reads
from tilelang.analysis.uses import references
from tilelang.codegen.triton.passes.pad_dims import Padded, least, power_of_two
from tilelang.ir import (
    Along,
    Apply,
    Axis,
    Const,
    Dim,
    Expr,
    Gather,
    GridIndex,
    KernelIR,
    Load,
    Scalar,
    TileScalar,
    every_expr,
    integers,
)
from tilelang.ir.intervals import ANYTHING, Interval, interval
from tilelang.ir.traversal import definitions, inlined


@dataclass(frozen=True, eq=False)
class Prepared:
    """The kernel after the passes, its facts, its blocks, and its dimensions of odd length."""

    ir: KernelIR
    facts: Facts
    blocks: Mapping[str, int]
    padded: Mapping[str, Padded]

    @cached_property
    def defined(self) -> dict[str, Expr]:
        """Assigned name -> value."""
        return definitions(self.ir.body)

    @cached_property
    def summed(self) -> Mapping[Dim, int]:
        """Dimensions that products sum along, before they are those of the hardware and after.

        With the lanes that they have at least.
        """
        every = every_expr(self.ir.body)
        found: dict[Dim, int] = {}
        for e in (e for e in every if isinstance(e, Apply) and e.op in ("dot", "multiply")):
            dim = e.args[0].type.shape[-1 if e.op == "multiply" else e.attr("contract")[0]]
            found[dim] = max(least(e), found.get(dim, 1))
        return found

    @cached_property
    def reduced(self) -> frozenset[Dim]:
        """Dimensions that an operation runs along: sums, products, extremes.

        Its operand has such a dimension once more than its result; a product of weights [t, t]
        with rows [t, :] has t in its result, too, and of two operands [t, t] as often.
        """
        every = (e for e in every_expr(self.ir.body) if isinstance(e, Apply))
        over = (Counter(a.type.shape) - Counter(e.type.shape) for e in every for a in e.args)
        return frozenset(self.summed).union(*over)

    def step(self, axis: str) -> int:
        """Positions that a tile of the axis advances by."""
        found = self.ir.axis(axis)
        return self.blocks[axis] if found.kind == "tile" else 1

    def lanes(self, axis: str) -> int:
        """How many lanes a tile of the axis is wide."""
        return max(power_of_two(self.step(axis)), self.summed.get(axis, 1))

    def width(self, dim: Dim) -> int:
        """How many lanes a dimension of a value has."""
        if isinstance(dim, int):
            return dim
        return self.padded[dim].lanes if dim in self.padded else self.lanes(dim)

    def named(self, size: int) -> Dim:
        """The dimension of a static part of that many positions."""
        lengths = ((n, d.size) for n, d in self.padded.items() if n.isidentifier())
        return next((name for name, n in lengths if n == size), size)

    def is_partial(self, dim: Dim) -> bool:
        """Whether lanes of a dimension may lie outside of its range."""
        if isinstance(dim, int):
            return False
        if dim in self.padded:
            return self.padded[dim].size != self.padded[dim].lanes
        return self.step(dim) != self.lanes(dim) or not self.is_whole(dim)

    def is_whole(self, axis: str) -> bool:
        """Whether every tile of an axis ends in its range: steps divide its length, or both ends.

        Ends that leave 32 bits keep the powers of two that divide them, and no other number.
        """
        step, ends = self.step(axis), self.range(axis)
        length = integers.distance(*(inlined(b, self.defined) for b in ends))
        if length is not None and length % step == 0:
            return True
        return step == power_of_two(step) and all(self.is_multiple(b, step) for b in ends)

    def is_multiple(self, bound: Expr, of: int) -> bool:
        """Whether a bound is a multiple of a power of two, as edges of tiles of as many may be."""

        def edge(part: Expr) -> bool:
            if not isinstance(part, TileScalar) or part.what not in ("begin", "end"):
                return False
            ends = self.range(part.axis)
            ends = ends[:1] if part.what == "begin" or self.is_whole(part.axis) else ends
            divided = self.step(part.axis) % of == 0
            return divided and all(self.is_multiple(b, of) for b in ends)

        return integers.is_multiple(inlined(bound, self.defined), of, edge)

    @cached_property
    def partial(self) -> frozenset[str]:
        """All of those."""
        tiles = [a.name for a in self.ir.axes if a.kind == "tile"]
        return frozenset(d for d in (*tiles, *self.padded) if self.is_partial(d))

    # ------------------------------------------------------------ ranges

    @cached_property
    def _along(self) -> Mapping[str, tuple[tuple[Along, int], ...]]:
        """Axis -> its indices, each with the length of the dimension."""
        found: dict[str, dict[tuple[Along, int], None]] = {}
        for reference in references(self.ir.body):
            shape = self.ir.tensor(reference.tensor).shape
            for entry, size in zip(reference.index, shape, strict=True):
                if isinstance(entry, Along):
                    found.setdefault(entry.axis, {})[entry, size] = None
        return {axis: tuple(each) for axis, each in found.items()}

    def leaves(self, entry: Along, size: int) -> tuple[bool, bool]:
        """Whether lanes of a tile in range may lie before a dimension, and behind it."""
        axis = self.ir.axis(entry.axis)
        if entry.offset is not None and not isinstance(entry.offset, Const):
            return True, True  # whatever memory holds
        moved = 0 if entry.offset is None else int(entry.offset.value)
        low, high = axis.static or self.limits(entry.axis)
        return low + moved < 0, high + moved > size

    def lies_in(self, position: Expr, size: int) -> bool:
        """Whether every lane of a position lies in a dimension, as one that is clamped does."""
        low, high = interval(position, self._leaf)
        return low >= 0 and high < size

    def held(self, load: Load) -> Scalar | None:
        """What lanes outside of a range hold of a load; None if nothing is known.

        Each lane of a block reads the number of a table that its own position, which was kept
        inside, says: what is there is as good as anything, and no lane needs a mask.
        """
        shape = self.ir.tensor(load.tensor).shape
        looked_up = any(
            isinstance(e, Gather) and e.expr.type.rank > 1 and self.lies_in(e.expr, size)
            for e, size in zip(load.index, shape, strict=True)
        )
        return None if looked_up else masked_reads(load)

    def limits(self, axis: str) -> Interval:
        """What positions of an axis lie in, whatever memory holds: (least begin, largest end)."""
        begin, end = self.range(axis)
        low = interval(inlined(begin, self.defined), self._leaf)[0]
        return low, interval(inlined(end, self.defined), self._leaf)[1]

    def _leaf(self, expr: Expr) -> Interval:
        match expr:
            case TileScalar(axis, "begin" | "end"):
                return self.limits(axis)
            case TileScalar():
                return 0, math.inf
            case GridIndex(axis):
                low, high = self.limits(axis)
                return low, high - 1
            case _:
                return ANYTHING

    def range(self, axis: str) -> tuple[Expr, Expr]:
        """Where an axis begins and ends, kept inside of the arrays that it indexes as it is."""
        found = self.ir.axis(axis)
        if found.static is not None:
            return found.begin, found.end
        size = self._size(found)
        if size is None:
            return found.begin, self._short(found)
        low = interval(inlined(found.begin, self.defined), self._leaf)[0]
        high = interval(inlined(found.end, self.defined), self._leaf)[1]
        begin = found.begin if low >= 0 else integers.maximum(found.begin, 0)
        return begin, found.end if high <= size else integers.minimum(found.end, size)

    def _size(self, axis: Axis) -> int | None:
        """The length of the shortest dimension, if tiles never leave the arrays by intention."""
        if axis.kind == "grid":
            return self.facts.axis(axis.name).limit
        leaving = {(f.index, f.size) for f in self.facts.leaving}
        plain = [(e, n) for e, n in self._along.get(axis.name, ()) if e.offset is None]
        if not plain or any((Along(axis.name), n) in leaving for _, n in plain):
            return None
        return min(n for _, n in plain)

    def _short(self, axis: Axis) -> Expr:
        """The end, not further behind the begin than the author said."""
        bound = interval(inlined(axis.end, self.defined), self._leaf)[1]
        length = integers.distance(axis.begin, axis.end)
        bound = bound if length is None else length
        if axis.max_extent is None or bound <= axis.max_extent:
            return axis.end
        return integers.minimum(axis.end, integers.add(axis.begin, integers.const(axis.max_extent)))

    def trips(self, axis: str) -> int | None:
        """How many tiles or indices an axis has at most."""
        found = self.ir.axis(axis)
        extent = found.static[1] - found.static[0] if found.static else found.max_extent
        return None if extent is None else max(-(-extent // self.step(axis)), 0)
