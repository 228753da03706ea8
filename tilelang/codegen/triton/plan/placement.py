"""Placement: which loops are program ids, which axis the worklist flattens, and what is left.

for h: for b: start = ...; for tq in tile(start, ...): BODY
    ->  programs (h), worklist (b, tq), body BODY

From the outside in a loop becomes a program id while its iterations may run in any order, carry
nothing, and hold one loop beside assignments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilelang import ir
from tilelang.analysis.facts import Facts
from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import every_expr, every_store, walk
from tilelang.ir.traversal import inlined

from .problem import Prepared
from .types import Worklist

SEARCHED = 4096  # groups whose tiles one program counts by itself
RECTANGLE = 1 << 20  # programs that may find nothing to do


@dataclass(frozen=True)
class Nest:
    """A top-level loop as the axes that program ids choose, and what a program does.

    `outer` holds the assignments around the body, in their place between the loops.
    """

    outer: tuple[ir.Assign | ir.Loop, ...]
    body: tuple[ir.Stmt, ...]
    worklist: Worklist | None

    @property
    def programs(self) -> tuple[str, ...]:
        """The axes that program ids and items choose, outermost first."""
        return tuple(s.axis for s in self.outer if isinstance(s, ir.Loop))


def place(kernel: Prepared, loop: ir.Loop, form: Literal["search", "table"] | None) -> Nest:
    """How the loops of one launch run."""
    outer: list[ir.Assign | ir.Loop] = []
    body: tuple[ir.Stmt, ...] = (loop,)
    worklist, guarded = None, False
    while True:
        before, inner = _single(body)
        if inner is None or not runs_in_any_order(kernel.facts, inner):
            return Nest(tuple(outer), body, worklist)
        axes = tuple(s.axis for s in outer if isinstance(s, ir.Loop))
        if kernel.ir.axis(inner.axis).static is None:
            group = None if worklist or guarded else _group(kernel, inner.axis, axes)
            if group is not None:
                worklist = _worklist(kernel, group, inner.axis, form)
            elif worklist or guarded or not _is_small(kernel, (*axes, inner.axis)):
                return Nest(tuple(outer), body, worklist)
            guarded = guarded or group is None
        outer += [*before, inner]
        body = inner.body


def _single(body: tuple[ir.Stmt, ...]) -> tuple[tuple[ir.Assign, ...], ir.Loop | None]:
    """The only loop of a body and the assignments before it; None if there is more."""
    *before, last = body or (None,)
    assigns = tuple(s for s in before if isinstance(s, ir.Assign))
    if not isinstance(last, ir.Loop) or len(assigns) != len(before):
        return (), None
    return assigns, last


def runs_in_any_order(facts: Facts, loop: ir.Loop) -> bool:
    """Whether programs may run the iterations: they are parallel, or only update atomically."""
    if loop.carries:
        return False
    if facts.axis(loop.axis).kind == "parallel":
        return True
    stores = list(every_store(loop.body))
    reads = {e.tensor for e in every_expr(loop.body) if isinstance(e, ir.Load)}
    return all(s.combine for s in stores) and reads.isdisjoint(s.tensor for s in stores)


def _is_small(kernel: Prepared, axes: tuple[str, ...]) -> bool:
    count = 1
    for axis in axes:
        trips = kernel.trips(axis)
        if trips is None:
            return False
        count *= max(trips, 1)
    return count <= RECTANGLE


# ---------------------------------------------------------------- worklist


def _group(kernel: Prepared, axis: str, around: tuple[str, ...]) -> str | None:
    """The static `hl.grid` axis that alone says where a tile axis begins and ends."""
    found = kernel.ir.axis(axis)
    if found.kind != "tile":
        return None
    bounds = [inlined(b, kernel.defined) for b in kernel.range(axis)]
    parts = [e for b in bounds for e in walk(b)]
    needs = {e.axis for e in parts if isinstance(e, ir.GridIndex | ir.TileScalar)}
    if len(needs) != 1 or any(isinstance(e, ir.Var | ir.TileScalar) for e in parts):
        return None
    (group,) = needs
    static = kernel.ir.axis(group).static
    return group if group in around and static is not None and static[0] == 0 < static[1] else None


def _worklist(
    kernel: Prepared, group: str, axis: str, form: Literal["search", "table"] | None
) -> Worklist:
    static = kernel.ir.axis(group).static
    assert static is not None
    groups, step = static[1], kernel.step(axis)
    trips = kernel.trips(axis)
    bound = groups * trips if trips is not None else groups
    size = kernel.limits(axis)[1]
    if group in kernel.facts.axis(axis).rises and size < float("inf"):
        bound = min(bound, -(-int(size) // step) + groups)
    chosen = form or ("search" if power_of_two(groups) <= SEARCHED else "table")
    return Worklist(group, axis, groups, max(bound, 1), chosen)
