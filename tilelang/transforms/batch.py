"""batched(ir, names, size) -> KernelIR: the kernel of `size` elements at once.

for t in tile(n):            for batch in grid(size):
    y[t] = x[t] * w[t]           for t in tile(n):
                                     y[batch, t] = x[batch, t] * w[t]

`names` are the parameters with a leading dimension of elements, here x.  Every tensor that the
kernel makes has one, too.  Each launch gets an axis of its own, around all of its loops, so that
ranges read the offsets of their element.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from .. import ir
from ..errors import CallError
from ..ir import map_body, map_children, map_index, map_range, map_stmt, statements
from ..ir.names import first_free, names_in

INT = ir.Type((), "int32")


def batched(kernel: ir.KernelIR, names: Collection[str], size: int) -> ir.KernelIR:
    """The kernel whose parameters `names` and whose results have a leading dimension of `size`.

    Raises CallError where every element would store to one and the same argument.
    """
    grown = _grown(kernel, names)
    shared = next((t for t in kernel.tensors if t.mutated and t.name not in grown), None)
    if shared is not None:
        raise CallError(
            f"{kernel.name} stores to {shared.name}, which all elements of the batch share",
            hint=f"store to a new output and return it, or give each element its {shared.name}",
        )
    fresh = list(_fresh(kernel))
    launches = [_Launch(name, grown) for name in fresh]
    owner = {
        stmt.axis: launch
        for loop, launch in zip(kernel.body, launches, strict=True)
        for stmt in statements((loop,))
        if isinstance(stmt, ir.Loop)
    }
    inner = tuple(
        map_range(axis, owner[axis.name].expr) if axis.name in owner else axis
        for axis in kernel.axes
    )
    outer = tuple(_axis(name, size, loop) for name, loop in zip(fresh, kernel.body, strict=True))
    return replace(
        kernel,
        tensors=tuple(_larger(t, size) if t.name in grown else t for t in kernel.tensors),
        axes=(*outer, *inner),
        body=tuple(launch.around(loop) for launch, loop in zip(launches, kernel.body, strict=True)),
    )


def _grown(kernel: ir.KernelIR, names: Collection[str]) -> frozenset[str]:
    """The tensors that get a dimension: what is batched or made here, and views of that."""
    grown: set[str] = set()
    for tensor in kernel.tensors:  # a view comes after what it is of
        source = tensor.name if tensor.view is None else tensor.view.source
        if tensor.role == "output" or tensor.name in names or source in grown:
            grown.add(tensor.name)
    return frozenset(grown)


def _fresh(kernel: ir.KernelIR) -> Iterator[str]:
    """A name for the new axis of each launch."""
    taken = names_in(kernel)
    for _ in kernel.body:
        name = first_free("batch", taken.__contains__)
        taken.add(name)
        yield name


def _axis(name: str, size: int, loop: ir.Loop) -> ir.Axis:
    return ir.Axis(name, "grid", ir.Const(0, INT), ir.Const(size, INT), size, None, loop.loc, name)


def _larger(tensor: ir.Tensor, size: int) -> ir.Tensor:
    view = None if tensor.view is None else _of_larger(tensor.view, size)
    return replace(tensor, shape=(size, *tensor.shape), view=view)


def _of_larger(view: ir.View, size: int) -> ir.View:
    if view.how == "reshape":
        return replace(view, arg=(size, *view.arg))
    return replace(view, arg=(0, *(dim + 1 for dim in view.arg)))


@dataclass(frozen=True)
class _Launch:
    """What becomes of one launch: references to `grown` tensors are to the element of `axis`."""

    axis: str
    grown: frozenset[str]

    def around(self, loop: ir.Loop) -> ir.Loop:
        return ir.Loop(self.axis, map_body((loop,), lambda stmt: (self.stmt(stmt),)), (), loop.loc)

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        changed = map_stmt(stmt, self.expr, lambda entry: map_index(entry, self.expr))
        if isinstance(changed, ir.Store) and changed.tensor in self.grown:
            return replace(changed, index=(ir.At(ir.GridIndex(self.axis)), *changed.index))
        return changed

    def expr(self, expr: ir.Expr) -> ir.Expr:
        inside = map_children(expr, self.expr)
        if isinstance(inside, ir.Load) and inside.tensor in self.grown:
            return replace(inside, index=(ir.At(ir.GridIndex(self.axis)), *inside.index))
        return inside
