"""explain(lowered, arrays) -> str: axes and why, the plan, and how much of the work is padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..analysis.facts import AxisFact, Facts, StoreFact
from ..analysis.placed import loops
from ..codegen.pallas.plan.types import Plan as PallasPlan
from ..codegen.triton.plan.scope import as_written
from ..ir import Expr, GridIndex, KernelIR, Load, TileIndex, walk
from ..schedule.refusal import Refusal
from .lowering import Lowered, Plan
from .points import Iterations, depends, domain, reads
from .pointwise import KnownAhead, term, written_out


@dataclass(frozen=True)
class Tiling:
    """How a range is cut into tiles: from multiples of the block on, or from where it begins."""

    name: str
    user: str
    block: int
    begin: Expr
    end: Expr
    aligned: bool

    def count(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """How many tiles the ranges [low, high) take."""
        if not self.aligned:
            return np.maximum(-(-(high - low) // self.block), 0)
        return np.where(high > low, -(-high // self.block) - low // self.block, 0)


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


@np.errstate(all="ignore")
def explain(lowered: Lowered, arrays: Mapping[str, np.ndarray], origin: str = "") -> str:
    """The explanation; `arrays` holds the values of those arguments that have any."""
    ir, choices = lowered.ir, f"target {lowered.target}, {lowered.config}{origin}"
    bounds = [f"block {b.name}: {b}" for b in ir.blocks]
    parts = [_title(ir), choices, *bounds, "", "axes", *_axes(lowered.facts)]
    kept = [f"  {fact.why}" for fact in lowered.facts.positions if fact.kind == "dynamic"]
    if kept:
        parts += ["", "positions kept inside of their arrays", *kept]
    folded = [_by_block(ir, fact) for fact in lowered.facts.stores if fact.tiles]
    if folded:
        parts += [
            "",
            "made of single tiles, so that another block may give another result",
            *folded,
        ]
    parts += ["", "plan", *_indented(str(lowered.plan))]
    wasted = list(waste(ir, lowered.plan, arrays))
    if wasted:
        parts += ["", "waste", *(f"  {w}" for w in wasted)]
    return "\n".join(parts)


def _by_block(ir: KernelIR, fact: StoreFact) -> str:
    users = ", ".join(ir.axis(name).user for name in fact.tiles)
    return f"  line {fact.loc.line}, of a tile of {users}: {fact.loc.text.strip()}"


def one_by_one(refused: Refusal, element: str) -> str:
    """The explanation of a batch whose kernel is refused, by that of one element's."""
    why = "one element after the other, because the kernel of all is refused"
    return f"{why}:\n{refused.error}\n\n{element}"


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
    """What each tile axis of the author's computes.

    Axes whose range cannot be known before the launch are left out.
    """
    order, ir = [a.name for a in ir.axes], written_out(ir)
    for launched in _launched(plan):
        own = (a for a in launched if a.name in order)  # pieces of a tile count with it
        for axis in sorted(own, key=lambda a: order.index(a.name)):
            if (found := _ranges(axis, ir, arrays)) is not None:
                low, high = found
                useful = np.maximum(high - low, 0)
                tiles = axis.count(low, high)
                yield Waste(axis.user, axis.block, int(tiles.sum()), int(useful.sum()))


def _launched(plan: Plan) -> Iterator[list[Tiling]]:
    """The tile axes of every launch; on TPUs, tile t covers [t * block, (t + 1) * block)."""
    if isinstance(plan, PallasPlan):
        for launch in plan.launches:
            yield [
                Tiling(a.name, a.user, a.block, a.begin, a.end, True)
                for a in launch.axes
                if a.block is not None
            ]
        return
    for launch in plan.launches:
        yield [Tiling(a.name, a.user, a.step, a.begin, a.end, False) for a in launch.axes if a.tile]


def _ranges(
    axis: Tiling, ir: KernelIR, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """begin and end of every run of the loop; None if they depend on what is not known."""
    names, (_, around) = {t.name for t in ir.tensors}, loops(ir)[axis.name]
    parts = [part for e in (axis.begin, axis.end) for part in walk(e)]
    if any(isinstance(p, GridIndex | TileIndex) and p.axis not in around for p in parts):
        return None  # of a part that the plan cuts the author's into, or in loops that it turned
    if any(isinstance(p, Load) and p.tensor not in names for p in parts):
        return None  # a range that the plan made of the author's
    needs = depends(axis.begin, ir) | depends(axis.end, ir)
    walked = Iterations(tuple(ir.axis(a) for a in around if a in needs))
    runs = domain(walked, ir)
    wanted = reads((axis.begin, axis.end, *walked.exprs), ir)
    if runs is None or not set(wanted) <= set(arrays):
        return None
    points, size = runs.listed(arrays)
    ahead = KnownAhead(ir, points)
    begin, end = (term(as_written(e), ahead) for e in (axis.begin, axis.end))
    if begin is None or end is None:
        return None
    low, high = (np.broadcast_to(e.run(arrays, {}), size) for e in (begin, end))
    return low.astype(np.int64), high.astype(np.int64)
