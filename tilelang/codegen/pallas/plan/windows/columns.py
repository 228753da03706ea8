"""Columns of views: rows of a view that splits the last dimension are columns of the array itself.

    x.reshape(M, H, D)[t, h, :]   ->   columns h * D to (h + 1) * D of x[t]

XLA would write the view as an array of its own, whose rows of H heads fill whole register tiles,
before the kernel reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelang.analysis.uses import picks_rows
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.clamps import bounds
from tilelang.codegen.pallas.target import Target
from tilelang.ir import At, Index, KernelIR, Span, integers

Axes = Mapping[str, AxisPlan]


def split_views(
    ir: KernelIR,
    axes: Axes,
    target: Target,
    read: Mapping[str, Sequence[tuple[Index, ...]]],
) -> dict[str, int]:
    """The views that are read so, each with how many columns of its array a row of it is."""
    return {
        tensor: ir.tensor(tensor).shape[-1]
        for tensor, indices in read.items()
        if _splits(ir, tensor) and all(_is_row(ir, axes, target, tensor, i) for i in indices)
    }


def _splits(ir: KernelIR, tensor: str) -> bool:
    """Whether a tensor is a view of an argument that splits its last dimension alone."""
    view, shape, root = ir.tensor(tensor).view, ir.tensor(tensor).shape, ir.tensor(ir.root(tensor))
    if view is None or view.how != "reshape" or root.role != "input" or root.mutated:
        return False
    return len(shape) > 2 and ir.tensor(view.source).shape == (*shape[:-2], shape[-2] * shape[-1])


def _is_row(
    ir: KernelIR, axes: Axes, target: Target, tensor: str, index: tuple[Index, ...]
) -> bool:
    """Whether a reference is to one whole row of the view, which columns of a block can be."""
    (parts, size), (at, row) = ir.tensor(tensor).shape[-2:], index[-2:]
    if not isinstance(at, At) or row != Span(0, size) or picks_rows(index):
        return False
    low, high = bounds(at.expr, axes)
    within = [axes[a].place == "within" for a in integers.axes(at.expr)]
    fits = size % target.lanes == 0 or (bool(within) and all(within))
    return fits and low >= 0 and high < parts
