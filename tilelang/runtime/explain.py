"""explain(lowered, arrays) -> str: axes and why, the plan, and how much of the work is padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..analysis.facts import AxisFact, Facts
from ..analysis.placed import loops
from ..codegen.pallas.plan.types import AxisPlan, Plan
from ..ir import KernelIR
from .lowering import Lowered
from .points import Domain, Iterations, depends, domain, reads
from .pointwise import Scope, scope, term


@dataclass(frozen=True)
class Waste:
    """Positions along one axis that a launch computes, and those that the ranges hold."""

    axis: str
    block: int
    tiles: int
    useful: int

    @property
    def computed(self) -> int:
        return self.tiles * self.block

    def __str__(self) -> str:
        share = 100 * (1 - self.useful / self.computed) if self.computed else 0.0
        return (
            f"{self.axis}: {self.computed} positions computed for {self.useful} useful ones "
            f"({self.tiles} {'tile' if self.tiles == 1 else 'tiles'} of {self.block}, "
            f"{share:.0f}% padding)"
        )


def explain(lowered: Lowered, arrays: Mapping[str, np.ndarray]) -> str:
    """The explanation; `arrays` holds the values of those arguments that have any."""
    ir, choices = lowered.ir, f"target {lowered.target}, {lowered.config}"
    bounds = [f"block {b.name}: {b}" for b in ir.blocks]
    parts = [_title(ir), choices, *bounds, "", "axes", *_axes(lowered.facts)]
    kept = [f"  {fact.why}" for fact in lowered.facts.positions if fact.kind == "dynamic"]
    if kept:
        parts += ["", "positions kept inside of their arrays", *kept]
    parts += ["", "plan", *_indented(str(lowered.plan))]
    wasted = list(waste(ir, lowered.plan, arrays))
    if wasted:
        parts += ["", "waste", *(f"  {w}" for w in wasted)]
    return "\n".join(parts)


def _title(ir: KernelIR) -> str:
    tensors = {t.name: t for t in ir.tensors}
    shown = []
    for param in ir.params:
        if param.tensor is None:
            shown.append(f"{param.name}={param.static!r}")
        else:
            tensor = tensors[param.tensor]
            shown.append(f"{param.name}: {tensor.dtype}{list(tensor.shape)}")
    return f"kernel {ir.name}({', '.join(shown)})"


def _axes(facts: Facts) -> list[str]:
    width = max((len(f.name) for f in facts.axes), default=0)
    return [f"  {f.name:<{width}}  {f.kind:<8}  {_because(f)}" for f in facts.axes]


def _because(fact: AxisFact) -> str:
    told = all(name in fact.why for name in fact.carries)
    return fact.why if told else f"{fact.why}; carries {', '.join(fact.carries)}"


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" if line else "" for line in text.splitlines())


def waste(ir: KernelIR, plan: Plan, arrays: Mapping[str, np.ndarray]) -> Iterator[Waste]:
    """What each tile axis computes; axes whose range cannot be known before the launch are left."""
    known = scope(ir)
    places = {name: place for name, (_, place) in loops(ir).items()}
    order = [a.name for a in ir.axes]
    for launch in plan.launches:
        for axis in sorted(launch.axes, key=lambda a: order.index(a.name)):
            found = _of_axis(axis, places[axis.name], known, arrays)
            if found is not None:
                yield found


def _of_axis(
    axis: AxisPlan, around: tuple[str, ...], known: Scope, arrays: Mapping[str, np.ndarray]
) -> Waste | None:
    """Tiles are globally aligned: tile t covers positions [t * block, (t + 1) * block)."""
    if axis.block is None:
        return None
    axes = {a.name: a for a in known.ir.axes}
    needs = depends(axis.begin, known, axes) | depends(axis.end, known, axes)
    walked = tuple(axes[a] for a in around if a in needs)
    exprs = (axis.begin, axis.end, *(e for a in walked for e in (a.begin, a.end)))
    if not set(reads(exprs, known)) <= set(arrays):
        return None
    spans = _spans(axis, domain(Iterations(walked), known), known, arrays)
    if spans is None:
        return None
    low, high = spans
    tiles = np.where(high > low, -(-high // axis.block) - low // axis.block, 0)
    return Waste(axis.user, axis.block, int(tiles.sum()), int(np.maximum(high - low, 0).sum()))


def _spans(
    axis: AxisPlan, walked: Domain | None, known: Scope, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """begin and end of every run of the loop; None if they depend on what is not known."""
    if walked is None:
        return None
    points, size = walked.points(arrays)
    here = replace(known, points=points)
    ends = [term(e, here) for e in (axis.begin, axis.end)]
    exact = [e for e in ends if e is not None and e.bound == "exact"]
    if len(exact) != len(ends):
        return None
    low, high = (np.broadcast_to(e.run(arrays, points), size).astype(np.int64) for e in exact)
    return low, high
