"""Stores through views: an array that a loop stores to has one name in it, and one order.

v = y.T                     a permutation, or dimensions of length 1 more or less
for t in hl.tile(...):
    v[:, t] = a        ->   y[t, :] = a.T
    b = v[:, t]        ->   b = y[t, :].T
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from .. import ir
from ..errors import Loc
from ..ir.integers import const
from ..ir.traversal import rebuilding
from ..language.shapes import as_rank, expand_dims, squeeze, transpose
from .scope import Draft

Dims = tuple[int | None, ...]  # of a view: the dimension of the array that each is; None: only its


@dataclass(frozen=True)
class Rearranged:
    """A place of a view as a place of its array.

    order   of a value: which dimension of the array's each dimension is that both have
    added   dimensions, of length 1, that only the value of the view has
    """

    array: str
    index: tuple[ir.Index, ...]
    order: tuple[int, ...]
    added: tuple[int, ...]

    def to_view(self, value: ir.Expr, loc: Loc | None) -> ir.Expr:
        value = transpose(value, self.order, loc)
        for dim in self.added:
            value = expand_dims(value, dim, loc)
        return value

    def to_array(self, value: ir.Expr, loc: Loc | None) -> ir.Expr:
        """What is stored, or a mask: of fewer dimensions, or with some of length 1, too."""
        if not value.type.shape:
            return value
        if isinstance(value, ir.Apply) and value.op == "cast":  # it stays the last of all
            inner = self.to_array(value.args[0], loc)
            return replace(value, args=(inner,), type=replace(value.type, shape=inner.type.shape))
        value = as_rank(value, len(self.order) + len(self.added), loc)
        for dim in reversed(self.added):
            value = squeeze(value, dim, loc)
        return transpose(value, _order_back(self.order), loc)


def _order_back(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(dim) for dim in range(len(order)))


def through_views(draft: Draft, body: tuple[ir.Loop, ...]) -> tuple[ir.Loop, ...]:
    """The loops with such views of what they store to as the arrays, ranges in the draft too."""
    return tuple(_direct(draft, loop) for loop in body)


def _direct(draft: Draft, loop: ir.Loop) -> ir.Loop:
    inside = tuple(ir.statements((loop,)))
    stored = {draft.root(s.tensor).name for s in inside if isinstance(s, ir.Store)}
    views = {
        t.name: dims
        for t in draft.tensors.values()
        if t.view and draft.root(t.name).name in stored and (dims := dims_of(draft, t)) is not None
    }
    if not views:
        return loop

    def seen(name: str, index: tuple[ir.Index, ...]) -> Rearranged | None:
        return rearranged(draft.root(name), views[name], index) if name in views else None

    read: dict[ir.Expr, ir.Expr] = {}
    visit = rebuilding(partial(_load, seen, read))

    def change(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        made = ir.map_stmt(stmt, visit, partial(ir.map_index, fn=visit))
        return (_store(seen, read, made) if isinstance(made, ir.Store) else made,)

    for name in (s.axis for s in inside if isinstance(s, ir.Loop)):
        draft.axes[name] = ir.map_range(draft.axes[name], visit)
    (made,) = ir.map_body((loop,), change)
    assert isinstance(made, ir.Loop)
    return made


def dims_of(draft: Draft, tensor: ir.Tensor) -> Dims | None:
    """What each dimension is of the array; None where a view merges or splits some."""
    view = tensor.view
    if view is None:
        return tuple(range(len(tensor.shape)))
    source = draft.tensors[view.source]
    inner = dims_of(draft, source)
    if inner is None or view.how not in ("permute", "reshape"):
        return None
    if view.how == "permute":
        return tuple(inner[p] for p in view.arg)
    return kept_dims(source.shape, inner, tensor.shape)


def kept_dims(shape: tuple[int, ...], dims: Dims, seen: tuple[int, ...]) -> Dims | None:
    """The dimensions of an array that is seen in another shape; None if it merges or splits some.

    >>> kept_dims((12, 1, 8), (0, 1, 2), (12, 8, 1))
    (0, 2, None)
    """
    found, left = list[int | None](), list(zip(shape, dims, strict=True))
    for size in seen:
        while left and left[0][0] == 1 != size:
            left.pop(0)
        if left and left[0][0] == size:
            found.append(left.pop(0)[1])
        elif size == 1:
            found.append(None)
        else:
            return None
    return tuple(found) if all(size == 1 for size, _ in left) else None


def rearranged(array: ir.Tensor, dims: Dims, index: tuple[ir.Index, ...]) -> Rearranged | None:
    """None where what is read of a dimension that only the view has may lie outside of it."""
    pairs = tuple(zip(dims, index, strict=True))
    first = ir.At(const(0))
    if any(dim is None and entry not in (first, ir.Span(0, 1)) for dim, entry in pairs):
        return None
    if any(isinstance(e, ir.Gather) and e.expr.type.rank != 1 for e in index):
        return None
    own = [dim for dim, entry in pairs if not isinstance(entry, ir.At)]
    both = [dim for dim in own if dim is not None]
    known = {dim: entry for dim, entry in pairs if dim is not None}
    return Rearranged(
        array.name,
        tuple(known.get(dim, first) for dim in range(len(array.shape))),
        tuple(sorted(both).index(dim) for dim in both),
        tuple(place for place, dim in enumerate(own) if dim is None),
    )


Way = Callable[[str, tuple[ir.Index, ...]], Rearranged | None]


def _load(seen: Way, read: dict[ir.Expr, ir.Expr], expr: ir.Expr) -> ir.Expr | None:
    """A load of the array instead; `read` remembers what it is of."""
    if not isinstance(expr, ir.Load) or (way := seen(expr.tensor, expr.index)) is None:
        return None
    shape = way.to_array(ir.Var("", expr.type), expr.loc).type.shape
    mask = None if expr.mask is None else way.to_array(expr.mask, expr.loc)
    kind = replace(expr.type, shape=shape)
    load = replace(expr, tensor=way.array, index=way.index, type=kind, mask=mask)
    found = way.to_view(load, expr.loc)
    read[found] = load
    return found


def _store(seen: Way, read: dict[ir.Expr, ir.Expr], store: ir.Store) -> ir.Store:
    way, loc = seen(store.tensor, store.index), store.loc
    if way is None:
        return store
    mask = None if store.mask is None else way.to_array(store.mask, loc)
    value = store.value
    if store.combine is None:
        value = way.to_array(value, loc)
    else:  # with what is there, which was read by the same view
        assert isinstance(value, ir.Apply)
        there, new = value.args
        kept = read[there]
        value = replace(value, args=(kept, way.to_array(new, loc)), type=kept.type)
    return replace(store, tensor=way.array, index=way.index, value=value, mask=mask)
