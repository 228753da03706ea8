"""local(ir, split) -> the kernel that each device runs when factors are split into so many parts.

Numbers that the author's host code computed from sizes stay those of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from ..ir import (
    Axis,
    Body,
    Const,
    Expr,
    KernelIR,
    Load,
    Loop,
    Param,
    Stmt,
    Store,
    Tensor,
    exprs_of,
    inlined,
    map_body,
)
from ..ir import definitions as assigned
from ..ir.traversal import loads, map_range, rewrite_body
from .multiples import uncast
from .partition import INT, Factor


def local(ir: KernelIR, split: Mapping[Factor, int]) -> KernelIR:
    """What each device runs when each of these factors is split into so many parts."""
    parts = {place: n for factor, n in split.items() for place in factor.dims}
    edges = {place: n for factor, n in split.items() for place in factor.edges}
    axes = {axis: factor.size // n for factor, n in split.items() for axis in factor.axes}
    sums = {t: d for factor in split if factor.kind == "sum" for t, d in factor.added}

    def shape(tensor: Tensor) -> tuple[int, ...]:
        places = [((tensor.name, dim), size) for dim, size in enumerate(tensor.shape)]
        return tuple(
            (size - 1) // edges[place] + 1 if place in edges else size // parts.get(place, 1)
            for place, size in places
        )

    values = assigned(ir.body)

    def partial_sums(stmt: Stmt) -> Body:
        if not isinstance(stmt, Store) or stmt.tensor not in sums:
            return (stmt,)
        return (replace(stmt, value=uncast(inlined(stmt.value, values))),)

    made = replace(
        ir,
        tensors=tuple(
            replace(t, shape=shape(t), dtype=sums.get(t.name, t.dtype)) for t in ir.tensors
        ),
        axes=tuple(
            map_range(_shorter(a, axes[a.name]), partial(inlined, values=values))
            if a.name in axes
            else a
            for a in ir.axes
        ),
        body=tuple(s for s in map_body(ir.body, partial_sums) if isinstance(s, Loop)),
    )
    return _with_wholes(made, wholes(ir, split))


def wholes(ir: KernelIR, split: Collection[Factor]) -> Mapping[str, str]:
    """Arguments that the kernel of one device has more: offsets as numbers, which are not clipped.

    By name, and of which tensor each is.
    """
    clipped = {name for factor in split for name in factor.clipped}
    read = {load.tensor for e in exprs_of(ir.body, ()) for load in loads(e)}
    return {f"{name}_of_all": name for name in sorted(clipped & read)}


def _with_wholes(ir: KernelIR, twins: Mapping[str, str]) -> KernelIR:
    named = {source: twin for twin, source in twins.items()}

    def whole(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and expr.tensor in named:
            return replace(expr, tensor=named[expr.tensor])
        return None

    return replace(
        ir,
        params=(*ir.params, *(Param(twin, twin) for twin in twins)),
        tensors=(*ir.tensors, *(replace(ir.tensor(t), name=twin) for twin, t in twins.items())),
        body=tuple(s for s in rewrite_body(ir.body, whole) if isinstance(s, Loop)),
    )


def _shorter(axis: Axis, size: int) -> Axis:
    most = None if axis.max_extent is None else min(axis.max_extent, size)
    if axis.static is None:
        return replace(axis, max_extent=most)
    return replace(axis, end=Const(size, INT), max_extent=most)
