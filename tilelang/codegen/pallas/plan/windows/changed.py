"""Changed numbers: what says where a step lies stands in scalar memory, and no step changes it.

n[g] = g + 1
for t in hl.tile(n[g]): ...     the range is known before the step that stores to n
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tilelang.analysis.uses import IndexedSite
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.errors import Loc
from tilelang.ir import Expr, Index, KernelIR, Load, loads
from tilelang.schedule.refusal import Refused, Rule

from .types import Window


def refuse_changed(
    ir: KernelIR, axes: Mapping[str, AxisPlan], seen: Collection[IndexedSite]
) -> None:
    """Refused if a range, or an index that picks rows, is read from what the loop stores to."""
    written = {site.tensor for site in seen if site.written}
    for axis in axes.values():
        for load in _changed(axis.made_of, written):
            raise _refused(ir, Rule.KERNEL, f"the range of {axis.user}", load, axis.loc)
    for site in seen:
        for load in _changed(site.picks, written):
            what = f"which rows of {site.tensor} are meant"
            raise _refused(ir, Rule.KERNEL, what, load, site.loc)


def refuse_late(
    ir: KernelIR,
    seen: Collection[IndexedSite],
    places: Mapping[tuple[str, tuple[Index, ...], int], Window],
) -> None:
    """Refused if what picks a block of a window is; loops that hold all of the array need none."""
    written = {site.tensor for site in seen if site.written}
    for site in seen:
        window = places.get((site.tensor, site.index, 0))
        numbers = () if window is None else window.numbers
        for load in _changed((n.expr for n in numbers), written):
            what = f"which block of {site.tensor} is meant"
            raise _refused(ir, Rule.FORM, what, load, site.loc)


def _changed(exprs: Iterable[Expr], written: Collection[str]) -> list[Load]:
    return [load for expr in exprs for load in loads(expr) if load.tensor in written]


def _refused(ir: KernelIR, rule: Rule, what: str, load: Load, loc: Loc | None) -> Refused:
    one = (t.name for t in ir.tensors if t.view and t.view.source == load.tensor and not t.shape)
    name = next(one, ir.root(load.tensor))  # a tensor without dimensions is held as one of a number
    return Refused(
        rule,
        f"{what} is read from {name}, which is stored to in the same loop: TPUs know that before "
        "they run a step",
        load.loc or loc,
        f"use the value that is stored to {name}, or store to it in a top-level loop before",
    )
