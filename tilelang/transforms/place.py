"""placed(graph, ...) -> Loop: formulas as loops of the language: one nest, every sum a loop in it.

A value is computed in the outermost loop that has all axes of its scope, and named there if it is
used twice; sums over one axis that do not need each other share a loop; a sum of sums has one
accumulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import ir
from ..errors import Loc
from ..ir import map_index, walk
from ..ir.names import take
from ..language.build import binary, cast
from ..language.dtypes import is_float
from ..language.op import OPS
from ..language.shapes import full
from .graph import Graph, How, Over, Scan, Stored, Term, number
from .ranges import bounds, turned

START: Mapping[How, tuple[str, float]] = {
    "sum": ("add", 0.0),
    "max": ("maximum", -float("inf")),
    "min": ("minimum", float("inf")),
}
LONGEST = 3  # operations that a statement has without a name for a part of them


@dataclass
class _Scope:
    """One open loop while its body is written; `known` are the values that it has made."""

    parent: _Scope | None
    axis: str
    name: str
    back: bool = False  # its last index comes first
    body: list[ir.Stmt] = field(default_factory=list)
    known: dict[str, ir.Expr] = field(default_factory=dict)

    @property
    def around(self) -> tuple[_Scope, ...]:
        """This loop and those around it, outermost first."""
        return (self,) if self.parent is None else (*self.parent.around, self)

    @property
    def opened(self) -> tuple[str, ...]:
        return tuple(s.axis for s in self.around if s.axis)


@dataclass(frozen=True)
class _Item:
    """A value that a loop folds, beginning with `first`."""

    value: ir.Expr
    first: ir.Expr
    how: How
    user: str


@dataclass
class _Writer:
    """Writes one nest; `loads` are values that memory has."""

    graph: Graph
    loads: Mapping[str, ir.Expr]
    uses: Counter[str]
    sums: Mapping[str, frozenset[str]]
    taken: set[str]
    axes: list[ir.Axis]
    loc: Loc

    # ------------------------------------------------------------ values

    def value(self, expr: ir.Expr, scope: _Scope) -> ir.Expr:
        """The value in names of the kernel, inside of an open loop."""
        match expr:
            case ir.GridIndex(axis):
                return self.position(axis, scope)
            case ir.TileIndex(axis) | ir.TileScalar(axis):
                return replace(expr, axis=self.axis(axis, scope), type=self.type(expr.type, scope))
            case ir.Var(name) if name in self.graph.values:
                return self.of(name, scope)
            case _:
                return expr

    def of(self, name: str, scope: _Scope) -> ir.Expr:
        load = self.loads.get(name)
        if load is not None:
            return self.value(load, scope)
        home = self.home(self.graph.values[name], scope)
        if name in home.known:
            return home.known[name]
        term = self.graph.values[name]
        if isinstance(term, Over):
            self.fold(name, home)
            return home.known[name]
        assert not isinstance(term, Scan)  # a launch of its own stored it
        made = self.made(term, home)
        if self.is_named(name, term, made, home, scope):
            home.known[name] = self.assign(self.graph.hints.get(name, ""), made, home)
            return home.known[name]
        return made

    def is_named(self, name: str, term: Term, made: ir.Expr, home: _Scope, scope: _Scope) -> bool:
        """Whether a value gets a name where it is computed, rather than a place in a formula."""
        if home.parent is None:  # nothing stands before the loops
            return False
        if isinstance(term, ir.Load) and any(isinstance(i, ir.Gather) for i in term.index):
            return True
        size = sum(isinstance(e, ir.Apply) for e in walk(made))
        if size <= 1 and isinstance(term, ir.Apply) and _is_free(term):
            return False
        if not term.type.rank and not is_float(term.type.dtype) and size <= 2:
            return self.uses[name] > 1 and (isinstance(term, ir.Load) or name in self.graph.hints)
        return self.uses[name] > 1 or size > LONGEST or (home is not scope and size > 0)

    def made(self, term: ir.Apply | ir.Load, home: _Scope) -> ir.Expr:
        kind = self.type(term.type, home)
        if isinstance(term, ir.Apply):
            return replace(term, args=tuple(self.value(a, home) for a in term.args), type=kind)
        mask = None if term.mask is None else self.value(term.mask, home)
        return replace(term, index=self.index(term.index, home), mask=mask, type=kind)

    def index(self, index: Iterable[ir.Index], scope: _Scope) -> tuple[ir.Index, ...]:
        def moved(entry: ir.Index) -> ir.Index:
            entry = map_index(entry, lambda e: self.value(e, scope))
            if isinstance(entry, ir.Along):
                return replace(entry, axis=self.axis(entry.axis, scope))
            return entry

        return tuple(moved(entry) for entry in index)

    def assign(self, hint: str, value: ir.Expr, scope: _Scope) -> ir.Var:
        wish = hint or (f"{value.tensor}_block" if isinstance(value, ir.Load) else "value")
        name = self.fresh(wish)
        loc = getattr(value, "loc", None) or self.loc
        scope.body.append(ir.Assign(name, value, loc, name))
        return ir.Var(name, value.type)

    def fresh(self, wish: str) -> str:
        return take(wish, self.taken)

    # ------------------------------------------------------------ places

    def home(self, term: Term, scope: _Scope) -> _Scope:
        """The outermost open loop in which a value has a meaning."""
        needed = self.graph.scope(self.graph.named(term))
        around = scope.around
        places = [n for n, s in enumerate(around) if s.axis in needed]
        return around[max(places, default=min(1, len(around) - 1))]

    def opened(self, axis: str, scope: _Scope) -> _Scope:
        return next(s for s in reversed(scope.around) if s.axis == axis)

    def axis(self, axis: str, scope: _Scope) -> str:
        return self.opened(axis, scope).name

    def position(self, axis: str, scope: _Scope) -> ir.Expr:
        """The index of a loop; of one that runs back, begin + end - 1 less that of its own."""
        opened = self.opened(axis, scope)
        own = ir.GridIndex(opened.name)
        if not opened.back:
            return own
        declared = next(a for a in self.axes if a.name == opened.name)
        return turned(declared, own, self.loc)

    def type(self, type: ir.Type, scope: _Scope) -> ir.Type:
        def dim(d: ir.Dim) -> ir.Dim:
            return self.axis(d, scope) if isinstance(d, str) else d

        return ir.Type(tuple(map(dim, type.shape)), type.dtype)

    def open(self, axis: str, scope: _Scope, back: bool = False) -> _Scope:
        """A new loop over an axis inside of another loop; `close` puts it there."""
        known = self.graph.ranges[axis]
        begin, end = (self.value(e, scope) for e in bounds(self.graph, axis, scope.opened))
        name = self.fresh(known.axis.user)
        block = name if known.axis.fixed is None else known.axis.fixed
        made = replace(
            known.axis, name=name, begin=begin, end=end, max_extent=known.extent, user=name,
            block=None if known.axis.kind == "grid" else block,
        )  # fmt: skip
        self.axes.append(made)
        return _Scope(scope, axis, name, back)

    # ------------------------------------------------------------ sums

    def fold(self, name: str, home: _Scope) -> None:
        """Runs the loop of a sum, and with it every other sum that may share it."""
        own = self.graph.values[name]
        assert isinstance(own, Over)
        rivals = [n for n in self.sums if self.shares(n, own, home)]
        for other in rivals:  # sums that must be there before this one
            if other in self.sums[name] and other not in home.known:
                self.fold(other, home)
        ready = [n for n in rivals if n not in home.known and not self.waits(n, rivals, home)]
        items = [self.item(n, home) for n in ready]
        for other, out in zip(ready, self.loop(own.axis, items, home), strict=True):
            home.known[other] = out

    def shares(self, name: str, own: Over, home: _Scope) -> bool:
        term = self.graph.values[name]
        if not isinstance(term, Over) or term.axis != own.axis:
            return False
        needed = self.graph.scope(ir.Var(name, term.type))
        return needed <= set(home.opened) and self.home(term, home) is home

    def waits(self, name: str, rivals: Sequence[str], home: _Scope) -> bool:
        return any(r in self.sums[name] and r not in home.known for r in rivals if r != name)

    def item(self, name: str, home: _Scope) -> _Item:
        term = self.graph.values[name]
        assert isinstance(term, Over)
        user = self.graph.hints.get(name, "acc")
        first: ir.Expr = ir.Const(START[term.how][1], term.type)
        if term.type.rank:
            shape = self.type(term.type, home).shape
            value = full(shape, START[term.how][1], term.type.dtype, term.loc or self.loc)
            first = self.assign(user, value, home)
        return _Item(term.value, first, term.how, user)

    def loop(self, axis: str, items: Sequence[_Item], home: _Scope) -> list[ir.Expr]:
        """A loop that folds the items; what it leaves of each."""
        inner = self.open(axis, home)
        entered = [ir.Var(self.fresh(i.user), i.first.type) for i in items]
        started = [replace(i, first=v) for i, v in zip(items, entered, strict=True)]
        after = self.folded(started, inner)
        outs = [ir.Var(self.fresh(i.user), i.first.type) for i in items]
        carries = tuple(
            ir.Carry(v.name, i.first, a, o.name, i.user, self.loc)
            for v, i, a, o in zip(entered, items, after, outs, strict=True)
        )
        home.body.append(ir.Loop(inner.name, tuple(inner.body), carries, self.loc))
        return list(outs)

    def folded(self, items: Sequence[_Item], inner: _Scope) -> list[ir.Expr]:
        """What one iteration makes of the items: by inner loops, or by one operation."""
        done: dict[int, ir.Expr] = {}
        nested: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            term = self.graph.term(item.value)
            if isinstance(term, Over) and self.goes_on(item, term, inner):
                nested.setdefault(term.axis, []).append(place)
        for axis, places in nested.items():
            parts = [replace(items[p], value=self.graph.parts(items[p].value)[0]) for p in places]
            done.update(zip(places, self.loop(axis, parts, inner), strict=True))
        for place, item in enumerate(items):
            if place not in done:
                value = self.value(item.value, inner)
                new = binary(START[item.how][0], item.first, value, self.loc)
                done[place] = self.assign(item.user, new, inner)
        return [done[place] for place in range(len(items))]

    def goes_on(self, item: _Item, term: Over, inner: _Scope) -> bool:
        """Whether a sum of sums goes on with the same accumulator."""
        assert isinstance(item.value, ir.Var)
        alone = self.uses[item.value.name] == 1 and item.value.name not in self.loads
        return alone and term.how == item.how and self.home(term, inner) is inner

    # ------------------------------------------------------------ scans

    def carry(self, scan: Scan, target: Stored, home: _Scope) -> None:
        """The loop of a scan; it stores what it carries, in each iteration or the last of it."""
        assert isinstance(target.value, ir.Var)
        user, loc = self.graph.hints.get(target.value.name, "acc"), scan.loc or self.loc
        first = self.value(scan.first, home)
        if scan.type.rank:
            first = self.assign(user, first, home)
        inner = self.open(scan.axis, home, scan.back)
        kind = self.type(scan.type, home)
        met, last = (ir.Var(self.fresh(user), kind) for _ in range(2))
        if not scan.whole:
            _store(self, replace(target, value=met), inner)
        new: ir.Expr = met
        if scan.factor is not None:
            new = binary("mul", met, self.value(scan.factor, inner), loc)
        if number(self.graph.term(scan.value)) != 0:
            new = binary("add", new, self.value(scan.value, inner), loc)
        after = self.assign(user, cast(new, kind.dtype, loc), inner)
        carry = ir.Carry(met.name, first, after, last.name, user, loc)
        home.body.append(ir.Loop(inner.name, tuple(inner.body), (carry,), loc))
        if scan.whole:
            _store(self, replace(target, value=last), home)


def _is_free(term: ir.Apply) -> bool:
    return OPS[term.op].cost == "free" or term.op == "transpose"


# ---------------------------------------------------------------- one nest


@dataclass(frozen=True)
class AxisNest:
    """A top-level loop with the axes of all its loops."""

    loop: ir.Loop
    axes: tuple[ir.Axis, ...]


def placed(
    graph: Graph,
    chain: Sequence[str],
    targets: Sequence[Stored],
    loads: Mapping[str, ir.Expr],
    taken: Iterable[str],
    loc: Loc,
) -> AxisNest:
    """The loops over `chain` that store the targets; `loads` are values that memory has."""
    writer = _writer(graph, [e for t in targets for e in t.exprs], loads, taken, loc)
    scopes = _opened(writer, chain)
    for target in targets:
        _store(writer, target, scopes[-1])
    return _closed(writer, scopes)


def carried(
    graph: Graph, target: Stored, loads: Mapping[str, ir.Expr], taken: Iterable[str], loc: Loc
) -> AxisNest:
    """The loops that store a scan, the value of the target."""
    scan = graph.term(target.value)
    assert isinstance(scan, Scan)
    roots = [*scan.parts, *replace(target, value=scan.first).exprs]
    writer = _writer(graph, roots, loads, taken, loc)
    scopes = _opened(writer, graph.ordered(graph.scope(target.value) - {scan.axis}))
    writer.carry(scan, target, scopes[-1])
    return _closed(writer, scopes)


def _writer(
    graph: Graph,
    roots: Sequence[ir.Expr],
    loads: Mapping[str, ir.Expr],
    taken: Iterable[str],
    loc: Loc,
) -> _Writer:
    """Writes a nest that computes the roots."""
    roots = [*roots, *(e for a in graph.ranges.values() for e in (a.begin, a.end))]
    reached = _reached(graph, roots, loads)
    uses = Counter(e.name for e in (*_parts(graph, reached), *roots) if isinstance(e, ir.Var))
    sums = {
        name: frozenset(
            n for n in _reached(graph, [term.value], loads) if isinstance(graph.values[n], Over)
        )
        for name, term in reached.items()
        if isinstance(term, Over)
    }
    return _Writer(graph, loads, uses, sums, set(taken), [], loc)


def _reached(
    graph: Graph, roots: Sequence[ir.Expr], loads: Mapping[str, ir.Expr]
) -> dict[str, Term]:
    """What is computed, and the loads that stand for the rest."""
    found: dict[str, Term] = {}
    todo = list(roots)
    while todo:
        new = graph.reached(todo, until=loads)
        todo = [loads[n] for n in new if n in loads and n not in found]
        found |= new
    return {n: t for n, t in found.items() if n not in loads}


def _parts(graph: Graph, reached: Mapping[str, Term]) -> Iterable[ir.Expr]:
    for name, term in reached.items():
        yield from graph.parts(ir.Var(name, term.type))


def _opened(writer: _Writer, chain: Sequence[str]) -> list[_Scope]:
    """The outermost scope, and the loops of a nest: one at least."""
    root = _Scope(None, "", "")
    scopes = [root]
    for axis in chain:
        scopes.append(writer.open(axis, scopes[-1]))
    if not chain:
        name = writer.fresh("i")
        zero, one = (ir.Const(n, ir.Type((), "int32")) for n in (0, 1))
        writer.axes.append(ir.Axis(name, "grid", zero, one, 1, None, writer.loc, name))
        scopes.append(_Scope(root, "", name))
    return scopes


def _closed(writer: _Writer, scopes: Sequence[_Scope]) -> AxisNest:
    assert not scopes[0].body
    stmts: list[ir.Stmt] = []
    for scope in reversed(scopes[1:]):
        stmts = [ir.Loop(scope.name, (*scope.body, *stmts), (), writer.loc)]
    (loop,) = stmts
    assert isinstance(loop, ir.Loop)
    return AxisNest(loop, tuple(writer.axes))


def _store(writer: _Writer, target: Stored, scope: _Scope) -> None:
    index = writer.index(target.index, scope)
    mask = None if target.mask is None else writer.value(target.mask, scope)
    value = writer.value(target.value, scope)
    if target.adds:
        kind = writer.type(target.type, scope)
        old = ir.Load(target.tensor, index, kind, mask, 0.0, target.loc)
        value = binary("add", old, value, target.loc)
    combine = "add" if target.adds else None
    scope.body.append(ir.Store(target.tensor, index, value, target.loc, mask, combine))
