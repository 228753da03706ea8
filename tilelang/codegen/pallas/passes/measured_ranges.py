"""Measured ranges: numbers of vectors that a range is made of -> a loop of their own before it.

    for b in grid(8):                              for b_1 in grid(8):
        for t in tile(0, max(lens[b, 0:4])):           t_measure[b_1] = max(lens[b_1, 0:4])
            ...                             ->     for b in grid(8):
                                                       for t in tile(0, t_measure[b]):
                                                           ...

An `if` around a loop is a range by now, so it is measured in the same way, and so is the offset of
a tile, x[max(lens[b, 0:4]) + t].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.codegen.pallas.measures import Measures, map_sites, measuring
from tilelang.ir import Axis, Expr, KernelIR, Load, Loop, Store
from tilelang.ir.traversal import definitions, inlined, map_range, rebuilding


def measured_ranges(kernel: KernelIR) -> KernelIR:
    """The kernel whose ranges are made of numbers in memory, as far as they can be."""
    values = definitions(kernel.body)
    return measuring(kernel, partial(_nest, kernel, values))


def _nest(
    kernel: KernelIR, values: Mapping[str, Expr], measures: Measures, nest: Loop
) -> tuple[Loop, Sequence[Axis]]:
    axes: list[Axis] = []
    for axis, outer in _within(kernel, nest):
        full = map_range(axis, partial(inlined, values=values))
        made = map_range(full, rebuilding(partial(measures.number, axis, outer)))
        axes += [] if made == full else [made]

    def moved(entry: ir.Index, around: tuple[Axis, ...]) -> ir.Index:
        if not isinstance(entry, ir.Along) or entry.offset is None:
            return entry
        full = inlined(entry.offset, values)
        axis = kernel.axis(entry.axis)
        made = rebuilding(partial(measures.number, axis, around))(full)
        return entry if made == full else replace(entry, offset=made)

    def change(site: Load | Store, around: tuple[Axis, ...]) -> tuple[ir.Index, ...]:
        return tuple(moved(entry, around) for entry in site.index)

    return map_sites(kernel, nest, change), axes


def _within(
    kernel: KernelIR, loop: Loop, outer: tuple[Axis, ...] = ()
) -> Iterator[tuple[Axis, tuple[Axis, ...]]]:
    """Every axis of a nest, with those around it."""
    axis = kernel.axis(loop.axis)
    yield axis, outer
    for stmt in loop.body:
        if isinstance(stmt, Loop):
            yield from _within(kernel, stmt, (*outer, axis))
