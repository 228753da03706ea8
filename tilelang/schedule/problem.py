"""Problem: a kernel with what was proved of it, and where it uses its arrays, found once.

Whatever plans a kernel asks this, and walks no statement for it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from ..analysis.facts import AxisFact, Facts
from ..analysis.uses import IndexedSite, Use, cut, reads_memory, references, uses_of
from ..ir import Axis, BlockSize, Body, Dim, Expr, KernelIR, Loop, Stmt, Store, integers
from ..ir.traversal import definitions, dots, every_expr, every_loop, every_store, inlined, reduced
from ..passes.drop_unused import drop_unused
from .refusal import Refused, Rule
from .rows import InTile, as_tile


@dataclass(frozen=True, eq=False)
class Problem:
    """What every back end plans: a kernel and the facts that hold of it.

    rows     the loops that go through rows of a tile, for whoever cuts arrays into blocks of that
    settled  the loops of which no other form is tried any more
    """

    ir: KernelIR
    facts: Facts
    rows: Mapping[str, InTile] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()

    def axis(self, name: str) -> Axis:
        return self.ir.axis(name)

    def fact(self, axis: str) -> AxisFact:
        return self.facts.axis(axis)

    def bounds(self, axis: str) -> BlockSize | None:
        """What the author registered for the blocks of an axis."""
        return self.ir.block_size(self.ir.axis(axis))

    def rises(self, axis: str) -> tuple[str, ...]:
        """The axes around over which tiles never go back; those that cut no array begin again."""
        cuts = self.axis(axis).kind == "grid" or self.uses(axis)
        return self.fact(axis).rises if cuts else ()

    @cached_property
    def read(self) -> frozenset[str]:
        """The axes whose ranges memory holds, directly or by way of a local."""
        defined = definitions(self.ir.body)
        return frozenset(
            a.name
            for a in self.ir.axes
            if any(reads_memory(inlined(bound, defined)) for bound in (a.begin, a.end))
        )

    @cached_property
    def references(self) -> tuple[IndexedSite, ...]:
        """Every load and store, in program order."""
        return tuple(references(self.ir.body))

    @cached_property
    def _every_use(self) -> Mapping[str, tuple[Use, ...]]:
        return uses_of(self.ir, self.references, partial(as_tile, self.rows))

    @cached_property
    def _uses(self) -> Mapping[str, tuple[Use, ...]]:
        return {axis: cut(found) for axis, found in self._every_use.items()}

    def all_uses(self, axis: str) -> tuple[Use, ...]:
        """The dimensions that an axis indexes, at whatever offset."""
        return self._every_use.get(axis, ())

    def uses(self, axis: str) -> tuple[Use, ...]:
        """The dimensions that an axis cuts into tiles, in program order, without repeats."""
        return self._uses.get(axis, ())

    def shift(self, axis: str) -> Expr | None:
        """The offset at which arrays are cut into tiles of the axis, None if there is none.

        Tiles that cut no array count from where their range begins, wherever that is.
        """
        found, uses = self.axis(axis), self.uses(axis)
        written = [u for u in self.all_uses(axis) if u.written]
        stored = {u.offset for u in written}
        if len(stored) > 1:
            other = next(u.tensor for u in written if u.offset != written[0].offset)
            raise Refused(
                Rule.KERNEL,
                f"{found.user} says where outputs are stored, at {len(stored)} different offsets",
                found.loc,
                f"tiles of outputs are cut at one place: store to {other} in a loop of its own,"
                " over the same range",
            )
        if not uses and found.static is None and integers.value_of(found.begin) is None:
            return integers.sub(integers.const(0), found.begin)
        return next((u.offset for u in uses), None)

    def extent(self, axis: str) -> int:
        """The length of the dimension that a tile axis moves along.

        A range is longer where what it indexes is masked.
        """
        found, uses = self.axis(axis), self.uses(axis)
        if uses:
            by = 0 if uses[0].offset is None else integers.value_of(uses[0].offset)
            end = self.end(axis)
            ends = [end + by] if end is not None and by is not None else []
            return max([*ends, *(u.size for u in uses)])
        if found.max_extent is not None:
            return found.max_extent
        if found.static is not None:
            return found.static[1]
        raise Refused(
            Rule.KERNEL,
            f"{found.user} has no bound",
            found.loc,
            "give hl.tile(..., max_extent=) an upper bound",
        )

    def end(self, axis: str) -> int | None:
        """The position that a range ends at or before, where nothing but its length is unknown.

        Where arrays are not masked they end it, too.
        """
        found = self.axis(axis)
        if found.static is not None:
            return found.static[1]
        begin, by = integers.value_of(found.begin), self._left_at(axis)
        if found.max_extent is None or begin is None or by is None or begin + by < 0:
            return None
        return begin + found.max_extent

    def _left_at(self, axis: str) -> int | None:
        """The offset at which an axis leaves all arrays that it cuts, which are masked there."""
        uses = self.uses(axis)
        if not uses or not all(use.loose for use in uses):
            return None
        return 0 if uses[0].offset is None else integers.value_of(uses[0].offset)

    @cached_property
    def nests(self) -> tuple[Loop | None, ...]:
        """The top-level loops without stores to arrays of no elements; None if nothing is left."""
        return tuple(_without_empty(self.ir, loop) for loop in self.ir.body)

    @cached_property
    def stored(self) -> tuple[frozenset[str], ...]:
        """The tensors that each of them stores to."""
        found = (every_store((nest,)) if nest else () for nest in self.nests)
        return tuple(frozenset(s.tensor for s in each) for each in found)

    @cached_property
    def registered(self) -> tuple[tuple[str, ...], ...]:
        """Loops with the same block size of the author's."""
        every = [[a.name for a in self.ir.axes if a.block == b.name] for b in self.ir.blocks]
        return tuple(tuple(names) for names in every)

    @cached_property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Ragged loops in a row over one range, and over dimensions of one length.

        With equal blocks they see the same blocks of an array that all of them read.
        """
        bodies = [loop.body for loop in every_loop(self.ir.body)]
        found: dict[object, list[str]] = {}
        for number, body in enumerate(bodies):
            for axis in (self.axis(s.axis) for s in body if isinstance(s, Loop)):
                if axis.kind == "tile" and self.fact(axis.name).ragged:
                    key = (number, axis.begin, axis.end, self.extent(axis.name))
                    found.setdefault(key, []).append(axis.name)
        return tuple(tuple(names) for names in found.values() if len(names) > 1)

    @cached_property
    def contracted(self) -> frozenset[Dim]:
        """The dimensions that products sum along."""
        found = dots(every_expr(self.ir.body))
        return frozenset(arg.type.shape[dim] for dot in found for arg, dim in reduced(dot))


def _without_empty(ir: KernelIR, loop: Loop) -> Loop | None:
    def keep(stmt: Stmt) -> Body:
        match stmt:
            case Store(tensor) if 0 in ir.tensor(tensor).shape:
                return ()
            case Loop():
                return (replace(stmt, body=tuple(s for inner in stmt.body for s in keep(inner))),)
            case _:
                return (stmt,)

    left = drop_unused(keep(loop), ir.axes)
    (one,) = left or (None,)  # bounds of loops that are gone may be left
    return one if isinstance(one, Loop) and any(True for _ in every_store((one,))) else None
