"""choose(launched, roots, ...) -> what the backward launches read rather than compute again.

A value without a loop of the forward kernel is computed again from its arguments.  Of others the
kernel's own results are read where they hold them, and what else is needed is saved by the forward
kernel: of a formula over sums the sums, or itself, whichever has fewer bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from .. import ir
from ..analysis.facts import Facts
from ..errors import Loc
from ..ir import every_store, integers, map_children, statements, walk
from ..language.build import cast
from ..language.dtypes import is_float, itemsize
from ..language.op import OPS
from .forward import Launched
from .graph import Graph, Over, Scan, Stored, number, parts_of
from .ranges import turned
from .scans import number_of, number_tiles

PRODUCTS = ("mul", "dot")


@dataclass(frozen=True)
class Saved:
    """A value of the forward kernel in an array of its own.

    `index` and `value` are in axes of the graph; the value, and offsets of tiles, in names of the
    author's kernel.
    """

    tensor: ir.Tensor
    index: tuple[ir.Index, ...]
    value: ir.Expr


@dataclass(frozen=True)
class SavedIndex:
    """How an array of what is saved is indexed in one dimension of `size`.

    read     in axes of the graph
    written  in names of the author's kernel
    """

    read: ir.Index
    size: int
    written: ir.Index


@dataclass
class Residuals:
    """Collects what is read: value -> the load, and the arrays that the forward kernel adds.

    `made` are values of the forward kernel that the author did not write, as formulas of others.
    """

    kernel: ir.KernelIR
    facts: Facts
    launched: Launched
    name: Callable[[str], str]
    made: frozenset[str] = frozenset()
    loads: dict[str, ir.Expr] = field(default_factory=dict)
    added: list[Saved] = field(default_factory=list)
    counts: dict[str, int | None] = field(default_factory=dict)

    def choose(self, roots: Iterable[ir.Expr], forward: Collection[str]) -> None:
        """Decides for all that the roots are computed from; `forward` are the kernel's own."""
        graph, roots = self.launched.graph, tuple(roots)
        loops = self._with_loops({*forward, *self.made})
        stored = {**self._rounded(roots), **self._stored()}
        again = self._compared(roots, forward, loops)
        stack, seen = list(roots), set[str]()
        while stack:
            expr = stack.pop()
            if not isinstance(expr, ir.Var) or expr.name not in graph.values or expr.name in seen:
                continue
            seen.add(expr.name)
            if expr.name not in loops or expr.name in again:
                stack += graph.parts(expr)
            elif expr.name in stored:
                self.loads[expr.name] = stored[expr.name]
            elif not (self._is_cheapest(expr, loops, stored) and self._save(expr)):
                stack += graph.parts(expr)

    def _compared(
        self, roots: Sequence[ir.Expr], forward: Collection[str], loops: Collection[str]
    ) -> set[str]:
        """The largest of values that are computed again, which is so too: else none may be equal.

        Two kernels may round one product differently, and what an element gets depends on whether
        it is the largest.
        """
        graph, found = self.launched.graph, set[str]()
        for name, term in graph.reached(roots).items():
            if name in forward or not isinstance(term, ir.Apply) or term.op != "eq":
                continue
            if not any(number(graph.term(a)) is not None for a in term.args):
                found |= {name for a in term.args for name in self._same(a) if name in loops}
        return {name for name in found if not self._is_exact(name)}

    def _same(self, expr: ir.Expr) -> Iterator[str]:
        """The name of a value, and of what it is in another shape or dtype."""
        while isinstance(expr, ir.Var):
            yield expr.name
            term = self.launched.graph.term(expr)
            if not (isinstance(term, ir.Apply) and _scales(term)):
                return
            (expr,) = term.args

    def _is_exact(self, name: str) -> bool:
        """Whether nothing between a value and what memory has of it is rounded."""
        graph, stack = self.launched.graph, [name]
        while stack:
            term = graph.values[stack.pop()]
            if isinstance(term, ir.Load | Scan) or (isinstance(term, Over) and term.how == "sum"):
                continue  # what memory has: a sum of a loop is saved
            if isinstance(term, ir.Apply) and not OPS[term.op].exact:
                return False
            stack += [p.name for p in parts_of(term) if isinstance(p, ir.Var)]
        return True

    def _with_loops(self, forward: Collection[str]) -> set[str]:
        """The values of the forward kernel that a loop of its has to run for."""
        graph, found = self.launched.graph, set[str]()
        for name, term in graph.values.items():
            if name not in forward:
                continue
            parts = graph.parts(ir.Var(name, term.type))
            below = any(isinstance(p, ir.Var) and p.name in found for p in parts)
            if isinstance(term, Over | Scan) or below:
                found.add(name)
        return found

    def _stored(self) -> dict[str, ir.Expr]:
        """Values that an output holds as they are."""
        found: dict[str, ir.Expr] = {}
        for store, load in self._whole():
            if isinstance(store.value, ir.Var) and store.value.type == store.type:
                found.setdefault(store.value.name, load)
        return found

    def _rounded(self, roots: Sequence[ir.Expr]) -> dict[str, ir.Expr]:
        """Values that an output holds in fewer bits, where nothing but products reads them.

        Rounding an operand changes a product by as much as rounding its result does; a difference,
        or an exponential, it may change by any factor.
        """
        found: dict[str, ir.Expr] = {}
        graph = self.launched.graph
        for store, load in self._whole():
            term = graph.term(store.value)
            if not (isinstance(term, ir.Apply) and term.op == "cast" and term.type == store.type):
                continue
            (value,) = term.args
            floats = is_float(term.type.dtype) and is_float(value.type.dtype)
            if floats and isinstance(value, ir.Var) and _only_multiplied(graph, value, roots):
                found[value.name] = graph.add(cast(load, value.type.dtype, store.loc))
        return found

    def _whole(self) -> Iterator[tuple[Stored, ir.Expr]]:
        """Stores that keep all of a value, and how it is read again."""
        graph = self.launched.graph
        for store in self.launched.stores:
            if store.mask is None and not store.adds:
                load = graph.add(ir.Load(store.tensor, store.index, store.type, loc=store.loc))
                if graph.scope(load) <= graph.scope(store.value):
                    yield store, load

    # ------------------------------------------------------------ what has fewest bytes

    def _is_cheapest(
        self, expr: ir.Var, loops: Collection[str], stored: Mapping[str, ir.Expr]
    ) -> bool:
        """Whether a value has no more bytes than the sums that it is computed from."""
        graph = self.launched.graph
        if isinstance(graph.term(expr), Over | Scan):
            return True
        below: set[str] = set()
        stack = list(graph.parts(expr))
        while stack:
            part = stack.pop()
            if not isinstance(part, ir.Var) or part.name not in loops or part.name in stored:
                continue
            if isinstance(graph.term(part), Over | Scan):
                below.add(part.name)
            else:
                stack += graph.parts(part)
        sums = sum(self._bytes(ir.Var(n, graph.values[n].type)) for n in below - {*self.loads})
        return 0 < self._bytes(expr) <= sums

    def _bytes(self, expr: ir.Var) -> int:
        index = self.index_of(expr)
        return 0 if index is None else math.prod(p.size for p in index) * itemsize(expr.type.dtype)

    def index_of(self, expr: ir.Var, numbers: bool = False) -> list[SavedIndex] | None:
        """Where an array holds the value; None if no array can.

        A launch cuts a tile at one place: there, if results are stored at an offset.

        numbers  a tile of fixed length may be a place: that of its number
        """
        graph = self.launched.graph
        own = [d for d in expr.type.shape if isinstance(d, str)]
        moved = {d: self._offset(d) for d in own}
        scope = graph.scope(expr)
        offsets = (m.read.offset for m in moved.values() if m and isinstance(m.read, ir.Along))
        if any(offset is not None and not graph.scope(offset) <= scope for offset in offsets):
            return None  # it lies at several places, and is one value
        around = graph.ordered(scope)
        rows = [d for d in own if moved[d] is None]
        rows += [a for a in around if graph.ranges[a].axis.kind == "grid"]
        apart = {axis for d in rows for axis in self._apart(d)}
        found: list[SavedIndex] = []
        for axis in around:
            if axis in own or axis in apart:
                continue
            known = graph.ranges[axis]
            size, place = self._size(axis), ir.At(ir.GridIndex(axis))
            if known.axis.kind == "tile":
                size = self._numbers(axis) if numbers else None
                place = number_of(graph, axis)
            if size is None:
                return None
            found.append(SavedIndex(place, size, place))
        for dim in expr.type.shape:
            place = (moved[dim] or self._in_place(dim)) if isinstance(dim, str) else _whole(dim)
            if place is None or (isinstance(dim, str) and moved[dim] and not self._holds(dim)):
                return None
            found.append(place)
        return found

    def _in_place(self, axis: str) -> SavedIndex | None:
        size = self._size(axis)
        return None if size is None else SavedIndex(ir.Along(axis), size, ir.Along(axis))

    def _apart(self, name: str) -> frozenset[str]:
        """Loops in each of whose iterations the positions of a tile are others.

        Not those that only move it in some array: its own positions are the same again.
        """
        if name not in self.launched.same:  # an axis of the backward's own
            return frozenset()
        rises = {self.launched.same[outer] for outer in self.facts.axis(name).rises}
        return self.launched.graph.bounds(name) & rises

    def _offset(self, axis: str) -> SavedIndex | None:
        """How results are stored along a tile that they move, if it is at one offset."""
        stores = self.launched.stores
        mine = {(entry, self._length(s.tensor, n)) for s in stores for n, entry in _along(s, axis)}
        nest = statements((self.launched.loop,))
        names = [name for name, same in self.launched.same.items() if same == axis]
        theirs = (_along(s, n) for s in nest if isinstance(s, ir.Store) for n in names)
        written = {entry.offset for found in theirs for _, entry in found}
        if len({entry.offset for entry, _ in mine}) != 1 or len(written) != 1:
            return None
        entry, size = max(mine, key=lambda found: found[1])
        (offset,) = written
        if offset is None:
            return None
        return SavedIndex(ir.Along(axis, entry.offset), size, ir.Along(axis, offset))

    def _holds(self, axis: str) -> bool:
        """Whether results that are stored at an offset have all positions of an axis.

        One with a mask may end before them: what has no place there would be lost.
        """
        stores = self.launched.stores
        return any(_along(s, axis) and not _leaves_out(s.mask) for s in stores)

    def _length(self, tensor: str, dim: int) -> int:
        return self.kernel.tensor(tensor).shape[dim]

    def number(self, axis: str, name: str) -> None:
        """A loop `name` over the numbers of an axis's tiles."""
        number_tiles(self.launched.graph, axis, name)
        self.counts[name] = self._numbers(axis)

    def _numbers(self, axis: str) -> int | None:
        """How many numbers tiles have; None if they are not where they are cut."""
        size, length = self._size(axis), self.launched.graph.ranges[axis].axis.fixed
        return None if not length or size is None or self._is_moved(axis) else -(-size // length)

    def _is_moved(self, axis: str) -> bool:
        """Whether tiles are cut at an offset of an array, and not where they are."""
        index = (i for _, found in self._accesses() for i in found)
        moved = any(
            isinstance(i, ir.Along) and i.axis == axis and i.offset is not None for i in index
        )
        begin = self.launched.graph.ranges[axis].begin
        return moved and begin != ir.Const(0, begin.type)

    def _size(self, axis: str) -> int | None:
        """A length that holds every position of an axis: of a dimension that it indexes."""
        static = self.launched.graph.ranges[axis].axis.static
        if static is not None:
            return static[1]
        if axis in self.counts:
            return self.counts[axis]
        known, graph = self.launched.graph.ranges[axis], self.launched.graph
        back = graph.add(turned(known.axis, ir.GridIndex(axis), known.axis.loc))
        for tensor, index in self._accesses(whole=True):
            for size, entry in zip(self.kernel.tensor(tensor).shape, index, strict=True):
                if entry in (ir.Along(axis), ir.At(ir.GridIndex(axis)), ir.At(back)):
                    return size
        return known.extent if known.begin == ir.Const(0, known.begin.type) else None

    def _accesses(self, whole: bool = False) -> Iterator[tuple[str, tuple[ir.Index, ...]]]:
        """Where the kernel's arrays are read and stored to; `whole`: none of a tile is left out."""
        own = {t.name for t in self.kernel.tensors}
        loads = (t for t in self.launched.graph.values.values() if isinstance(t, ir.Load))
        for access in (*self.launched.stores, *(t for t in loads if t.tensor in own)):
            if not (whole and _leaves_out(access.mask)):
                yield access.tensor, access.index

    def _save(self, expr: ir.Var) -> bool:
        """Adds an array for a value that the author's kernel computes; False if it cannot."""
        written, places = self._written(expr), self.index_of(expr)
        if written is None or places is None:
            return False
        name = self.name(f"saved_{self.launched.graph.hints.get(expr.name, 'value')}")
        shape = tuple(place.size for place in places)
        index = tuple(place.read for place in places)
        tensor = ir.Tensor(name, shape, expr.type.dtype, "output", self.kernel.loc, 0)
        saved = Saved(tensor, tuple(place.written for place in places), written)
        if not _stores(storing(self.launched.loop, (saved,), self.launched.same), name):
            return False  # nowhere does the author's kernel know all parts of the formula
        self.added.append(saved)
        load = ir.Load(name, index, expr.type, loc=self.kernel.loc)
        self.loads[expr.name] = self.launched.graph.add(load)
        return True

    def _written(self, expr: ir.Expr) -> ir.Expr | None:
        """A value in names of the author's kernel; None if it does not compute its parts."""
        if isinstance(expr, ir.Const):
            return expr
        if not isinstance(expr, ir.Var):
            return None
        name, term = self.launched.written.get(expr.name), self.launched.graph.term(expr)
        if name is not None:
            return ir.Var(name, expr.type)
        if not isinstance(term, ir.Apply) or expr.name not in self.made:
            return None
        args = [a for a in map(self._written, term.args) if a is not None]
        return replace(term, args=tuple(args)) if len(args) == len(term.args) else None


def _only_multiplied(graph: Graph, value: ir.Var, roots: Sequence[ir.Expr]) -> bool:
    """Whether all that is computed of a value at once is products with others."""
    reached = graph.reached(roots)
    same = {value.name}  # the value, in other shapes and dtypes
    for name, term in reached.items():  # parts first
        read = [p for p in parts_of(term) if isinstance(p, ir.Var) and p.name in same]
        if not read or name == value.name:
            continue
        if not isinstance(term, ir.Apply) or len(read) > 1:
            return False
        if not (_scales(term) or term.op in PRODUCTS):
            return False
        if _scales(term):
            same.add(name)
    return not any(isinstance(r, ir.Var) and r.name in same for r in roots)


def _scales(term: ir.Apply) -> bool:
    """Whether it is its operand by a factor, in another shape or dtype."""
    return len(term.args) == 1 and OPS[term.op].scales


def _leaves_out(mask: ir.Expr | None) -> bool:
    """Whether some positions of a tile may be left out; an `if` leaves out all or none."""
    return mask is not None and mask.type.rank > 0


def _whole(size: int) -> SavedIndex:
    return SavedIndex(ir.Span(0, size), size, ir.Span(0, size))


def _along(store: Stored | ir.Store, axis: str) -> list[tuple[int, ir.Along]]:
    """The dimensions of a store along a tile, and where."""
    index = enumerate(store.index)
    return [(n, entry) for n, entry in index if isinstance(entry, ir.Along) and entry.axis == axis]


def _stores(loop: ir.Loop, tensor: str) -> bool:
    return any(s.tensor == tensor for s in every_store((loop,)))


def storing(
    loop: ir.Loop,
    saved: Collection[Saved],
    same: Mapping[str, str],
    around: tuple[str, ...] = (),
    known: frozenset[str] = frozenset(),
) -> ir.Loop:
    """The launch that also stores what is saved, as soon as it is known."""
    opened = (*around, loop.axis)
    axes = {same[a]: a for a in opened}
    body: list[ir.Stmt] = []

    def reached(new: Collection[str], loc: Loc) -> None:
        """Stores what is known now that the values `new` are."""
        nonlocal known
        known |= frozenset(new)
        for one in saved:
            needed = {e.name for e in walk(one.value) if isinstance(e, ir.Var)}
            offsets = [
                i.offset for i in one.index if isinstance(i, ir.Along) and i.offset is not None
            ]
            also = {e.name for o in offsets for e in walk(o) if isinstance(e, ir.Var)}
            around_it = all(integers.axes(o) <= set(opened) for o in offsets)
            if needed & {*new} and needed | also <= known and around_it:
                index = tuple(_renamed(entry, axes) for entry in one.index)
                body.append(ir.Store(one.tensor.name, index, _named(one.value, axes), loc))

    reached([c.name for c in loop.carries], loop.loc)
    for stmt in loop.body:
        new: list[str] = []
        match stmt:
            case ir.Assign(name):
                new = [name]
            case ir.Loop():
                new = [c.out for c in stmt.carries]
                stmt = storing(stmt, saved, same, opened, known)
            case ir.Store():
                pass
            case _:
                assert_never(stmt)
        body.append(stmt)
        reached(new, stmt.loc)
    return replace(loop, body=tuple(body))


def _named(value: ir.Expr, axes: Mapping[str, str]) -> ir.Expr:
    """The value along the axes that are open there."""
    shape = tuple(axes[d] if isinstance(d, str) else d for d in value.type.shape)
    moved = map_children(value, lambda e: _named(e, axes))
    return replace(moved, type=ir.Type(shape, value.type.dtype))


def _renamed(entry: ir.Index, axes: Mapping[str, str]) -> ir.Index:
    """The entry along the axes that are open there."""
    match entry:
        case ir.Along(axis, offset):
            return ir.Along(axes[axis], offset)
        case ir.At(ir.GridIndex(axis)):
            return ir.At(ir.GridIndex(axes[axis]))
        case _:
            return entry
