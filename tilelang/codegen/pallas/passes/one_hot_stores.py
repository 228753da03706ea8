"""One-hot stores: stores and updates at places that are computed -> of the whole dimension.

    atomic_add(y, [argmax(s, 1)], v)       ->  y[0:E] += sum(where(hit, v[:, None], 0), 0)
    atomic_add(y, [argmax(s, 1), d], v)    ->  y[0:E, d] += group_sum(hit.T, v)
    where hit = argmax(s, 1)[:, None] == arange(E)[None, :]
    y[argmax(s, 1), d] = v                 ->  the same of the last row of each place, where it has
                                               one, and else what was there
    y[argmax(s, 0), d] = v                 ->  y[0:E, d] = where(hit[:, None], v, y[0:E, d])

A row that is not picked gets what changes nothing, whatever the others hold; a place outside of the
array picks no row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilelang import ir
from tilelang.codegen.pallas.computed import (
    ComputedPlace,
    ComputedPlaces,
    one_hot,
    product,
    selects_fit,
    spread,
)
from tilelang.codegen.pallas.target import Target, stays
from tilelang.ir import Apply, Expr, Load, Store, Type, every_store
from tilelang.ir.lanes import arange, expanded
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import map_body, picked
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.dtypes import is_float
from tilelang.language.op import REDUCED_BY, neutral
from tilelang.language.shapes import broadcast, reshape, transpose


def one_hot_stores(kernel: ir.KernelIR, target: Target) -> ir.KernelIR:
    """The kernel without stores to small arrays at places that scalar memory cannot hold."""
    found = {
        id(store): made
        for nest in kernel.body
        for computed in [ComputedPlaces(kernel, nest)]
        for store in every_store((nest,))
        if (made := picked_store(kernel, store, computed.place(store), target)) is not None
    }
    if not found:
        return kernel
    taken = names_in(kernel)

    def change(stmt: ir.Stmt) -> ir.Body:
        return found[id(stmt)].made(taken) if id(stmt) in found else (stmt,)

    return replace(kernel, body=map_body(kernel.body, change))


def picked_store(
    kernel: ir.KernelIR, store: Store, place: ComputedPlace | None, target: Target
) -> _PickedStore | None:
    """A store to rows of one dimension, where vector memory holds all of the array."""
    tensor = kernel.tensor(store.tensor)
    if place is None or not place.simple or tensor.dtype == "bool":
        return None
    found = _PickedStore(store, place, tensor.dtype)
    rows = 1 if place.single or found.multiplied else target.rows(4)
    fits = found.by_rows and selects_fit(tensor.shape, rows, target)
    held = place.held(tensor.shape)
    return found if fits and stays(held, tensor.dtype, target, stored=True) else None


@dataclass(frozen=True)
class _PickedStore:
    """A store whose place is computed, to an array of a dtype."""

    store: Store
    place: ComputedPlace
    dtype: str

    @property
    def by_rows(self) -> bool:
        """Whether the mask, too, is one of whole rows: the last one of a row is, then."""
        mask = self.store.mask
        if self.place.single or self.store.combine is not None or mask is None:
            return True
        here = len(self.place.shape) - 1 - self.place.dim
        sizes = tuple(reversed(mask.type.shape))
        return all(size == 1 for place, size in enumerate(sizes) if place != here)

    @property
    def multiplied(self) -> bool:
        """Whether rows of numbers, or columns, are put together, which matrix units do."""
        added = self.store.combine is None or (self.store.combine == "add" and is_float(self.dtype))
        return not self.place.single and added and len(self.place.shape) == 2

    def made(self, taken: set[str]) -> ir.Body:
        """The store of the whole dimension, whose names are taken from then on."""
        store, combine = self.store, self.store.combine
        if combine is None:
            return (self._placed(),) if self.place.single else self._last_ones(taken)
        mask = None if store.mask is None or store.mask.type.shape else store.mask
        old = self._old(mask)
        value = binary(combine, old, self._reduced(combine, self._hit), store.loc)
        return (replace(store, index=old.index, value=value, mask=mask),)

    def _placed(self) -> Store:
        """The store of one place: what is there elsewhere, and where the mask says so, stays."""
        store, loc, dim, mask = self.store, self.store.loc, self.place.dim, self.store.mask
        old = self._old(None)
        hit = spread(self._hit(1), old.type.rank, dim)
        if mask is not None and mask.type.shape:
            mask = expanded(broadcast(mask, self.place.shape, loc), dim)
        if mask is not None:
            hit = binary("logical_and", hit, mask, loc)
        value = where(hit, expanded(self._value("add"), dim), old, loc)
        return replace(store, index=old.index, value=value, mask=None)

    def _last_ones(self, taken: set[str]) -> ir.Body:
        """The store of many places, of which the last one of each row stays."""
        store, loc = self.store, self.store.loc
        old = self._old(None)
        number = ir.Assign(take(f"{store.tensor}_last", taken), self._last(), loc, "")
        last = ir.Var(number.name, number.value.type)

        def hit(axis: int) -> Expr:
            same = binary("eq", expanded(self._number(), axis), expanded(last, 1 - axis), loc)
            return binary("logical_and", self._hit(axis), same, loc)

        some = spread(binary("ge", last, 0, loc), old.type.rank, self.place.dim)
        value = where(some, self._reduced("add", hit), old, loc)
        return number, replace(store, index=old.index, value=value, mask=None)

    def _last(self) -> Expr:
        """[rows of the array]: the number of the last place that picks each, or -1."""
        loc, hit, mask = self.store.loc, self._hit(1), self.store.mask
        if mask is not None and mask.type.shape:
            mask = expanded(reshape(mask, self.place.expr.type.shape, loc), 1)
        if mask is not None:
            hit = binary("logical_and", hit, mask, loc)
        number = where(hit, expanded(self._number(), 1), ir.Const(-1, Type((), "int32")), loc)
        return reduce("max", number, 0, False, loc)

    def _number(self) -> Expr:
        """[places]: their numbers."""
        (rows,) = self.place.expr.type.shape
        kind = Type((rows,), "int32")
        return ir.TileIndex(rows, kind) if isinstance(rows, str) else arange(rows)

    def _old(self, mask: Expr | None) -> Load:
        """What the whole dimension holds."""
        index, store = self.place.whole, self.store
        return Load(store.tensor, index, Type(picked(index), self.dtype), mask, loc=store.loc)

    def _reduced(self, combine: str, hit: Callable[[int], Expr]) -> Expr:
        """[rows of the array, ...]: what the values of each are together."""
        loc, dim = self.store.loc, self.place.dim
        value = self._value(combine)
        if self.place.single:
            here = spread(hit(1), len(self.place.shape) + 1, dim)
            return where(here, expanded(value, dim), self._nothing(combine), loc)
        if self.multiplied and not dim:
            return product(hit(0), value, loc)
        if self.multiplied:
            return transpose(product(hit(0), transpose(value, (1, 0), loc), loc), (1, 0), loc)
        each: Expr = expanded(value, dim + 1)
        if isinstance(value, Apply) and value.op == "full" and not value.args:
            each = ir.Const(value.attr("value"), Type((), self.dtype))
        here = spread(hit(1), value.type.rank + 1, dim)
        own = where(here, each, self._nothing(combine), loc)
        return cast(reduce(REDUCED_BY[combine], own, dim, False, loc), self.dtype, loc)

    def _hit(self, axis: int) -> Expr:
        """[place, row], or [row, place] with `axis` 0: which row a place picks."""
        return one_hot(self.place.expr, self.place.size, axis, self.store.loc)

    def _value(self, combine: str) -> Expr:
        """What every row is combined with; that changes nothing where a mask leaves it out."""
        store, loc = self.store, self.store.loc
        new = store.value if store.combine is None else store.operands[1]
        value = broadcast(new, self.place.shape, loc)
        if store.combine is None or store.mask is None or not store.mask.type.shape:
            return value
        return where(store.mask, value, self._nothing(combine), loc)

    def _nothing(self, combine: str) -> ir.Const:
        return ir.Const(neutral(REDUCED_BY[combine], self.dtype), Type((), self.dtype))
