"""KernelIR: a whole kernel; `str` of it is readable.

kernel double(x) -> y
  x: float32[100]
  y: float32[100], output, empty

for t in tile(100):
    y[t] = x[t] * 2.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, assert_never

from ..errors import Loc
from .text import declaration, range_of, statement
from .traversal import every_store, map_body, map_index, map_range, map_stmt
from .types import Axis, BlockSize, Body, Expr, Loop, Param, Tensor


@dataclass(frozen=True)
class KernelIR:
    """A parsed kernel, specialised to shapes, dtypes and static arguments.

    `returns` names tensors; `structure` says how the author returned them.
    """

    name: str
    params: tuple[Param, ...]
    tensors: tuple[Tensor, ...]
    axes: tuple[Axis, ...]
    body: tuple[Loop, ...]
    returns: tuple[str, ...]
    structure: Literal["none", "single", "tuple", "list"]
    loc: Loc
    doc: str = ""
    blocks: tuple[BlockSize, ...] = ()

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def root(self, name: str) -> str:
        """The array that a tensor is, or is a view of."""
        view = self.tensor(name).view
        return name if view is None else self.root(view.source)

    def axis(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)

    def stored(self, body: Body | None = None) -> set[str]:
        """The arrays that statements store to, of all of the kernel by default."""
        return {self.root(s.tensor) for s in every_store(self.body if body is None else body)}

    def mapped(self, fn: Callable[[Expr], Expr]) -> KernelIR:
        """The kernel with `fn` applied to what it computes, positions and ranges included."""
        index = partial(map_index, fn=fn)
        body = map_body(self.body, lambda stmt: (map_stmt(stmt, fn, index),))
        return replace(self, body=body, axes=tuple(map_range(axis, fn) for axis in self.axes))

    def block_size(self, axis: Axis) -> BlockSize | None:
        """What bounds the block of a tile axis, if the author registered it."""
        return next((b for b in self.blocks if b.name == axis.block), None)

    def __str__(self) -> str:
        params = ", ".join(p.name if p.tensor else f"{p.name}={p.static!r}" for p in self.params)
        lines = [f"kernel {self.name}({params}){_returned(self)}"]
        lines += [f"  {declaration(t)}" for t in self.tensors]
        ranges = {a.name: range_of(a, self.block_size(a)) for a in self.axes}
        for loop in self.body:
            lines += ["", *statement(loop, ranges)]
        return "\n".join(lines) + "\n"


def _returned(ir: KernelIR) -> str:
    names = ", ".join(ir.returns)
    match ir.structure:
        case "none":
            return ""
        case "single":
            return f" -> {names}"
        case "tuple":
            return f" -> ({names},)" if len(ir.returns) == 1 else f" -> ({names})"
        case "list":
            return f" -> [{names}]"
        case _:
            assert_never(ir.structure)
