"""Stored places: places in arrays that vector memory does not hold -> a loop before stores them.

    for t in tile(20):                                for t_1 in tile(20):
        y[t, :] = emb[argmax(logits[t, :], 1), :]         t_measure[t_1] = argmax(logits[t_1, :], 1)
                                                ->    for t in tile(20):
                                                          y[t, :] = emb[t_measure[t], :]

Rows of a large array are copied by numbers of scalar memory.  Those of a small one are picked where
they are computed (`one_hot_loads`, `one_hot_stores`), which needs no loop before.  Numbers of a
large array, `flat[ids[t] * N + t.index]`, are put together by XLA (`gather_ahead`) before the nest,
which takes one index array that says where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.codegen.pallas.computed import ComputedPlaces
from tilelang.codegen.pallas.measures import Measures, map_sites, measuring
from tilelang.codegen.pallas.row_loads import no_room
from tilelang.codegen.pallas.target import Target
from tilelang.ir import At, Axis, Expr, Gather, KernelIR, Load, Loop, Store
from tilelang.ir.traversal import loads

from .one_hot_loads import picked_load
from .one_hot_stores import picked_store


def stored_places(kernel: KernelIR, target: Target) -> KernelIR:
    """The kernel whose computed places are numbers in memory where no one-hot picks them.

    What is stored may itself be looked up at such a place: of several each round takes the inner.
    """
    before = None
    while kernel is not before:
        before, kernel = kernel, measuring(kernel, partial(_nest, kernel, target))
    return kernel


def _nest(
    kernel: KernelIR, target: Target, measures: Measures, nest: Loop
) -> tuple[Loop, Sequence[Axis]]:
    computed = ComputedPlaces(kernel, nest)

    def asked(site: Load | Store) -> tuple[int, Expr] | None:
        """The dimension of a place that no memory has and nothing picks, and what says it."""
        place = computed.place(site)
        if place is None and isinstance(site, Load):
            return _numbers(kernel, computed, site, target)
        full = None if place is None else computed.far(place)
        if place is None or full is None:
            return None
        if isinstance(site, Load):
            picked = picked_load(kernel, site, place, target) is not None
        else:
            picked = picked_store(kernel, site, place, target) is not None
        return None if picked else (place.at, full)

    def change(site: Load | Store, around: tuple[Axis, ...]) -> tuple[ir.Index, ...]:
        found = asked(site)
        if found is None or any(asked(load) for load in loads(found[1])):
            return site.index
        at, full = found
        many = isinstance(site.index[at], Gather)
        made = measures.rows(around, full) if many else measures.number(around[-1], around, full)
        return site.index if made is None else _with(site.index, at, made)

    return map_sites(kernel, nest, change), ()


def _numbers(
    kernel: KernelIR, computed: ComputedPlaces, load: Load, target: Target
) -> tuple[int, Expr] | None:
    """The last dimension of an array that scalar memory has no room for, and what says its place.

    XLA puts numbers of it together where an index array alone says which.
    """
    *others, entry = load.index
    if not isinstance(entry, Gather) or any(isinstance(each, Gather) for each in others):
        return None
    full = computed.written_out(entry.expr)
    far = no_room(kernel, load.tensor, target) and not computed.changes(load.tensor)
    return (len(others), full) if far and not isinstance(full, Load) else None


def _with(index: tuple[ir.Index, ...], at: int, made: Expr) -> tuple[ir.Index, ...]:
    entry = index[at]
    assert isinstance(entry, At | Gather)
    return (*index[:at], replace(entry, expr=made), *index[at + 1 :])
