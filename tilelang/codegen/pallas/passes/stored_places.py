"""Stored places: places in arrays that vector memory does not hold -> a loop before stores them.

    for t in tile(20):                                for t_1 in tile(20):
        y[t, :] = emb[argmax(logits[t, :], 1), :]         t_measure[t_1] = argmax(logits[t_1, :], 1)
                                                ->    for t in tile(20):
                                                          y[t, :] = emb[t_measure[t], :]

Rows of a large array are copied by numbers of scalar memory.  Those of a small one are picked where
they are computed (`one_hot_loads`, `one_hot_stores`), which needs no loop before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.codegen.pallas.computed import ComputedPlace, ComputedPlaces
from tilelang.codegen.pallas.measures import Measures, map_sites, measuring
from tilelang.codegen.pallas.target import Target
from tilelang.ir import At, Axis, Expr, Gather, KernelIR, Load, Loop, Store
from tilelang.ir.traversal import definitions, inlined, loads

from .one_hot_loads import picked_load
from .one_hot_stores import picked_store


def stored_places(kernel: KernelIR, target: Target) -> KernelIR:
    """The kernel whose computed places are numbers in memory where no one-hot picks them.

    What is stored may itself be looked up at such a place: of several each round takes the inner.
    """
    before = None
    while kernel is not before:
        before, values = kernel, definitions(kernel.body)
        kernel = measuring(kernel, partial(_nest, kernel, values, target))
    return kernel


def _nest(
    kernel: KernelIR, values: Mapping[str, Expr], target: Target, measures: Measures, nest: Loop
) -> tuple[Loop, Sequence[Axis]]:
    computed = ComputedPlaces(kernel, nest)

    def asked(site: Load | Store) -> ComputedPlace | None:
        """A place that no memory has and nothing picks."""
        place = computed.place(site)
        if place is None or not computed.far(place):
            return None
        if isinstance(site, Load):
            return place if picked_load(kernel, site, place, target) is None else None
        return place if picked_store(kernel, site, place, target) is None else None

    def change(site: Load | Store, around: tuple[Axis, ...]) -> tuple[ir.Index, ...]:
        place = asked(site)
        if place is None:
            return site.index
        full = inlined(place.expr, values)
        if any(asked(load) for load in loads(full)):
            return site.index
        many = isinstance(site.index[place.at], Gather)
        made = measures.rows(around, full) if many else measures.number(around[-1], around, full)
        return site.index if made is None else _with(site.index, place.at, made)

    return map_sites(kernel, nest, change), ()


def _with(index: tuple[ir.Index, ...], at: int, made: Expr) -> tuple[ir.Index, ...]:
    entry = index[at]
    assert isinstance(entry, At | Gather)
    return (*index[:at], replace(entry, expr=made), *index[at + 1 :])
