"""read(kernel, facts, launch) -> Launched: what a launch stores, as formulas over what it loads.

A carry that is added to is a sum over its loop, one that is compared a maximum; the sums of an
online softmax become sums once its maximum is a gauge (`gauge`).  Other carries are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from .. import ir
from ..analysis.facts import Facts
from ..errors import Loc
from ..ir import map_index, rewrite
from ..ir.traversal import picked
from .graph import Graph, Stored
from .ranges import of_axis, same, without_hull
from .refuse import Underivable
from .scans import scans
from .sums import result
from .vanish import vanishes


@dataclass(frozen=True)
class Launched:
    """One launch: its values, what it stores, and the names that the author's kernel has for them.

    `written` holds values that the author's kernel computes too: under which name.  `same` is the
    axis that stands for one of the author's.  `inside` is in which loops a load is done.
    """

    loop: ir.Loop
    graph: Graph
    stores: tuple[Stored, ...]
    written: Mapping[str, str]
    same: Mapping[str, str]
    inside: Mapping[str, tuple[str, ...]]


@dataclass
class _Reader:
    """Collects the launch; `names` are the author's values, `same` the axis that one stands for."""

    kernel: ir.KernelIR
    facts: Facts
    graph: Graph = field(default_factory=Graph)
    names: dict[str, ir.Expr] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    stores: list[Stored] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    around: tuple[str, ...] = ()

    def value(self, expr: ir.Expr, hint: str = "") -> ir.Expr:
        """An expression of the author's in names of the graph."""
        return self.graph.add(rewrite(expr, self._leaf), hint)

    def _leaf(self, expr: ir.Expr) -> ir.Expr | None:
        match expr:
            case ir.Var(name):
                return self.names[name]
            case ir.GridIndex(axis) | ir.TileIndex(axis) | ir.TileScalar(axis):
                return replace(expr, axis=self.same[axis], type=self.typed(expr.type))
            case ir.Load():
                index = tuple(self.entry(i) for i in expr.index)
                mask = None if expr.mask is None else self.value(expr.mask)
                return self.loaded(
                    replace(expr, index=index, mask=mask, type=self.typed(expr.type))
                )
            case _ if any(self.same.get(d, d) != d for d in expr.type.shape if isinstance(d, str)):
                return self._renamed(expr)
            case _:
                return None

    def loaded(self, load: ir.Load) -> ir.Expr:
        """A load by its name; noted is inside of which loops it is done."""
        made = self.graph.add(load)
        assert isinstance(made, ir.Var)
        before = self.inside.get(made.name, self.around)
        self.inside[made.name] = tuple(a for a in self.around if a in before)
        return made

    def _renamed(self, expr: ir.Expr) -> ir.Expr:
        """An operation along an axis that another one stands for."""
        args = tuple(self.value(a) for a in getattr(expr, "args", ()))
        return replace(expr, args=args, type=self.typed(expr.type))

    def typed(self, type: ir.Type) -> ir.Type:
        """The type along the axes that stand for others."""
        shape = tuple(self.same.get(d, d) if isinstance(d, str) else d for d in type.shape)
        return ir.Type(shape, type.dtype)

    def entry(self, index: ir.Index) -> ir.Index:
        """An entry of an index in names of the graph."""
        moved = map_index(index, self.value)
        return replace(moved, axis=self.same[moved.axis]) if isinstance(moved, ir.Along) else moved

    # ------------------------------------------------------------ statements

    def body(self, body: tuple[ir.Stmt, ...], around: tuple[str, ...]) -> None:
        for stmt in body:
            self.around = around
            match stmt:
                case ir.Assign(name, value, _, user):
                    self.names[name] = made = self.value(value)
                    self.note(made, name, user)
                case ir.Store():
                    self.stores.append(self.store(stmt, around))
                case ir.Loop():
                    self.loop(stmt, around)
                case _:
                    assert_never(stmt)

    def note(self, value: ir.Expr, name: str, user: str) -> None:
        """The author's kernel computes a value, and calls it so."""
        if not isinstance(value, ir.Var):
            return
        if set(self.around) <= self.graph.scope(value):  # else it is computed once too often
            self.written.setdefault(value.name, name)
        if value.name in self.graph.values:
            self.graph.hints.setdefault(value.name, user)

    def store(self, store: ir.Store, around: tuple[str, ...]) -> Stored:
        adds = store.combine == "add"
        if store.combine is not None and not adds:
            raise Underivable(f"rows are combined by their {store.combine}", store.loc)
        addend = getattr(store.value, "args", (None, store.value))[1] if adds else store.value
        mask = None if store.mask is None else self.value(store.mask)
        index = tuple(self.entry(i) for i in store.index)
        value = self.value(addend)
        kind = ir.Type(picked(index), self.kernel.tensor(store.tensor).dtype)
        return Stored(store.tensor, index, kind, value, mask, adds, store.loc, around)

    def loop(self, loop: ir.Loop, around: tuple[str, ...]) -> None:
        axis = self.open(loop, around)
        first = [self.value(c.init) for c in loop.carries]
        for carry in loop.carries:
            self.names[carry.name] = ir.Var(carry.name, self.typed(carry.init.type))
        stored = len(self.stores)
        self.body(loop.body, (*around, axis))
        self.around = (*around, axis)
        after = [self.value(c.next) for c in loop.carries]
        met = self.met(loop, axis, first, after, stored)
        self.around = around
        here = self.graph.ranges[axis]
        if here.near and (
            met or len(self.stores) > stored or not vanishes(self.graph, axis, after)
        ):
            self.graph.set_range(axis, without_hull(here))
        found = self.results(loop, axis, first, after, met)
        for carry, value in zip(loop.carries, found, strict=True):
            self.names[carry.out] = value
            self.note(value, carry.out, carry.user)

    def results(
        self,
        loop: ir.Loop,
        axis: str,
        first: list[ir.Expr],
        after: list[ir.Expr],
        met: Mapping[str, ir.Expr],
    ) -> tuple[ir.Expr, ...]:
        users = {c.name: _said(c) for c in loop.carries}
        return result(self.graph, axis, _carried(loop, first), first, after, users, met)

    def met(
        self, loop: ir.Loop, axis: str, first: list[ir.Expr], after: list[ir.Expr], stored: int
    ) -> Mapping[str, ir.Expr]:
        """What iterations meet of carries that they read; it stands in stores and in `after` then.

        stored  how many stores there were before the loop
        """
        graph, stores = self.graph, self.stores[stored:]
        carried = _carried(loop, first)
        read = [e for s in stores for e in s.exprs]
        made = scans(graph, axis, carried, first, after, read)
        for carry in loop.carries:
            if carry.name in made:
                self.note(made[carry.name], carry.name, carry.user)
        if not made:
            return made
        for name, own in tuple(self.written.items()):
            value = graph.replaced(ir.Var(name, graph.values[name].type), made)
            if isinstance(value, ir.Var) and value.name != name:
                self.written.setdefault(value.name, own)
        self.stores[stored:] = [_replaced(graph, s, made) for s in stores]
        for place, carry in enumerate(carried):
            others = {name: scan for name, scan in made.items() if name != carry.name}
            after[place] = graph.replaced(after[place], others)
        return made

    def open(self, loop: ir.Loop, around: tuple[str, ...]) -> str:
        """The axis of a loop, or one with the same range whose loop does not contain this one."""
        axis = self.kernel.axis(loop.axis)
        rises = self.facts.axis(loop.axis).rises
        begin, end = self.value(axis.begin), self.value(axis.end)
        made = of_axis(self.graph, replace(axis, begin=begin, end=end), rises)
        twins = (n for n, r in self.graph.ranges.items() if n not in around and same(r, made))
        name = next(twins, loop.axis)
        self.same[loop.axis] = name
        self.graph.ranges.setdefault(name, made)
        return name


def _carried(loop: ir.Loop, first: list[ir.Expr]) -> list[ir.Var]:
    """What a loop carries, as an iteration meets it."""
    return [ir.Var(c.name, e.type) for c, e in zip(loop.carries, first, strict=True)]


def _replaced(graph: Graph, store: Stored, values: Mapping[str, ir.Expr]) -> Stored:
    """The store with other values in the place of names."""

    def of(expr: ir.Expr) -> ir.Expr:
        return graph.replaced(expr, values)

    index = tuple(map_index(i, of) for i in store.index)
    mask = None if store.mask is None else of(store.mask)
    return replace(store, index=index, value=of(store.value), mask=mask)


def _said(carry: ir.Carry) -> tuple[str, Loc]:
    return carry.user, carry.loc


def read(kernel: ir.KernelIR, facts: Facts, loop: ir.Loop) -> Launched:
    """A top-level loop as what it stores; Underivable where that is no formula."""
    _unchanged(kernel, loop)
    reader = _Reader(kernel, facts)
    reader.body((loop,), ())
    graph, stores = reader.graph, tuple(reader.stores)
    carried = {c.name for c in _carries(loop)}
    for store in stores:
        if any(graph.uses(e, carried) for e in store.exprs):
            what = "what is stored depends on the iterations before, and is no sum of its own"
            raise Underivable(what, store.loc)
    return Launched(loop, graph, stores, reader.written, reader.same, reader.inside)


def _carries(loop: ir.Loop) -> list[ir.Carry]:
    inner = [c for s in loop.body if isinstance(s, ir.Loop) for c in _carries(s)]
    return [*loop.carries, *inner]


def _unchanged(kernel: ir.KernelIR, loop: ir.Loop) -> None:
    """A formula reads what was there before the launch: none of it is what the launch stores."""
    stored = {store.tensor for store in ir.every_store((loop,))}
    exprs = (expr for stmt in ir.statements((loop,)) for expr in _read(kernel, stmt))
    for load in (load for expr in exprs for load in ir.loads(expr)):
        root = kernel.root(load.tensor)
        if root != load.tensor and kernel.tensor(root).role != "input":
            what = f"{load.tensor} is another view of what the kernel makes"
            raise Underivable(what, load.loc)
        if load.tensor in stored:
            what = f"{load.tensor} is read by the launch that stores to it"
            raise Underivable(what, load.loc)


def _read(kernel: ir.KernelIR, stmt: ir.Stmt) -> list[ir.Expr]:
    """What a statement computes; what is added to is not read, but added to."""
    exprs = list(ir.statement_exprs(stmt))
    match stmt:
        case ir.Store(value=ir.Apply(args=(_, addend)), combine="add"):
            exprs[exprs.index(stmt.value)] = addend
        case ir.Loop(axis):
            exprs += [kernel.axis(axis).begin, kernel.axis(axis).end]
        case _:
            pass
    return exprs
