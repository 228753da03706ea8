"""Columns of views: rows of a view that splits the last dimension are columns of the array itself.

    x.reshape(M, H, D)[t, h, :]   ->   columns h * D to (h + 1) * D of x[t]

XLA would write the view as an array of its own, whose rows of H heads fill whole register tiles,
before the kernel reads it; and the other way round what is stored so and returned as rows of
H * D, after the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.clamps import bounds
from tilelang.codegen.pallas.target import Target
from tilelang.ir import At, Gather, Index, KernelIR, Load, Span, integers
from tilelang.ir.traversal import every_access

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


def merged_outputs(
    ir: KernelIR,
    axes: Axes,
    target: Target,
    stored: Mapping[str, Sequence[tuple[Index, ...]]],
) -> dict[str, int]:
    """Likewise the outputs that are stored so, and that are seen as such rows alone."""
    used = {a.tensor for a in every_access(ir.body) if isinstance(a, Load)}
    return {
        tensor: ir.tensor(tensor).shape[-1]
        for tensor, indices in stored.items()
        if _is_merged(ir, tensor, used)
        and all(_is_row(ir, axes, target, tensor, i) for i in indices)
    }


def _is_merged(ir: KernelIR, tensor: str, used: Collection[str]) -> bool:
    """Whether an output is returned as views that merge its last two dimensions, and not used."""
    shape = ir.tensor(tensor).shape
    views = [t for t in ir.tensors if t.view is not None and ir.root(t.name) == tensor]
    if ir.tensor(tensor).role != "output" or len(shape) < 3 or tensor in {*used, *ir.returns}:
        return False
    shown = [t for t in views if t.name in ir.returns]
    plain = all(t.view is not None and t.view.how == "reshape" for t in views)
    plain = plain and not any(t.name in used for t in views)
    return plain and bool(shown) and all(t.shape == _merged(shape) for t in shown)


def _merged(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-2] * shape[-1])


def _splits(ir: KernelIR, tensor: str) -> bool:
    """Whether a tensor is a view of an argument that splits its last dimension alone."""
    view, shape, root = ir.tensor(tensor).view, ir.tensor(tensor).shape, ir.tensor(ir.root(tensor))
    if view is None or view.how != "reshape" or root.role != "input" or root.mutated:
        return False
    return len(shape) > 2 and ir.tensor(view.source).shape == _merged(shape)


def _is_row(
    ir: KernelIR, axes: Axes, target: Target, tensor: str, index: tuple[Index, ...]
) -> bool:
    """Whether a reference is to one whole row of the view, which columns of a block can be."""
    (parts, size), (at, row) = ir.tensor(tensor).shape[-2:], index[-2:]
    if not isinstance(at, At) or row != Span(0, size) or _any_gather(index):
        return False
    low, high = bounds(at.expr, axes)
    within = [axes[a].place == "within" for a in integers.axes(at.expr)]
    fits = size % target.lanes == 0 or (bool(within) and all(within))
    return fits and low >= 0 and high < parts


def _any_gather(index: Collection[Index]) -> bool:
    return any(isinstance(entry, Gather) for entry in index)
