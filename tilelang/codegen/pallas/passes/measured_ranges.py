"""Measured ranges: numbers of vectors that a range is made of -> a loop of their own before it.

    for b in grid(8):                              for b_1 in grid(8):
        for t in tile(0, max(lens[b, 0:4])):           t_measure[b_1] = max(lens[b_1, 0:4])
            ...                             ->     for b in grid(8):
                                                       for t in tile(0, t_measure[b]):
                                                           ...

TPUs take ranges, where tiles lie and which steps there are from scalar memory, where nothing is
computed from vectors.  An `if` around a loop is a range by now, so it is measured in the same way,
and so is the offset of a tile, x[max(lens[b, 0:4]) + t].  What goes by a tile, by what a loop
carries or stores, or by a ragged loop around stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tilelang import ir
from tilelang.ir import Apply, At, Axis, Body, Expr, GridIndex, KernelIR, Load, Loop, Store, Tensor
from tilelang.ir.integers import INT, const
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import (
    definitions,
    inlined,
    loads,
    map_children,
    map_range,
    map_stmt,
    rebuilding,
    rewrite,
    walk,
)
from tilelang.language.build import binary, cast
from tilelang.passes.drop_unused import used

Around = tuple[int, tuple[tuple[str, tuple[int, int]], ...]]  # how many before it; axis -> range


def measured_ranges(kernel: KernelIR) -> KernelIR:
    """The kernel whose ranges are made of numbers in memory, as far as they can be."""
    values = definitions(kernel.body)
    axes = {a.name: a for a in kernel.axes}
    body: list[Loop] = []
    tensors: list[Tensor] = []
    taken = names_in(kernel)
    for nest in kernel.body:
        found = _Measures(kernel, kernel.stored((nest,)), taken)
        for axis, outer in _within(kernel, nest):
            full = map_range(axis, partial(inlined, values=values))
            made = map_range(full, rebuilding(partial(found.measured, axis, outer)))
            axes[axis.name] = axis if made == full else made
        moved = _Offsets(kernel, values, found).nest(nest, ())
        body += (*found.loops(), moved)
        tensors += found.tensors.values()
        axes |= {a.name: a for a in found.axes}
    if not tensors:
        return kernel
    every = (*kernel.tensors, *tensors)
    made = replace(kernel, tensors=every, axes=tuple(axes.values()), body=tuple(body))
    return used(made)  # some names ranges alone read


def _within(
    kernel: KernelIR, loop: Loop, outer: tuple[Axis, ...] = ()
) -> Iterator[tuple[Axis, tuple[Axis, ...]]]:
    """Every axis of a nest, with those around it."""
    axis = kernel.axis(loop.axis)
    yield axis, outer
    for stmt in loop.body:
        if isinstance(stmt, Loop):
            yield from _within(kernel, stmt, (*outer, axis))


@dataclass(frozen=True)
class _Offsets:
    """The offsets of tiles in a nest, as far as they can be measured."""

    kernel: KernelIR
    values: Mapping[str, Expr]
    found: _Measures

    def nest(self, loop: Loop, outer: tuple[Axis, ...]) -> Loop:
        """The loop with the offsets of everything in it."""
        inside = (*outer, self.kernel.axis(loop.axis))
        value, entry = partial(self._read, outer=inside), partial(self._moved, outer=inside)
        body = tuple(
            self.nest(stmt, inside) if isinstance(stmt, Loop) else map_stmt(stmt, value, entry)
            for stmt in loop.body
        )
        carries = tuple(replace(c, next=value(c.next)) for c in loop.carries)
        return replace(loop, body=body, carries=carries)

    def _read(self, expr: Expr, outer: tuple[Axis, ...]) -> Expr:
        inner = map_children(expr, partial(self._read, outer=outer))
        if not isinstance(inner, Load):
            return inner
        return replace(inner, index=tuple(self._moved(e, outer) for e in inner.index))

    def _moved(self, entry: ir.Index, outer: tuple[Axis, ...]) -> ir.Index:
        if not isinstance(entry, ir.Along) or entry.offset is None:
            return entry
        full = inlined(entry.offset, self.values)
        axis = self.kernel.axis(entry.axis)
        made = rebuilding(partial(self.found.measured, axis, outer))(full)
        return entry if made == full else replace(entry, offset=made)


@dataclass(frozen=True)
class _Measures:
    """What the ranges of one nest are measured by: loops before it, which store to new arrays.

    One loop stores all that goes over the same ranges, but what is made of other such numbers.
    """

    kernel: KernelIR
    stored: set[str]
    taken: set[str]
    known: dict[Expr, Expr] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    axes: list[Axis] = field(default_factory=list)
    own: dict[Around, list[GridIndex]] = field(default_factory=dict)
    stores: dict[Around, list[Store]] = field(default_factory=dict)

    def measured(self, axis: Axis, outer: Sequence[Axis], expr: Expr) -> Expr | None:
        """The number in memory that an integer or a bool of vectors becomes."""
        if expr.type.rank or expr.type.dtype not in ("int32", "bool") or not _of_vectors(expr):
            return None
        if expr not in self.known:
            ranges = {a.name: self._range(a, expr) for a in outer if a.kind == "grid"}
            around = {n: r for n, r in ranges.items() if r and GridIndex(n) in walk(expr)}
            if not self._alone(expr, around):
                return None
            self.known[expr] = self._stored(axis, around, expr)
        return self.known[expr]

    def _range(self, axis: Axis, expr: Expr) -> tuple[int, int] | None:
        """The indices of a loop; of one that memory ends, all that what is asked for has."""
        if axis.static is not None:
            return axis.static
        index = At(GridIndex(axis.name))
        sizes = [
            size
            for load in loads(expr)
            for entry, size in zip(load.index, self._tensor(load.tensor).shape, strict=True)
            if entry == index
        ]
        return (0, min(sizes)) if sizes else None

    def _tensor(self, name: str) -> Tensor:
        return self.tensors.get(name) or self.kernel.tensor(name)

    def _alone(self, expr: Expr, around: Collection[str]) -> bool:
        """Whether an expression is made of arrays that stay as they are, and of these indices."""
        for part in walk(expr):
            match part:
                case ir.Var() | ir.TileIndex() | ir.TileScalar():
                    return False
                case GridIndex(axis) if axis not in around:
                    return False
                case Load(tensor, index):
                    along = any(isinstance(entry, ir.Along) for entry in index)
                    if along or self._changes(tensor):
                        return False
                case _:
                    pass
        return True

    def _changes(self, tensor: str) -> bool:
        return tensor not in self.tensors and self.kernel.root(tensor) in self.stored

    def _stored(self, axis: Axis, ranges: Mapping[str, tuple[int, int]], expr: Expr) -> Expr:
        """A load of what a loop of its own stores, which goes over these ranges."""
        made = {load.tensor for load in loads(expr)} & self.tensors.keys()
        before = [n for (n, _), own in self.stores.items() if made & {s.tensor for s in own}]
        depth = max(before, default=-1) + 1
        around = (depth, tuple(ranges.items()))
        if around not in self.stores:
            wishes = [(name, *ends) for name, ends in ranges.items()]
            self.own[around] = [
                self._grid(axis, *wish) for wish in wishes or [(f"{axis.user}_once", 0, 1)]
            ]
        own = self.own[around]
        renamed = dict(zip(ranges, own, strict=False))
        value = rewrite(expr, lambda e: renamed[e.axis] if isinstance(e, GridIndex) else None)
        shape = tuple(max(1, end) for _, end in ranges.values()) or (1,)
        name = take(f"{axis.user}_measure", self.taken)
        self.tensors[name] = Tensor(name, shape, "int32", "output", axis.loc)
        store = Store(name, tuple(map(At, own)), cast(value, "int32", axis.loc), axis.loc)
        self.stores.setdefault(around, []).append(store)
        at = tuple(At(GridIndex(n)) for n in ranges) or (At(const(0)),)
        load: Expr = Load(name, at, INT, loc=axis.loc)
        return load if expr.type.dtype == "int32" else binary("ne", load, 0, axis.loc)

    def loops(self) -> Iterator[Loop]:
        """Those that store what was measured, each behind what it reads."""
        for around, stores in sorted(self.stores.items(), key=lambda each: each[0][0]):
            body: Body = tuple(stores)
            for index in reversed(self.own[around]):
                body = (Loop(index.axis, body, (), stores[0].loc),)
            yield from (loop for loop in body if isinstance(loop, Loop))

    def _grid(self, axis: Axis, wish: str, begin: int, end: int) -> GridIndex:
        """The index of a new loop."""
        name, extent = take(wish, self.taken), max(0, end - begin)
        self.axes.append(Axis(name, "grid", const(begin), const(end), extent, None, axis.loc, wish))
        return GridIndex(name)


def _of_vectors(expr: Expr) -> bool:
    """Whether a number is made of a vector's: a sum, its greatest, where that is."""
    return any(
        isinstance(part, Apply) and not part.type.rank and any(a.type.rank for a in part.args)
        for part in walk(expr)
    )
