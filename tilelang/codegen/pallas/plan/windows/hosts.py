"""Arrays as the host passes them, and the indices of tensors as indices of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.target import Target, padded_bytes
from tilelang.ir import At, Const, Index, KernelIR, Span
from tilelang.ir.names import unique
from tilelang.language.dtypes import wide_of

from .turned import takes_all
from .types import Columns, Entry, HostArray


def host_array(
    ir: KernelIR,
    axes: Mapping[str, AxisPlan],
    name: str,
    indices: list[tuple[Index, ...]],
    lifted: bool,
    widened: bool,
    split: tuple[int, ...] | None,
) -> HostArray:
    """Rank 1 becomes one row; single positions among the last two dimensions move to the front.

    Positions that a step takes all of stay where they are.  Loops that need an array in other forms
    have one each: names say all of the form.
    """
    view = ir.tensor(name).view
    if split is not None and view is not None:
        name = view.source
    tensor = ir.tensor(name)
    shape, rank = tensor.shape, len(tensor.shape)
    host = HostArray(name, name, None, shape, "int32" if tensor.dtype == "int64" else tensor.dtype)

    def single(dim: int) -> bool:
        return all(isinstance(i[dim], At) and not takes_all(axes, i[dim]) for i in indices)

    at, forms = [d for d in range(rank) if single(d)], list[str]()
    if split is not None:
        forms += ["columns"] * (view is None)
        host = replace(host, shape=split)
    elif lifted and rank >= 2:
        forms.append("rows")
        host = replace(host, shape=(*shape[:-1], 1, shape[-1]))
    elif rank == 1:
        forms.append("row")
        host = replace(host, shape=(1, *shape))
    elif rank >= 3 and any(d >= rank - 2 for d in at) and len(at) <= rank - 2:
        order = (*at, *(d for d in range(rank) if d not in at))
        forms += ["moved", *map(str, () if at == [rank - 2] else at)]
        host = replace(host, permute=order, shape=tuple(shape[d] for d in order))
    if widened:
        forms.append("wide")
        host = replace(host, dtype=wide_of(host.dtype), wide=True)
    return replace(host, name=unique(ir, name, "_".join(forms))) if forms else host


def as_array(host: HostArray, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """The index of a tensor as an index of the array that the kernel sees."""
    if host.permute is not None:
        return tuple(index[d] for d in host.permute)
    if len(host.shape) == len(index) + 1:
        return (*index[:-1], Span(0, 1), index[-1])
    return index


def several(host: HostArray, indices: Sequence[Sequence[Entry]], target: Target) -> frozenset[int]:
    """The dimensions of the array of which one step uses several positions.

    y[0, t, :] and y[1, t, :] are then two rows of one block: two blocks of one output would each
    be written over what the other holds.  Of positions that loops count, y[i + 1, :] and y[i, :],
    or of one and all, the block is the dimension; none are taken so where no memory holds that.
    """
    dims = tuple(zip(*indices, strict=True))

    def apart(dim: int, entries: tuple[Entry, ...]) -> bool:
        if dim >= len(dims) - 2 and all(isinstance(e, Columns) for e in entries):
            return True  # of several rows of a view
        single = any(isinstance(e, At) for e in entries)
        return single and all(isinstance(e, At | Span) for e in entries)

    found = frozenset(d for d, at in enumerate(dims) if len({*at}) > 1 and apart(d, at))
    near = all(_constant(entry) for d in found for entry in dims[d])
    whole = (d in found or all(isinstance(e, Span) for e in at) for d, at in enumerate(dims))
    held = tuple(size if all_of else 1 for size, all_of in zip(host.shape, whole, strict=True))
    fits = near or padded_bytes(held, host.dtype, target) <= target.vmem_physical
    return found if fits else frozenset()


def _constant(entry: Entry) -> bool:
    return isinstance(entry, Columns) or (isinstance(entry, At) and isinstance(entry.expr, Const))
