"""Scope: what is known where a statement is lowered, and the steps that are made so far.

Names of the IR stand for Vars of the text; a name with a dot is the plan's own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import assert_never

from tilelang.codegen.triton.passes.explicit_casts import apply
from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    Apply,
    At,
    Const,
    Dim,
    Expr,
    Gather,
    GridIndex,
    Index,
    Load,
    Span,
    TileIndex,
    TileScalar,
    Type,
    Var,
    integers,
    map_children,
    read_by,
)
from tilelang.ir.lanes import arange
from tilelang.ir.names import take
from tilelang.ir.traversal import rebuilding
from tilelang.language.dtypes import is_float
from tilelang.language.evaluate import evaluate
from tilelang.language.op import ELEMENTWISE

from .access import access, by_dimension, quotient
from .descriptors import Boxes, End, box_of
from .problem import Prepared
from .types import Access, Descriptor, Fetch, Let, Read, Step

PLAIN = {"power": "pow", "quotient": "floordiv", "remainder": "mod"}  # ops of numbers alone


def as_written(expr: Expr) -> Expr:
    """Numbers in the ops of the language: they mean the same of what these are made for."""

    def plain(e: Expr) -> Expr | None:
        return replace(e, op=PLAIN[e.op]) if isinstance(e, Apply) and e.op in PLAIN else None

    return rebuilding(plain)(expr)


def _computed(expr: Expr) -> Expr:
    """An op of numbers, such as the index of a grid of one, as a number: those have no methods."""
    if not isinstance(expr, Apply):
        return expr
    op = PLAIN.get(expr.op, expr.op)
    if all(isinstance(a, Const) for a in expr.args) and op in ELEMENTWISE:
        value = evaluate(replace(expr, op=op, attrs=()), {})
        return Const(float(value) if is_float(expr.type.dtype) else value.item(), expr.type)
    if expr.op in ("add", "sub") and expr.type == integers.INT:
        return integers.shorter(expr)
    if expr.op in ("add", "sub") and expr.type.dtype == "int32" and expr.args[0].type == expr.type:
        return expr.args[0] if integers.value_of(expr.args[1]) == 0 else expr
    if expr.op == "power" and isinstance(expr.args[0], Const):
        base = apply("full", (), expr.type.dtype, (), value=expr.args[0].value)
        return replace(expr, args=(base, expr.args[1]))
    return expr


@dataclass(frozen=True)
class Running:
    """An axis where it runs: the first position of its tile, its range, positions and mask."""

    start: Expr
    begin: Expr
    end: Expr
    at: Expr | None = None
    inside: Expr | None = None


@dataclass
class Shared:
    """What all scopes of one launch share: names, constants, and what is stored to."""

    kernel: Prepared
    taken: set[str]
    stored: frozenset[str]
    uses: Counter[str]
    inits: frozenset[str]  # values that a loop begins with, and changes
    reads_before: bool  # whether what does not move with a loop is read before it, see Target
    boxed: frozenset[Load] = frozenset()  # loads that may go through descriptors
    pointers: dict[str, str] = field(default_factory=dict)  # tensor -> why one of them does not
    lengths: dict[str, Var] = field(default_factory=dict)  # what is made once, at the top
    tops: list[Step] = field(default_factory=list)

    def fresh(self, wish: str) -> str:
        return take(wish.replace(".", ""), self.taken)


@dataclass
class Scope:
    """One body while it is lowered; an inner one sees the values of those around it."""

    shared: Shared
    locals: dict[str, Expr] = field(default_factory=dict)
    axes: dict[str, Running] = field(default_factory=dict)
    seen: dict[Load, Var] = field(default_factory=dict)
    ends: dict[Expr, Expr] = field(default_factory=dict)  # of ranges, as they were lowered
    places: dict[Expr, Var] = field(default_factory=dict)  # positions that are kept inside
    wished: dict[str, str] = field(default_factory=dict)  # name of the IR -> its name in the text
    own: set[str] = field(default_factory=set)  # names that this body defines
    steps: list[Step] = field(default_factory=list)

    @property
    def kernel(self) -> Prepared:
        return self.shared.kernel

    def inner(self) -> Scope:
        """A scope for the body of a loop."""
        own = dict(self.locals), dict(self.axes), dict(self.seen), dict(self.ends)
        return Scope(self.shared, *own, dict(self.places))

    def let(self, wish: str, value: Expr, loc: Loc | None = None) -> Var:
        """A new name of the text for a value that is lowered already."""
        name = self.shared.fresh(wish)
        self.steps.append(Let(name, value, loc))
        return Var(name, value.type)

    def named(self, value: Expr, wish: str, loc: Loc | None = None) -> Expr:
        """A lowered value as what is cheap to write again."""
        return value if isinstance(value, Var | Const) else self.let(wish, value, loc)

    def _before(self, value: Expr) -> Var | None:
        """The name that this body has for a value already; None for what an iteration changes."""
        changed = set(self.wished.values())
        if not changed.isdisjoint(read_by((value,))):
            return None
        lets = (s for s in self.steps if isinstance(s, Let) and s.name not in changed)
        return next((Var(s.name, value.type) for s in lets if s.value == value), None)

    def own_name(self, value: Expr, wish: str) -> Var:
        """A lowered value as a name that expressions of the IR may hold."""
        name = f"{wish}.{len(self.locals)}"
        self.locals[name] = value
        return Var(name, value.type)

    # ------------------------------------------------------------ expressions

    def lower(self, expr: Expr, loc: Loc | None = None) -> Expr:
        """The value in terms of names; loads become steps before."""
        match expr:
            case Const():
                return expr
            case Var(name):
                return self.locals[name]
            case GridIndex(axis):
                return self.axes[axis].start
            case TileIndex(axis):
                at = self.axes[axis].at
                assert at is not None
                return at
            case TileScalar(axis, what):
                return self._tile_scalar(axis, what)
            case Load():
                return self.read(expr, None, loc)
            case Apply("in_range"):
                return self._in_range(str(expr.attr("axis")))
            case Apply("arange"):
                return self._arange(expr)
            case Apply():
                return _computed(map_children(expr, lambda e: self.lower(e, loc)))
            case _:
                assert_never(expr)

    def _tile_scalar(self, axis: str, what: str) -> Expr:
        running, step = self.axes[axis], self.kernel.step(axis)
        match what:
            case "begin":
                return running.start
            case "end":
                return self.tile_end(axis)
            case "block_size":
                return integers.const(step)
            case "id":
                return quotient(integers.sub(running.start, running.begin), step)
            case _:
                length = integers.length(running.begin, running.end)
                return quotient(integers.add(length, integers.const(step - 1)), step)

    def tile_end(self, axis: str) -> Expr:
        """Where a tile ends: its last one where the range does."""
        running, step = self.axes[axis], self.kernel.step(axis)
        stop = integers.add(running.start, integers.const(step))
        return stop if self.kernel.is_whole(axis) else integers.minimum(stop, running.end)

    def _in_range(self, dim: str) -> Expr:
        kernel = self.kernel
        if dim in kernel.padded and dim not in self.axes:
            padded = kernel.padded[dim]
            lanes, key = self._constant(dim, dim), f"{dim}_in"
            if key not in self.shared.lengths:
                limit = integers.const(padded.size)
                self._top(key, key, apply("lt", (lanes, limit), "bool", (dim,)))
            return self.shared.lengths[key]
        inside = self.axes[dim].inside
        if inside is not None:
            return inside
        return apply("full", (), "bool", (dim,), value=True)

    def _arange(self, expr: Apply) -> Expr:
        """Positions of a dimension: those from 0 on have a name of their own."""
        (dim,) = expr.type.shape
        start, step = expr.attr("start", 0), expr.attr("step", 1)
        plain = isinstance(start, int) and step == 1 and expr.type.dtype == "int32"
        wish = dim if isinstance(dim, str) else f"at{dim}"
        lanes = self._constant(wish, dim)
        if plain and isinstance(start, int):
            return lanes if start == 0 else integers_add(lanes, start)
        return Apply("arange", (lanes,), expr.type, expr.attrs, expr.loc)

    def _constant(self, wish: str, dim: Dim) -> Var:
        if wish not in self.shared.lengths:
            self._top(wish, wish, arange(dim))
        return self.shared.lengths[wish]

    def _top(self, key: str, wish: str, value: Expr) -> None:
        made = Let(self.shared.fresh(wish), value)
        self.shared.tops.append(made)
        self.shared.lengths[key] = Var(made.name, value.type)

    # ------------------------------------------------------------ memory

    def read(self, load: Load, name: str | None, loc: Loc | None) -> Var:
        """The name of what a load gives; the same one for the same load of what nobody stores."""
        if load in self.seen and name is None:
            return self.seen[load]
        boxes = self._boxes(load)
        if boxes is not None:
            return self._fetched(load, boxes, name, loc)
        lowered = self._without_gathers(load, loc)
        found, _ = access(self.kernel, load.tensor, lowered.index, lowered.mask)
        made = self.lowered(found, loc)
        suffix = "tile" if load.type.shape else "value"
        value = Var(name or self.shared.fresh(f"{load.tensor}_{suffix}"), load.type)
        self.steps.append(Read(value.name, load.type, made, load.other, loc or load.loc))
        if self.kernel.ir.root(load.tensor) not in self.shared.stored and name is None:
            self.seen[load] = value
        return value

    def lowered(self, found: Access, loc: Loc | None) -> Access:
        """The same elements in terms of names."""
        offset = None if found.offset is None else self.lower(found.offset, loc)
        if found.mask is None:
            return replace(found, offset=offset)
        mask = self.lower(found.mask, loc)
        named = {s.name: s.value for s in self.steps if isinstance(s, Let)}
        return replace(found, offset=offset, mask=by_dimension(mask, named))

    def reads_before(self, load: Load) -> bool:
        """Whether what does not move with a loop is read before it here: Triton moves no boxes."""
        return self.shared.reads_before or self._boxes(load) is not None

    def _boxes(self, load: Load) -> Boxes | None:
        """How a descriptor copies a load, where it may."""
        if load not in self.shared.boxed:
            return None
        found = box_of(self.kernel, load, self.shared.stored)
        if isinstance(found, Boxes):
            return found
        self.shared.pointers[load.tensor] = found
        return None

    def _fetched(self, load: Load, found: Boxes, name: str | None, loc: Loc | None) -> Var:
        """The name of a box that a descriptor copies."""
        ends = tuple(self._end(end) for end in found.ends)
        start = tuple(self._first(entry, loc) for entry in found.start)
        made = self.shared.fresh(f"{load.tensor}_boxes")
        value = Var(name or self.shared.fresh(f"{load.tensor}_tile"), load.type)
        self.steps += [
            Descriptor(made, found.root, ends, found.strides, found.box, found.why, loc),
            Fetch(value.name, load.type, made, start, loc or load.loc),
        ]
        if name is None:
            self.seen[load] = value
        return value

    def _end(self, end: End) -> Expr:
        """The length that a descriptor is told: never 0, which hardware takes for 2**32."""
        if end.axis is None:
            return integers.const(end.limit or 1)
        last = self.axes[end.axis].end
        return integers.maximum(last if end.limit is None else integers.minimum(last, end.limit), 1)

    def _first(self, entry: Index, loc: Loc | None) -> Expr:
        match entry:
            case Along(axis):
                return self.axes[axis].start
            case Span(start, _):
                return integers.const(start)
            case At(expr) | Gather(expr):
                return self._place(self.lower(expr, loc), loc)
            case _:
                assert_never(entry)

    def _place(self, at: Expr, loc: Loc | None) -> Expr:
        """A position; one that is kept inside of its array has a name, for others at the same."""
        match at:
            case Apply("minimum", (Apply("maximum", (Var(name), Const())), Const())):
                wish = f"{name}_inside"
                if name in self.wished.values():  # which an iteration changes
                    return self.let(wish, at, loc)
                if at not in self.places:
                    self.places[at] = self.let(wish, at, loc)
                return self.places[at]
            case _:
                return at

    def _without_gathers(self, load: Load, loc: Loc | None) -> Load:
        """The load at named positions; those that are inside of the tensor are not checked."""
        shape = self.kernel.ir.tensor(load.tensor).shape
        index = tuple(
            At(made.expr)
            if isinstance(made, Gather)
            and isinstance(entry, Gather)
            and self.kernel.lies_in(entry.expr, size)
            else made
            for made, entry, size in zip(
                self.positions(load.tensor, load.index, loc), load.index, shape, strict=True
            )
        )
        return Load(load.tensor, index, load.type, load.mask, load.other, load.loc)

    def positions(self, tensor: str, index: tuple[Index, ...], loc: Loc | None) -> tuple:
        """An index whose gathered and moved rows have names: masks and offsets are made of them."""
        made: list[Index] = []
        for entry in index:
            rows: Expr | None = None
            match entry:
                case At(expr) if not expr.type.shape:
                    at = self._place(self.lower(expr, loc), loc)
                    entry = At(self.own_name(at, tensor)) if isinstance(at, Var) else entry
                case Gather(expr):
                    rows = expr
                case Along(axis, offset) if offset is not None and not isinstance(offset, Const):
                    lanes = TileIndex(axis, Type((axis,), "int32"))
                    rows = replace(integers.add(lanes, offset), type=lanes.type)
                case _:
                    pass  # a position that every lane computes itself
            if rows is not None:
                lowered = self.lower(rows, loc)
                named = self._before(lowered) or self.named(lowered, f"{tensor}_rows", loc)
                entry = Gather(self.own_name(named, tensor))
            made.append(entry)
        return tuple(made)


def integers_add(lanes: Var, start: int) -> Expr:
    """Positions that begin at a number."""
    return Apply("add", (integers.const(start), lanes), lanes.type)
