"""around(plan) -> seconds of what XLA does before the launches of a plan, which other forms save.

spans    where the rows of every block of groups begin and end, made of the groups' offsets
filled   outputs of which no step fills what nothing stores to
rows     views with rows of another length than those of the array that they are of
turned   arrays with dimensions in another order than the kernel has them in
"""

from __future__ import annotations

import math

from tilelang.codegen.pallas.chips import CHIPS, Chip
from tilelang.codegen.pallas.plan.types import Launch, Plan
from tilelang.codegen.pallas.plan.windows.types import HostArray
from tilelang.language.dtypes import itemsize

from .seconds import generation

# XLA's fusions for them, one or two: 0.55 to 1.2 us in v6e's schedules, of which a read and a write
# of nothing are 0.57.
SPANS = 1.0


def around(plan: Plan) -> float:
    """Nothing on the CPU, whose times nobody estimates."""
    name = generation(plan.target)
    if name is None:
        return 0.0
    chip = CHIPS[name]
    spans = any(t.view is not None and t.view.how == "spans" for t in plan.ir.tensors)
    filled = sum(_filled(plan, launch, chip) for launch in plan.launches)
    changed = {a.source for a in plan.arrays} | {n for n in plan.ir.returns if _is_made(plan, n)}
    filled += sum(_cut_anew(plan, name, chip) for name in changed)
    turned = sum(_turned(a, chip) for a in plan.arrays)
    return filled + turned + SPANS * (chip.read + chip.write) * spans


def taken(plan: Plan) -> float:
    """What XLA takes to put the rows together that an index array picks: each read and written.

    It is in no estimate, because most forms have it; rows that a loop copies one by one do not.
    """
    name = generation(plan.target)
    made = {t.name for t in plan.ir.tensors if t.view is not None and t.view.how == "take"}
    sizes = (math.prod(a.shape) * itemsize(a.dtype) for a in plan.arrays if a.source in made)
    return 0.0 if name is None else sum(2 * size / CHIPS[name].bandwidth for size in sizes)


def _filled(plan: Plan, launch: Launch, chip: Chip) -> float:
    """What a launch finds in an output that the author made, and no launch before has written."""
    held = [w for w in launch.windows if w.output and w.existing is not None]
    sources = {host.name: host.source for host in plan.arrays}
    new = {w.array: w for w in held if plan.ir.tensor(sources[w.array]).fill is not None}
    sizes = (math.prod(w.shape) * itemsize(w.dtype) for w in new.values())
    return sum(size / chip.bandwidth + chip.write for size in sizes)


def _turned(array: HostArray, chip: Chip) -> float:
    """What is read and written once more; dimensions of one are nowhere."""
    order = [d for d, size in zip(array.permute or (), array.shape, strict=False) if size > 1]
    if order == sorted(order):
        return 0.0
    size = math.prod(array.shape) * itemsize(array.dtype)
    return 2 * size / chip.bandwidth + chip.read + chip.write


def _is_made(plan: Plan, name: str) -> bool:
    """Whether what is returned is a view of an output that no launch writes in its shape."""
    root, shape = plan.ir.root(name), plan.ir.tensor(name).shape
    arrays = [a for a in plan.arrays if a.source == root]
    return root != name and bool(arrays) and all(a.shape != shape for a in arrays)


def _cut_anew(plan: Plan, name: str, chip: Chip) -> float:
    """A view of rows of another length is read and written: rows fill whole register tiles."""
    tensor = plan.ir.tensor(name)
    if tensor.view is None or tensor.view.how != "reshape":
        return 0.0
    if plan.ir.tensor(tensor.view.source).shape[-1:] == tensor.shape[-1:]:
        return 0.0
    size = math.prod(tensor.shape) * itemsize(tensor.dtype)
    return 2 * size / chip.bandwidth + chip.read + chip.write
