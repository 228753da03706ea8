"""Measures: numbers of vectors that loops of their own store to memory, before a nest that asks.

TPUs take ranges, positions, and which steps there are from scalar memory, where nothing is computed
from vectors.  What is made of what a loop carries or stores stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from tilelang import ir
from tilelang.analysis.uses import of_vectors
from tilelang.ir import (
    Along,
    At,
    Axis,
    Body,
    Expr,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Store,
    Tensor,
    integers,
)
from tilelang.ir.integers import const
from tilelang.ir.names import names_in, renamed, take
from tilelang.ir.traversal import loads, map_children, map_index, map_range, map_stmt, rewrite, walk
from tilelang.language.build import binary, cast
from tilelang.passes.drop_unused import used

Ranges = tuple[tuple[str, tuple[int, int]], ...]  # axis -> its range
Around = tuple[int, Ranges, str]  # how many loops are before it; the loop over groups, "" if none
Change = Callable[[Load | Store, tuple[Axis, ...]], tuple[ir.Index, ...]]


def measuring(
    kernel: KernelIR, change: Callable[[Measures, Loop], tuple[Loop, Sequence[Axis]]]
) -> KernelIR:
    """The kernel with nests that ask for numbers in memory, behind the loops that store those.

    change  measures of a nest, the nest -> what it becomes, and axes that become others
    """
    axes = {a.name: a for a in kernel.axes}
    body: list[Loop] = []
    tensors: list[Tensor] = []
    taken = names_in(kernel)
    for nest in kernel.body:
        measures = Measures(kernel, kernel.stored((nest,)), taken)
        moved, others = change(measures, nest)
        body += (*measures.loops(), moved)
        tensors += measures.tensors.values()
        axes |= {a.name: a for a in (*others, *measures.axes)}
    if not tensors:
        return kernel
    every = (*kernel.tensors, *tensors)
    made = replace(kernel, tensors=every, axes=tuple(axes.values()), body=tuple(body))
    return used(made)  # some names what is measured alone read


def map_sites(kernel: KernelIR, nest: Loop, change: Change) -> Loop:
    """The nest with other indices: what `change` says of each load and store, and its loops."""

    def read(expr: Expr, around: tuple[Axis, ...]) -> Expr:
        inner = map_children(expr, partial(read, around=around))
        if not isinstance(inner, Load):
            return inner
        return replace(inner, index=change(inner, around))

    def statement(stmt: ir.Stmt, around: tuple[Axis, ...]) -> ir.Stmt:
        if isinstance(stmt, Loop):
            return within(stmt, around)
        value = partial(read, around=around)
        made = map_stmt(stmt, value, partial(map_index, fn=value))
        return replace(made, index=change(made, around)) if isinstance(made, Store) else made

    def within(loop: Loop, around: tuple[Axis, ...]) -> Loop:
        inside = (*around, kernel.axis(loop.axis))
        body = tuple(statement(stmt, inside) for stmt in loop.body)
        carries = tuple(replace(c, next=read(c.next, inside)) for c in loop.carries)
        return replace(loop, body=body, carries=carries)

    return within(nest, ())


@dataclass(frozen=True)
class Measures:
    """What one nest asks for: loops before it, which store to new arrays.

    One loop stores all that goes over the same ranges, but what is made of other such numbers.
    """

    kernel: KernelIR
    stored: set[str]
    taken: set[str]
    known: dict[_Measure, Expr | None] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    axes: list[Axis] = field(default_factory=list)
    own: dict[Around, list[Axis]] = field(default_factory=dict)
    stores: dict[Around, list[Store]] = field(default_factory=dict)

    def number(self, axis: Axis, around: Sequence[Axis], expr: Expr) -> Expr | None:
        """What an integer or a bool that is made of vectors is in memory; `axis` has asked."""
        if expr.type.rank or expr.type.dtype not in ("int32", "bool") or not of_vectors(expr):
            return None
        grids = tuple(a for a in around if a.kind == "grid")
        return self._measured(_Measure(axis, grids, expr, None))

    def rows(self, around: Sequence[Axis], expr: Expr) -> Expr | None:
        """What the numbers of a tile's rows are in memory, at which the tile may be moved."""
        tiles = [a for a in around if a.kind == "tile" and expr.type.shape == (a.name,)]
        every = {e for load in loads(expr) for e in load.index if isinstance(e, Along)}
        if not tiles or expr.type.dtype != "int32" or len(every) > 1:
            return None
        here = Along(tiles[0].name)
        along = next(iter(every), here)
        moved = along.offset is not None
        if moved and any(isinstance(part, ir.TileIndex) for part in walk(expr)):
            return None
        plain = rewrite(expr, partial(_unmoved, along=along))
        grids = [] if moved or tiles[0].static is None else [a for a in around if a.kind == "grid"]
        asked = _Measure(tiles[0], (*grids, tiles[0]), plain, along)
        made, group = self._measured(asked), None if moved else _groups(tiles[0], around)
        if made is not None or group is None:
            return made
        return self._measured(replace(asked, group=group))

    def loops(self) -> Iterator[Loop]:
        """Those that store what was measured, each behind what it reads."""
        for around, stores in sorted(self.stores.items(), key=lambda each: each[0][0]):
            body: Body = tuple(stores)
            for axis in reversed(self.own[around]):
                body = (Loop(axis.name, body, (), stores[0].loc),)
            yield from (loop for loop in body if isinstance(loop, Loop))

    def _measured(self, asked: _Measure) -> Expr | None:
        if asked not in self.known:
            ranges = {a.name: self._range(a, asked) for a in asked.around}
            around = {n: r for n, r in ranges.items() if r and asked.goes_by(n)}
            by = {*around, asked.group.name} if asked.group is not None else around
            alone = self._alone(asked.expr, by)
            self.known[asked] = self._stored(asked, around) if alone else None
        return self.known[asked]

    def _range(self, axis: Axis, asked: _Measure) -> tuple[int, int] | None:
        """The positions of a loop; of one that memory ends, all that what is asked for has."""
        moved = asked.along is not None and asked.along.axis == axis.name and asked.along.offset
        if axis.static is not None and not moved:
            return axis.static
        index = At(GridIndex(axis.name)) if axis.kind == "grid" else Along(axis.name)
        sizes = [
            size
            for load in loads(asked.expr)
            for entry, size in zip(load.index, self._tensor(load.tensor).shape, strict=True)
            if entry == index
        ]
        return (0, min(sizes)) if sizes else None

    def _tensor(self, name: str) -> Tensor:
        return self.tensors.get(name) or self.kernel.tensor(name)

    def _alone(self, expr: Expr, around: Collection[str]) -> bool:
        """Whether an expression is made of arrays that stay as they are, and of these axes."""
        for part in walk(expr):
            if not {d for d in part.type.shape if isinstance(d, str)} <= set(around):
                return False
            match part:
                case ir.Var() | ir.TileScalar():
                    return False
                case GridIndex(axis) | ir.TileIndex(axis) if axis not in around:
                    return False
                case Load(tensor, index):
                    along = (e for e in index if isinstance(e, Along))
                    if self._changes(tensor) or any(e.axis not in around for e in along):
                        return False
                case _:
                    pass
        return True

    def _changes(self, tensor: str) -> bool:
        return tensor not in self.tensors and self.kernel.root(tensor) in self.stored

    def _stored(self, asked: _Measure, ranges: Mapping[str, tuple[int, int]]) -> Expr:
        """A load of what a loop of its own stores, which goes over these ranges."""
        axis, expr, loc = asked.axis, asked.expr, asked.axis.loc
        made = {load.tensor for load in loads(expr)} & self.tensors.keys()
        before = [n for (n, *_), own in self.stores.items() if made & {s.tensor for s in own}]
        group = "" if asked.group is None else asked.group.name
        around = max(before, default=-1) + 1, tuple(ranges.items()), group
        if around not in self.stores:
            self.own[around] = self._own_axes(asked, ranges)
        loops = [group, *ranges] if group else [*ranges]
        names = dict(zip(loops, (a.name for a in self.own[around]), strict=False))
        own = self.own[around][bool(group) :]
        shape = tuple(max(1, end) for _, end in ranges.values()) or (1,)
        name = take(f"{axis.user}_measure", self.taken)
        self.tensors[name] = Tensor(name, shape, "int32", "output", loc)
        value = cast(renamed(expr, names), "int32", loc)
        store = Store(name, tuple(_at(a.name, a.kind) for a in own), value, loc)
        self.stores.setdefault(around, []).append(store)
        at = tuple(asked.entry(self.kernel.axis(n)) for n in ranges) or (At(const(0)),)
        load: Expr = Load(name, at, ir.Type(expr.type.shape, "int32"), loc=loc)
        return load if expr.type.dtype == "int32" else binary("ne", load, 0, loc)

    def _own_axes(self, asked: _Measure, ranges: Mapping[str, tuple[int, int]]) -> list[Axis]:
        """Those of its loops: over its ranges, or over groups and the rows of each, or one turn."""
        axis, group = asked.axis, asked.group
        if group is None:
            own = [
                self._axis(axis, self.kernel.axis(n).kind, n, ends) for n, ends in ranges.items()
            ]
            return own or [self._axis(axis, "grid", f"{axis.user}_once", (0, 1))]
        assert group.static is not None
        outer = self._axis(group, "grid", group.name, group.static)
        name = take(axis.name, self.taken)
        rows = map_range(axis, partial(renamed, names={group.name: outer.name}))
        self.axes.append(replace(rows, name=name, block=name))
        return [outer, self.axes[-1]]

    def _axis(
        self, of: Axis, kind: Literal["grid", "tile"], wish: str, ends: tuple[int, int]
    ) -> Axis:
        """The axis of a new loop."""
        name, (begin, end) = take(wish, self.taken), ends
        block, extent = (name if kind == "tile" else None), max(0, end - begin)
        made = Axis(name, kind, const(begin), const(end), extent, block, of.loc, wish)
        self.axes.append(made)
        return made


@dataclass(frozen=True)
class _Measure:
    """What is asked for.

    axis    the loop that asks
    around  loops by which it may go
    along   where its tile lies
    group   a loop by which it goes, too, each turn of which has rows of its own
    """

    axis: Axis
    around: tuple[Axis, ...]
    expr: Expr
    along: Along | None
    group: Axis | None = None

    def goes_by(self, axis: str) -> bool:
        """Whether it is a number for each of its positions."""
        if axis in self.expr.type.shape:
            return True
        return any(isinstance(p, GridIndex) and p.axis == axis for p in walk(self.expr))

    def entry(self, axis: Axis) -> ir.Index:
        """Where it is in memory."""
        if self.along is not None and axis.name == self.along.axis:
            return self.along
        return _at(axis.name, axis.kind)


def _groups(tile: Axis, around: Sequence[Axis]) -> Axis | None:
    """The loop over groups, `tile` goes through each of which: offsets[g] to offsets[g + 1]."""
    match tile.begin, tile.end:
        case Load(one, (At(GridIndex(name) as first),)), Load(other, (At(last),)) if one == other:
            behind = integers.value_of(integers.sub(last, first)) == 1
            found = (a for a in around if a.name == name and a.static is not None)
            return next(found, None) if behind else None
        case _:
            return None


def _at(axis: str, kind: str) -> ir.Index:
    return At(GridIndex(axis)) if kind == "grid" else Along(axis)


def _unmoved(expr: Expr, along: Along) -> Expr | None:
    """A load of the rows of a moved tile as one of all rows."""
    if not isinstance(expr, Load):
        return None
    return replace(expr, index=tuple(Along(along.axis) if e == along else e for e in expr.index))
