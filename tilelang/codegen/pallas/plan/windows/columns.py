"""Columns of views: rows of a view that splits the last dimension are columns of the array itself.

    x.reshape(M, H, D)[t, h, :]   ->   columns h * D to (h + 1) * D of x[t]

XLA would write the view as an array of its own, whose rows of H heads fill whole register tiles,
before the kernel reads it; and the other way round what is stored so and returned as rows of
H * D, after the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from tilelang.analysis.uses import picks_rows, reads_memory
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.clamps import bounds
from tilelang.codegen.pallas.target import Target
from tilelang.ir import At, Index, KernelIR, Load, Span, Tensor, integers
from tilelang.ir.traversal import every_access

from .types import Columns, Entry

Axes = Mapping[str, AxisPlan]
Shape = tuple[int, ...]
Indices = Mapping[str, Sequence[tuple[Index, ...]]]


def by_columns(
    ir: KernelIR, axes: Axes, target: Target, indices: Indices, written: Collection[str]
) -> dict[str, Shape]:
    """The tensors whose rows are columns of an array, each with the shape of that.

    They are views that are read so, and outputs that are stored so, and seen as rows of the array
    alone.
    """
    found = dict[str, Shape]()
    for tensor, each in indices.items():
        array = _returned_as(ir, tensor) if tensor in written else _split_by(ir, tensor)
        if array is not None:
            shape, kept = ir.tensor(tensor).shape, len(array) - 1
            if all(_is_row(axes, target, shape, kept, index) for index in each):
                found[tensor] = array
    return found


def columns_of(shape: Shape, array: Shape, index: tuple[Index, ...]) -> tuple[Entry, ...]:
    """The index of a row of a view of `shape` as an index of the array."""
    first = len(array) - 1
    number = integers.const(0)
    for at, size in zip(index[first:-1], shape[first:-1], strict=True):
        assert isinstance(at, At)
        number = integers.add(integers.mul(number, size), at.expr)
    return (*index[:first], Columns(number, shape[-1]))


def _split_by(ir: KernelIR, tensor: str) -> Shape | None:
    """The shape of the argument whose last dimension a view splits, and nothing else."""
    view, root = ir.tensor(tensor).view, ir.tensor(ir.root(tensor))
    if view is None or view.how != "reshape" or root.role != "input" or root.mutated:
        return None
    shape = ir.tensor(view.source).shape
    return shape if _merges(ir.tensor(tensor).shape, shape) else None


def _returned_as(ir: KernelIR, tensor: str) -> Shape | None:
    """The shape of the views as which alone an output is returned; nothing else is done with it."""
    output, views = ir.tensor(tensor), [t for t in ir.tensors if ir.root(t.name) == tensor]
    plain = all(t.view is None or t.view.how == "reshape" for t in views)
    shapes = {t.shape for t in views if t.name in ir.returns}
    if output.role != "output" or not plain or len(shapes) != 1:
        return None
    (shape,) = shapes
    return shape if _merges(output.shape, shape) and not _is_read(ir, views) else None


def _is_read(ir: KernelIR, forms: Sequence[Tensor]) -> bool:
    names = {t.name for t in forms}
    return any(isinstance(a, Load) and a.tensor in names for a in every_access(ir.body, ir.axes))


def _merges(shape: Shape, array: Shape) -> bool:
    """Whether the last dimension of an array is several of a view, the others being the same."""
    kept = len(array) - 1
    return 1 <= kept < len(shape) - 1 and array == (*shape[:kept], math.prod(shape[kept:]))


def _is_row(axes: Axes, target: Target, shape: Shape, kept: int, index: tuple[Index, ...]) -> bool:
    """Whether a reference is to one whole row of a view that keeps the first `kept` dimensions.

    Where a register has several, each turn of a loop that is written out knows its number.
    """
    *positions, row = index[kept:]
    if row != Span(0, shape[-1]) or picks_rows(index):
        return False
    if not all(isinstance(at, At) for at in positions):
        return False
    exprs = [at.expr for at in positions if isinstance(at, At)]
    within = [axes[a].place == "within" for expr in exprs for a in integers.axes(expr)]
    limits = zip((bounds(expr, axes) for expr in exprs), shape[kept:-1], strict=True)
    known = bool(within) and all(within) and not any(map(reads_memory, exprs))
    fits = shape[-1] % target.lanes == 0 or known
    return fits and all(low >= 0 and high < size for (low, high), size in limits)
