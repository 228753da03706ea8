"""Measured ranges: numbers of vectors that a range is made of -> a loop of their own before it.

    for b in grid(8):                              for b_1 in grid(8):
        for t in tile(0, max(lens[b, 0:4])):           t_measure[b_1] = max(lens[b_1, 0:4])
            ...                             ->     for b in grid(8):
                                                       for t in tile(0, t_measure[b]):
                                                           ...

TPUs take ranges, and which steps there are, from scalar memory, where nothing is computed from
vectors.  An `if` around a loop is a range by now, so it is measured in the same way.  What goes by
a tile, by what a loop carries or stores, or by a ragged loop around stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tilelang import ir
from tilelang.ir import Apply, At, Axis, Body, Expr, GridIndex, KernelIR, Load, Loop, Store, Tensor
from tilelang.ir.integers import INT, const
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import definitions, inlined, loads, map_range, rebuilding, rewrite, walk
from tilelang.language.build import binary, cast
from tilelang.passes.drop_unused import drop_unused


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
        body += (*found.loops, nest)
        tensors += found.tensors
        axes |= {a.name: a for a in found.axes}
    if not tensors:
        return kernel
    every = tuple(axes.values())
    left = drop_unused(tuple(body), every)  # names that ranges alone read
    nests = tuple(loop for loop in left if isinstance(loop, Loop))
    return replace(kernel, tensors=(*kernel.tensors, *tensors), axes=every, body=nests)


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
class _Measures:
    """What the ranges of one nest are measured by: loops before it, which store to new arrays."""

    kernel: KernelIR
    stored: set[str]
    taken: set[str]
    known: dict[Expr, Expr] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)

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
        index, tensor = At(GridIndex(axis.name)), self.kernel.tensor
        sizes = [
            size
            for load in loads(expr)
            for entry, size in zip(load.index, tensor(load.tensor).shape, strict=True)
            if entry == index
        ]
        return (0, min(sizes)) if sizes else None

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
                    if along or self.kernel.root(tensor) in self.stored:
                        return False
                case _:
                    pass
        return True

    def _stored(self, axis: Axis, around: Mapping[str, tuple[int, int]], expr: Expr) -> Expr:
        """A load of what a loop of its own stores, which goes over these ranges."""
        own = [self._grid(axis, *ends, name) for name, ends in around.items()]
        renamed = dict(zip(around, own, strict=True))
        own = own or [self._grid(axis, 0, 1, f"{axis.user}_once")]
        value = rewrite(expr, lambda e: renamed[e.axis] if isinstance(e, GridIndex) else None)
        shape = tuple(max(1, end) for _, end in around.values()) or (1,)
        name = take(f"{axis.user}_measure", self.taken)
        self.tensors.append(Tensor(name, shape, "int32", "output", axis.loc))
        body: Body = (Store(name, tuple(map(At, own)), cast(value, "int32", axis.loc), axis.loc),)
        for index in reversed(own):
            body = (Loop(index.axis, body, (), axis.loc),)
        self.loops.extend(loop for loop in body if isinstance(loop, Loop))
        at = tuple(At(GridIndex(n)) for n in around) or (At(const(0)),)
        load: Expr = Load(name, at, INT, loc=axis.loc)
        return load if expr.type.dtype == "int32" else binary("ne", load, 0, axis.loc)

    def _grid(self, axis: Axis, begin: int, end: int, wish: str) -> GridIndex:
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
