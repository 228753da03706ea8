"""Separate joins: what is computed of joined values is computed of each of them by itself.

    c = cat(a[t, 8], b[t, 4])
    y[t, 0:12] = exp(c) * w[t, 0:12]    ->   y[t, 0:8] = exp(a) * w[t, 0:8]
                                             y[t, 8:12] = exp(b) * w[t, 8:12]
    sum(exp(c))                         ->   sum(exp(a)) + sum(exp(b))
    dot(c, w[0:12, n])                  ->   dot(a, w[0:8, n]) + dot(b, w[8:12, n])

No lane has to change its place for it.  A join that is needed as a whole stays: what a loop
carries, what has another shape afterwards, the largest element of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from ..ir import (
    Apply,
    Assign,
    At,
    Body,
    Expr,
    KernelIR,
    Load,
    Span,
    Stmt,
    Store,
    Type,
    Var,
    every_expr,
)
from ..ir.names import names_in, take
from ..ir.traversal import definitions, loads, map_body, map_stmt, rebuilding
from ..language.dtypes import is_narrow
from ..language.op import ELEMENTWISE, REDUCTIONS
from .drop_unused import drop_unused

Ends = tuple[int, ...]  # where the pieces of a dimension end: the last one where it does


def separate_joins(ir: KernelIR) -> KernelIR:
    """The kernel without the joins whose values can go on by themselves; itself if it has none."""
    if not any(_is_join(e) for e in every_expr(ir.body, ir.axes)):
        return ir
    rewriting = Separating(ir, definitions(ir.body), names_in(ir))
    return rewriting.kernel(map_body(ir.body, rewriting.stmt))


def _is_join(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.op == "concat"


def followed(expr: Apply, dim: int) -> tuple[int | None, ...] | None:
    """Which dimension of each operand has lane n for lane n of a dimension of the result.

    None for an operand that is the same for all of them; None at all where lanes are not made of
    one of each.
    """
    rank = expr.type.rank
    match expr.op:
        case "transpose":
            return (expr.attr("perm")[dim],)
        case "expand_dims":
            return (dim - (dim > expr.attr("axis")),)
        case "squeeze":
            return (dim + (dim >= expr.attr("axis")),)
        case "concat" | "narrow":
            return (dim,) * len(expr.args)
        case "dot":
            return _of_product(expr, dim)
        case op if op == "broadcast" or op in ELEMENTWISE:
            found = (dim - rank + a.type.rank for a in expr.args)
            pairs = zip(found, expr.args, strict=True)
            return tuple(None if d < 0 or a.type.shape[d] == 1 else d for d, a in pairs)
        case op if op in REDUCTIONS:
            return (dim + (dim >= expr.attr("axis") and not expr.attr("keepdim")),)
        case _:
            return None


def _of_product(expr: Apply, dim: int) -> tuple[int | None, ...]:
    """Dimensions of a product: those of the batch, then the rest of either operand."""
    batch: tuple[tuple[int, ...], ...] = expr.attr("batch", ((), ()))
    count = len(batch[0])
    if dim < count:
        return tuple(dims[dim] for dims in batch)
    places: list[tuple[int | None, ...]] = []
    for side, (value, along) in enumerate(zip(expr.args, expr.attr("contract"), strict=True)):
        free = (d for d in range(value.type.rank) if d != along and d not in batch[side])
        places += [(d, None) if side == 0 else (None, d) for d in free]
    return places[dim - count]


@dataclass(frozen=True)
class Separating:
    """What is known of a kernel's values while its joins are separated."""

    ir: KernelIR
    values: dict[str, Expr]
    names: set[str]
    pieces: dict[tuple[str, int, Ends], list[Var] | None] = field(default_factory=dict)
    made: dict[str, list[Assign]] = field(default_factory=dict)  # what follows a value of the name
    joints: dict[tuple[int, int], tuple[Expr, frozenset[int]]] = field(default_factory=dict)

    def kernel(self, body: Body) -> KernelIR:
        """The kernel with that body, the pieces behind what they are of, and no value in vain."""
        body = map_body(body, lambda s: (s, *self.after(s)))
        own = {n for name, parts in self.made.items() for n in (name, *(p.name for p in parts))}
        return replace(self.ir, body=drop_unused(body, self.ir.axes, own))

    # ------------------------------------------------------------ statements

    def stmt(self, stmt: Stmt) -> Body:
        stmt = map_stmt(stmt, rebuilding(self._folded))
        if isinstance(stmt, Assign):
            self.values[stmt.name] = stmt.value
        return tuple(self._stores(stmt)) if isinstance(stmt, Store) else (stmt,)

    def after(self, stmt: Stmt) -> list[Assign]:
        return self.made.get(stmt.name, []) if isinstance(stmt, Assign) else []

    def _stores(self, store: Store) -> list[Store]:
        """A store of joined values as one of each, unless one would read what another stores."""
        places = [n for n, entry in enumerate(store.index) if not isinstance(entry, At)]
        first = len(places) - store.value.type.rank
        for dim in range(store.value.type.rank):
            entry = store.index[places[first + dim]]
            ends = self.ends(store.value, dim)
            if not isinstance(entry, Span) or len(ends) < 2:
                continue
            values = self.cut(store.value, dim, ends)
            masks = self._cut_mask(store, dim, ends)
            if values is None or masks is None or any(self._reads(store, v) for v in values):
                continue
            made = []
            for value, mask, begin, end in zip(values, masks, (0, *ends), ends, strict=False):
                index = list(store.index)
                index[places[first + dim]] = Span(entry.start + begin, entry.start + end)
                made += self._stores(replace(store, index=tuple(index), value=value, mask=mask))
            return made
        return [store]

    def _cut_mask(self, store: Store, dim: int, ends: Ends) -> Sequence[Expr | None] | None:
        mask = store.mask
        if mask is None:
            return [None] * len(ends)
        place = dim - store.value.type.rank + mask.type.rank
        if place < 0 or mask.type.shape[place] == 1:
            return [mask] * len(ends)
        return self.cut(mask, place, ends)

    def _reads(self, store: Store, value: Expr) -> bool:
        root = self.ir.root(store.tensor)
        own = {store.combine and store.tensor}  # an update reads the place that it stores to
        return any(self.ir.root(x.tensor) == root and x.tensor not in own for x in loads(value))

    # ------------------------------------------------------------ expressions

    def _folded(self, expr: Expr) -> Expr:
        """A sum along joined values as that of each, added up."""
        match expr:
            case Apply("sum") if not is_narrow(expr.type.dtype):
                dims = (expr.attr("axis"),)
            case Apply("dot") if not is_narrow(expr.type.dtype):
                dims = expr.attr("contract")
            case _:
                return expr
        found = {e for a, d in zip(expr.args, dims, strict=True) for e in self.ends(a, d)}
        if len(found) < 2:
            return expr
        ends = tuple(sorted(found))
        cut = [self.cut(a, d, ends) for a, d in zip(expr.args, dims, strict=True)]
        if any(c is None for c in cut):
            return expr
        terms = [replace(expr, args=args) for args in zip(*filter(None, cut), strict=True)]
        made: Expr = terms[0]
        for term in terms[1:]:
            made = Apply("add", (made, term), expr.type, (), expr.loc)
        return made

    def ends(self, expr: Expr, dim: int) -> Ends:
        """Where values that were joined end along a static dimension; only its own end if none."""
        size = expr.type.shape[dim]
        return (*sorted(self._joints(expr, dim)), size) if isinstance(size, int) else ()

    def _joints(self, expr: Expr, dim: int) -> frozenset[int]:
        if isinstance(expr, Var):
            known = self.values.get(expr.name)
            return frozenset() if known is None else self._joints(known, dim)
        if not isinstance(expr, Apply):
            return frozenset()
        if (id(expr), dim) not in self.joints:
            self.joints[id(expr), dim] = expr, frozenset(self._found(expr, dim))
        return self.joints[id(expr), dim][1]

    def _found(self, expr: Apply, dim: int) -> set[int]:
        if expr.op == "concat" and expr.attr("axis") == dim:
            begins = _begins(expr, dim)
            inner = ((b, self._joints(a, dim)) for a, b in zip(expr.args, begins, strict=False))
            own = {b for b in begins if 0 < b < begins[-1]}
            return own | {b + e for b, joints in inner for e in joints}
        if expr.op == "narrow" and expr.attr("axis") == dim:
            start, stop = expr.attr("start"), expr.attr("stop")
            return {e - start for e in self._joints(expr.args[0], dim) if start < e < stop}
        dims = followed(expr, dim)
        pairs = zip(expr.args, dims, strict=True) if dims is not None else ()
        return {e for a, d in pairs if d is not None for e in self._joints(a, d)}

    def cut(self, expr: Expr, dim: int, ends: Ends) -> list[Expr] | None:
        """The pieces of a value along a static dimension; None where only all of it is there."""
        match expr:
            case Var(name):
                named = self._named(name, dim, ends)
                return None if named is None else list(named)
            case Load():
                return self._parts_of_load(expr, dim, ends)
            case Apply("concat") if expr.attr("axis") == dim:
                return self._parts_of_join(expr, dim, ends)
            case Apply("narrow", (value,)) if expr.attr("axis") == dim:
                return self._parts_of_part(expr, value, dim, ends)
            case Apply("arange"):
                start, step = expr.attr("start", 0), expr.attr("step", 1)
                at = [start + begin * step for begin in (0, *ends[:-1])]
                attrs = [tuple({**dict(expr.attrs), "start": a}.items()) for a in at]
                made = [replace(expr, attrs=a) for a in attrs]
                return [_sized(e, dim, n) for e, n in zip(made, _lengths(ends), strict=True)]
            case Apply("full"):
                return [_sized(expr, dim, n) for n in _lengths(ends)]
            case Apply():
                return self._parts_of_op(expr, dim, ends)
            case _:
                return None

    def _named(self, name: str, dim: int, ends: Ends) -> list[Var] | None:
        """Names of the pieces of a value, which follow it."""
        if (name, dim, ends) not in self.pieces:
            value = self.values.get(name)
            parts = None if value is None else self.cut(value, dim, ends)
            self.pieces[name, dim, ends] = None if parts is None else [
                self._piece(name, part) for part in parts
            ]  # fmt: skip
        return self.pieces[name, dim, ends]

    def _piece(self, name: str, value: Expr) -> Var:
        own = take(name, self.names)
        self.values[own] = value
        self.made.setdefault(name, []).append(Assign(own, value, self.ir.loc, own))
        return Var(own, value.type)

    def _parts_of_load(self, load: Load, dim: int, ends: Ends) -> list[Expr] | None:
        places = [n for n, entry in enumerate(load.index) if not isinstance(entry, At)]
        entry = load.index[places[dim]]
        if not isinstance(entry, Span) or load.mask is not None:
            return None
        made: list[Expr] = []
        for begin, end in zip((0, *ends[:-1]), ends, strict=True):
            index = list(load.index)
            index[places[dim]] = Span(entry.start + begin, entry.start + end)
            made.append(_sized(replace(load, index=tuple(index)), dim, end - begin))
        return made

    def _parts_of_join(self, expr: Apply, dim: int, ends: Ends) -> list[Expr] | None:
        made: list[Expr] = []
        begins = _begins(expr, dim)
        for value, begin, end in zip(expr.args, begins, begins[1:], strict=False):
            own = tuple(e - begin for e in ends if begin < e <= end)
            parts = [value] if len(own) == 1 else self.cut(value, dim, own) if own else []
            if parts is None:
                return None
            made += parts
        return made

    def _parts_of_part(self, expr: Apply, value: Expr, dim: int, ends: Ends) -> list[Expr] | None:
        """Of the value itself, where the part's pieces lie in it."""
        start = expr.attr("start")
        cuts = tuple(sorted({start, *(start + e for e in ends), *self.ends(value, dim)} - {0}))
        found = self.cut(value, dim, cuts)
        first = cuts.index(start) + 1 if start else 0
        return None if found is None else found[first : first + len(ends)]

    def _parts_of_op(self, expr: Apply, dim: int, ends: Ends) -> list[Expr] | None:
        """Of each piece of the operands; a product without joins in it is computed as a whole."""
        dims = followed(expr, dim)
        if dims is None or (expr.op == "dot" and not self._joints(expr, dim)):
            return None
        columns: list[Sequence[Expr]] = []
        for value, d in zip(expr.args, dims, strict=True):
            parts = [value] * len(ends) if d is None else self.cut(value, d, ends)
            if parts is None:
                return None
            columns.append(parts)
        rows = zip(*columns, strict=True)
        lengths = _lengths(ends)
        return [_sized(replace(expr, args=r), dim, n) for r, n in zip(rows, lengths, strict=True)]


def _begins(join: Apply, dim: int) -> list[int]:
    """Where joined values begin, and where the last one ends: no tile can be joined."""
    sizes = (size for a in join.args if isinstance(size := a.type.shape[dim], int))
    return list(accumulate(sizes, initial=0))


def _lengths(ends: Ends) -> list[int]:
    return [end - begin for begin, end in zip((0, *ends[:-1]), ends, strict=True)]


def _sized(expr: Apply | Load, dim: int, size: int) -> Expr:
    """The same with another length along a dimension."""
    shape = (*expr.type.shape[:dim], size, *expr.type.shape[dim + 1 :])
    return replace(expr, type=Type(shape, expr.type.dtype))
