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

from ..errors import CallError
from ..ir import (
    At,
    Axis,
    Const,
    Expr,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    Tensor,
    Type,
    View,
    map_body,
    map_children,
    map_index,
    map_range,
    map_stmt,
    statements,
)
from ..ir.names import first_free, names_in

INT = Type((), "int32")


def batched(ir: KernelIR, names: Collection[str], size: int) -> KernelIR:
    """The kernel whose parameters `names` and whose results have a leading dimension of `size`.

    Raises CallError where every element would store to one and the same argument.
    """
    grown = _grown(ir, names)
    shared = next((t for t in ir.tensors if t.mutated and t.name not in grown), None)
    if shared is not None:
        raise CallError(
            f"{ir.name} stores to {shared.name}, which all elements of the batch share",
            hint=f"store to a new output and return it, or give each element its {shared.name}",
        )
    fresh = list(_fresh(ir))
    launches = [_Launch(name, grown) for name in fresh]
    owner = {
        stmt.axis: launch
        for loop, launch in zip(ir.body, launches, strict=True)
        for stmt in statements((loop,))
        if isinstance(stmt, Loop)
    }
    inner = tuple(
        map_range(axis, owner[axis.name].expr) if axis.name in owner else axis for axis in ir.axes
    )
    outer = tuple(_axis(name, size, loop) for name, loop in zip(fresh, ir.body, strict=True))
    return replace(
        ir,
        tensors=tuple(_larger(t, size) if t.name in grown else t for t in ir.tensors),
        axes=(*outer, *inner),
        body=tuple(launch.around(loop) for launch, loop in zip(launches, ir.body, strict=True)),
    )


def _grown(ir: KernelIR, names: Collection[str]) -> frozenset[str]:
    """The tensors that get a dimension: what is batched or made here, and views of that."""
    grown: set[str] = set()
    for tensor in ir.tensors:  # a view comes after what it is of
        source = tensor.name if tensor.view is None else tensor.view.source
        if tensor.role == "output" or tensor.name in names or source in grown:
            grown.add(tensor.name)
    return frozenset(grown)


def _fresh(ir: KernelIR) -> Iterator[str]:
    """A name for the new axis of each launch."""
    taken = names_in(ir)
    for _ in ir.body:
        name = first_free("batch", taken.__contains__)
        taken.add(name)
        yield name


def _axis(name: str, size: int, loop: Loop) -> Axis:
    return Axis(name, "grid", Const(0, INT), Const(size, INT), size, None, loop.loc, name)


def _larger(tensor: Tensor, size: int) -> Tensor:
    view = None if tensor.view is None else _of_larger(tensor.view, size)
    return replace(tensor, shape=(size, *tensor.shape), view=view)


def _of_larger(view: View, size: int) -> View:
    if view.how == "reshape":
        return replace(view, arg=(size, *view.arg))
    return replace(view, arg=(0, *(dim + 1 for dim in view.arg)))


@dataclass(frozen=True)
class _Launch:
    """What becomes of one launch: references to `grown` tensors are to the element of `axis`."""

    axis: str
    grown: frozenset[str]

    def around(self, loop: Loop) -> Loop:
        return Loop(self.axis, map_body((loop,), lambda stmt: (self.stmt(stmt),)), (), loop.loc)

    def stmt(self, stmt: Stmt) -> Stmt:
        changed = map_stmt(stmt, self.expr, lambda entry: map_index(entry, self.expr))
        if isinstance(changed, Store) and changed.tensor in self.grown:
            return replace(changed, index=(At(GridIndex(self.axis)), *changed.index))
        return changed

    def expr(self, expr: Expr) -> Expr:
        inside = map_children(expr, self.expr)
        if isinstance(inside, Load) and inside.tensor in self.grown:
            return replace(inside, index=(At(GridIndex(self.axis)), *inside.index))
        return inside
