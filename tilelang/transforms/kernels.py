"""kernel_of(...) -> KernelIR: a nest as a kernel; its parameters are the arrays that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..ir import KernelIR, Param, Tensor, exprs_of, loads
from .place import AxisNest


def kernel_of(
    origin: KernelIR,
    name: str,
    nest: AxisNest,
    outputs: Sequence[Tensor],
    tensor: Callable[[str], Tensor],
) -> KernelIR:
    """The kernel of a nest that stores to `outputs`; `tensor` declares the arrays by name."""
    made = {o.name for o in outputs}
    used = dict.fromkeys(n for n in _read_by(nest) if n not in made)
    read = dict.fromkeys(t for n in used for t in _with_source(tensor(n), tensor))
    inputs = tuple(t for t in read if t.role == "input")
    views = tuple(t for t in read if t.role == "view")
    return KernelIR(
        name=name,
        params=tuple(Param(t.name, t.name) for t in inputs),
        tensors=(*inputs, *views, *outputs),
        axes=nest.axes,
        body=(nest.loop,),
        returns=tuple(o.name for o in outputs),
        structure="tuple",
        loc=origin.loc,
        doc=f"Part of the gradient of {origin.name}.",
    )


def _with_source(one: Tensor, tensor: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
    """An array as a parameter; a view after what it is a view of."""
    if one.view is None:
        return (replace(one, role="input", fill=None),)
    return (*_with_source(tensor(one.view.source), tensor), one)


def _read_by(nest: AxisNest) -> Iterator[str]:
    exprs = exprs_of((nest.loop,), nest.axes)
    return (load.tensor for e in exprs for load in loads(e))
