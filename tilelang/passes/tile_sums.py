"""Tile sums: what sums over the whole length of arrays, as a loop over tiles of it.

    y[t, :] = dot(x[t, :], w[g, :, :])   ->   for k in tile(512) carrying acc = 0:
                                                  next acc = acc + dot(x[t, k], w[g, k, :])
                                              y[t, :] = acc

A whole operand has to be in shared memory at once, and a loop keeps a few tiles of it on their way.
What operands are computed from is computed for each tile; nothing that they read is stored to.
Other sums, the largest and the smallest, are taken so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from ..ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Carry,
    Dim,
    Expr,
    Index,
    KernelIR,
    Load,
    Loop,
    Span,
    Stmt,
    Store,
    TileIndex,
    Type,
    Var,
    integers,
    walk,
)
from ..ir.names import fresh, names_in, take
from ..ir.traversal import definitions, map_body, map_index, map_stmt, reduced, rewriting
from ..language.build import binary, cast
from ..language.dtypes import is_float
from ..language.op import COMBINED_BY, ELEMENTWISE, neutral
from .separate_joins import followed

Wanted = Callable[[Apply], bool]
EACH = {"transpose", "expand_dims"} | ELEMENTWISE
COMBINED = {"dot": "add", **COMBINED_BY}  # those of the tiles


def tile_sums(ir: KernelIR, wanted: Wanted) -> KernelIR:
    """The kernel whose products and sums for which `wanted` holds have such a loop, if they may."""
    sums = _Tiled(ir)
    body = map_body(ir.body, lambda stmt: sums.statement(stmt, wanted))
    return replace(ir, body=body, axes=(*ir.axes, *sums.axes)) if sums.axes else ir


class _Tiled:
    """The loops of one kernel, with names that nothing has."""

    def __init__(self, ir: KernelIR) -> None:
        self.ir, self.axes = ir, list[Axis]()
        self.taken = names_in(ir) | {ir.name}
        self.defined = dict(definitions(ir.body))
        self.stored = ir.stored()

    def statement(self, stmt: Stmt, wanted: Wanted) -> tuple[Stmt, ...]:
        """A statement behind the loops of its own products; a loop has those of `next` inside."""
        if isinstance(stmt, Loop):
            last: list[Loop] = []
            visit = self._visit(wanted, last, True)
            carries = tuple(replace(c, next=visit(c.next)) for c in stmt.carries)
            return (replace(stmt, body=(*stmt.body, *last), carries=carries) if last else stmt,)
        before: list[Loop] = []
        atomic = isinstance(stmt, Store) and stmt.combine is not None
        visit = self._visit(wanted, before, not atomic)
        made = map_stmt(stmt, visit, lambda entry: map_index(entry, visit))
        if isinstance(made, Assign):  # sums of it are sums of what it is now
            self.defined[made.name] = made.value
        return (*before, made)

    def _visit(self, wanted: Wanted, before: list[Loop], into: bool) -> Callable[[Expr], Expr]:
        """A rewriting of products to what the loops put into `before` leave.

        `into`: what a product is added to may be what its loop begins with.
        """

        def change(expr: Expr) -> Expr | None:
            if not isinstance(expr, Apply):
                return None
            acc, dot = _added(expr) if into or expr.op in COMBINED else (None, None)
            parts = () if acc is None else walk(acc)
            if dot is None or not wanted(dot) or any(_is_dot(e) and wanted(e) for e in parts):
                return None
            own = replace(dot, args=tuple(map(visit, dot.args)))  # sums of sums: inner ones first
            if (loop := self._loop(own, acc)) is None:
                return None
            before.append(loop)
            return cast(Var(loop.carries[0].out, _kept(dot)), expr.type.dtype, None)

        visit = rewriting(change)
        return visit

    def _loop(self, dot: Apply, acc: Expr | None) -> Loop | None:
        """The loop of one product, or None where an operand is not made tile by tile."""
        over = reduced(dot)
        size = over[0][0].type.shape[over[0][1]]
        if not isinstance(size, int) or any(dot.attr("batch", ((), ()))):
            return None
        loc, name = dot.loc or self.ir.loc, fresh("tk", self.taken)
        part = PartOfDim(name, self.ir, self.defined, self.stored)
        args = tuple(made for arg, dim in over if (made := part.of(arg, dim)) is not None)
        if len(args) < len(over):
            return None
        self.taken.add(name)
        begin, end = integers.const(0), integers.const(size)
        self.axes.append(Axis(name, "tile", begin, end, size, name, loc, name))
        form = _kept(dot)
        empty = neutral("sum" if dot.op == "dot" else dot.op, form.dtype)
        start = acc or Apply("full", (), form, (("value", empty),))
        carried, after = (take("acc", self.taken) for _ in range(2))
        tile = replace(dot, args=args, type=form)
        more = binary(COMBINED[dot.op], Var(carried, form), tile, None)
        return Loop(name, (), (Carry(carried, start, more, after, carried, loc),), loc)


def _kept(dot: Apply) -> Type:
    """What a product is added up in, or what else is taken of tiles."""
    if COMBINED[dot.op] != "add":
        return dot.type
    return Type(dot.type.shape, "float32" if is_float(dot.args[0].type.dtype) else "int32")


def _added(expr: Apply) -> tuple[Expr | None, Apply | None]:
    """What a product is added to where that has its type, and the product."""
    if expr.op in COMBINED:
        return None, expr
    if expr.op == "add":
        for acc, dot in (expr.args, expr.args[::-1]):
            if _is_dot(dot) and acc.type == expr.type == _kept(dot):
                return acc, dot
    return None, None


def _is_dot(expr: Expr) -> TypeGuard[Apply]:
    return isinstance(expr, Apply) and expr.op == "dot"


@dataclass(frozen=True)
class PartOfDim:
    """Values with a part of one dimension in place of its whole length.

    along   a tile axis, or how long the part is that begins at `first`
    stored  tensors that somebody stores to
    """

    along: Dim
    ir: KernelIR
    defined: Mapping[str, Expr]
    stored: Collection[str]
    first: int = 0

    def of(self, expr: Expr, dim: int) -> Expr | None:
        """The value with a tile as dimension `dim`; None for what is not made element by element.

        None as well for what a store may change between there and here.
        """
        match expr:
            case Load():
                return self._load(expr, dim)
            case Var(name) if name in self.defined:
                return self.of(self.defined[name], dim)
            case Apply("full", ()):
                return self._shaped(expr, dim, ())
            case Apply("arange", ()):
                return self._positions(expr)
            case Apply(op, args) if op in EACH:
                parts = zip(args, followed(expr, dim) or (), strict=True)
                made = (a if place is None else self.of(a, place) for a, place in parts)
                return self._shaped(expr, dim, tuple(made))
            case _:
                return None

    def _aligned(self, arg: Expr, behind: int) -> Expr | None:
        """An operand, with a tile where it has the dimension so far from the end."""
        dim = arg.type.rank - behind
        return arg if dim < 0 or arg.type.shape[dim] == 1 else self.of(arg, dim)

    def _shaped(self, expr: Apply, dim: int, args: tuple[Expr | None, ...]) -> Expr | None:
        made = tuple(a for a in args if a is not None)
        if len(made) < len(args):
            return None
        return replace(expr, args=made, type=Type(self._shape(expr, dim), expr.type.dtype))

    def _shape(self, expr: Expr, dim: int) -> tuple[Dim, ...]:
        shape = expr.type.shape
        return (*shape[:dim], self.along, *shape[dim + 1 :])

    def _positions(self, expr: Apply) -> Expr | None:
        start, step = expr.attr("start"), expr.attr("step")
        if not (isinstance(start, int) and isinstance(step, int)):
            return None  # fractions are rounded as they were written
        form = Type((self.along,), "int32")
        if isinstance(self.along, int):
            attrs = (("start", start + self.first * step), ("step", step))
            return replace(expr, type=Type(form.shape, expr.type.dtype), attrs=attrs)
        index: Expr = TileIndex(self.along, form)
        index = index if step == 1 else binary("mul", index, step, None)
        index = index if start == 0 else binary("add", index, start, None)
        return cast(index, expr.type.dtype, None)

    def _load(self, load: Load, dim: int) -> Expr | None:
        if self.ir.root(load.tensor) in self.stored:
            return None
        places = [n for n, entry in enumerate(load.index) if not isinstance(entry, At)]
        span = load.index[places[dim]]
        mask = None if load.mask is None else self._aligned(load.mask, load.type.rank - dim)
        if not isinstance(span, Span) or (mask is None) != (load.mask is None):
            return None
        along: Index
        if isinstance(self.along, int):
            first = span.start + self.first
            along = Span(first, first + self.along)
        else:
            along = Along(self.along, integers.const(span.start) if span.start else None)
        index = tuple(along if n == places[dim] else e for n, e in enumerate(load.index))
        form = Type(self._shape(load, dim), load.type.dtype)
        return replace(load, index=index, type=form, mask=mask)
