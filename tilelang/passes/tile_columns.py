"""Tile columns: results as wide as an array, as a loop over tiles of their columns.

    y[t, :] = relu(dot(x[t, :], w[g, :, :]))   ->   for n in tile(512):
                                                        y[t, n] = relu(dot(x[t, :], w[g, :, n]))

Registers do not hold such results, nor shared memory what they are multiplied by.  It may be done
where each column is computed by itself from the product to the store: nothing sums or shifts along
columns.  What the loop needs and has no columns is computed for each tile of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from .. import ir
from ..ir import (
    every_expr,
    every_loop,
    every_store,
    exprs_of,
    integers,
    map_children,
    read_by,
    statement_exprs,
    statements,
    walk,
)
from ..ir.names import fresh, names_in
from ..ir.traversal import map_stmt
from .static_lanes import Key, StaticLanes

Wanted = Callable[[ir.KernelIR, StaticLanes], Iterable[Key]]


def tile_columns(kernel: ir.KernelIR, wanted: Wanted) -> tuple[ir.KernelIR, frozenset[str]]:
    """The kernel with such a loop for columns that are `wanted` of it, and the new axes.

    All arrays have them at one place.
    """
    made = frozenset[str]()
    while True:
        lanes = StaticLanes(kernel)
        alike = (key for key in wanted(kernel, lanes) if len(lanes.spans(key)) == 1)
        tried = (_Columns(kernel, lanes, key).tiled() for key in alike)
        changed = next((one for one in tried if one is not None), None)
        if changed is None:
            return kernel, made
        made |= {a.name for a in changed.axes} - {a.name for a in kernel.axes}
        kernel = changed


class _Columns:
    """The columns that have the lanes `root`, and the loop over tiles of them."""

    def __init__(self, kernel: ir.KernelIR, lanes: StaticLanes, root: Key) -> None:
        self.ir, self.lanes, self.root = kernel, lanes, root
        self.axis = fresh("tn", names_in(kernel) | {kernel.name})
        self._made: dict[int, tuple[ir.Expr, ir.Expr]] = {}
        self.loc = next(s.loc for s in statements(kernel.body) if self._has(s))

    def tiled(self) -> ir.KernelIR | None:
        """The kernel with the loop, or None where something else would have to be in it."""
        body = self._around(self.ir.body)
        if body is None:
            return None
        (span,) = self.lanes.spans(self.root)
        begin, end = integers.const(span.start), integers.const(span.stop)
        size, loc = span.stop - span.start, self.loc
        axis = ir.Axis(self.axis, "tile", begin, end, size, self.axis, loc, self.axis)
        return replace(self.ir, body=body, axes=(*self.ir.axes, axis))

    def _has(self, stmt: ir.Stmt) -> bool:
        """Whether a statement itself has such columns."""
        parts = (e for x in statement_exprs(stmt) for e in walk(x))
        stored = isinstance(stmt, ir.Store) and bool(self._places(stmt))
        return stored or any(self._lanes(e) for e in parts)

    def _lanes(self, value: ir.Expr) -> bool:
        return any(self.lanes.of(value, d) == self.root for d in range(value.type.rank))

    def _places(self, value: ir.Load | ir.Store) -> frozenset[int]:
        """The dimensions of the array that they lie along."""
        dims = [n for n, entry in enumerate(value.index) if not isinstance(entry, ir.At)]
        return frozenset(n for d, n in enumerate(dims) if self.lanes.of(value, d) == self.root)

    def _around(self, body: ir.Body) -> ir.Body | None:
        """The statements with those that have such columns in a loop of their own."""
        own = [s for s in body if any(map(self._has, statements((s,))))]
        only = own[0] if len(own) == 1 else None
        if isinstance(only, ir.Loop) and not self._has(only):
            inner = self._around(only.body)
            changed = None if inner is None else replace(only, body=inner)
            return changed and tuple(changed if s is only else s for s in body)
        inside = self._needed(body, own)
        if inside is None or not self._free(body, inside):
            return None
        loop = ir.Loop(self.axis, tuple(map(self._rewritten, inside)), (), self.loc)
        last = inside[-1]
        kept = (s for s in body if s is last or not any(s is other for other in inside))
        return tuple(loop if s is last else s for s in kept)

    def _needed(self, body: ir.Body, own: list[ir.Stmt]) -> list[ir.Stmt] | None:
        """The statements of the loop: what reads what they make has to be one of them."""
        inside = list(own)
        while True:
            made = {n for s in statements(tuple(inside)) for n in _bound(s)}
            others = [s for s in body if not any(s is one for one in inside)]
            readers = [s for s in others if made & _read((s,))]
            if not all(isinstance(s, ir.Assign) for s in readers):
                return None
            if not readers:
                break
            inside = [s for s in body if any(s is one for one in (*inside, *readers))]
        around = [s for s in every_loop(self.ir.body) if s.body is body]
        return None if any(made & _read((replace(s, body=()),)) for s in around) else inside

    def _free(self, body: ir.Body, inside: list[ir.Stmt]) -> bool:
        """Whether tiles do not meet in memory, and what stands between may run before them."""
        stored, loaded = self._arrays(inside)
        for array, sites in stored.items():
            at = {(one.tensor, self._places(one)) for one in (*sites, *loaded.get(array, ()))}
            if len(at) > 1 or not all(places for _, places in at):
                return False
        first, last = (next(n for n, s in enumerate(body) if s is inside[m]) for m in (0, -1))
        between = [s for s in body[first:last] if not any(s is one for one in inside)]
        written, read = self._arrays(between)
        return written.keys().isdisjoint({*stored, *loaded}) and read.keys().isdisjoint(stored)

    def _arrays(
        self, body: list[ir.Stmt]
    ) -> tuple[dict[str, list[ir.Store]], dict[str, list[ir.Load]]]:
        """Array -> what stores to it, and what loads from it."""
        stored: dict[str, list[ir.Store]] = {}
        loaded: dict[str, list[ir.Load]] = {}
        for store in every_store(tuple(body)):
            stored.setdefault(self.ir.root(store.tensor), []).append(store)
        for load in (e for e in every_expr(tuple(body)) if isinstance(e, ir.Load)):
            loaded.setdefault(self.ir.root(load.tensor), []).append(load)
        return stored, loaded

    def _rewritten(self, stmt: ir.Stmt) -> ir.Stmt:
        match map_stmt(stmt, self._value):
            case ir.Loop() as made:
                return replace(made, body=tuple(map(self._rewritten, made.body)))
            case ir.Store() as made if isinstance(stmt, ir.Store):
                return replace(made, index=self._index(stmt, stmt.index))
            case made:
                return made

    def _index(
        self, value: ir.Load | ir.Store, index: tuple[ir.Index, ...]
    ) -> tuple[ir.Index, ...]:
        places = self._places(value)
        return tuple(ir.Along(self.axis) if n in places else e for n, e in enumerate(index))

    def _value(self, expr: ir.Expr) -> ir.Expr:
        if id(expr) not in self._made:
            shape = tuple(
                self.axis if self.lanes.of(expr, d) == self.root else size
                for d, size in enumerate(expr.type.shape)
            )
            made = map_children(expr, self._value)
            if isinstance(expr, ir.Load) and isinstance(made, ir.Load):
                made = replace(made, index=self._index(expr, made.index))
            if shape != expr.type.shape:
                made = replace(made, type=ir.Type(shape, expr.type.dtype))
            self._made[id(expr)] = expr, made
        return self._made[id(expr)][1]


def _bound(stmt: ir.Stmt) -> tuple[str, ...]:
    """The names that a statement gives to values that later ones may read."""
    match stmt:
        case ir.Assign(name):
            return (name,)
        case ir.Loop():
            return tuple(c.out for c in stmt.carries)
        case ir.Store():
            return ()
        case _:
            assert_never(stmt)


def _read(body: ir.Body) -> set[str]:
    """The names that statements read."""
    return set(read_by(exprs_of(body)))
