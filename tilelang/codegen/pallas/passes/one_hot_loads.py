"""One-hot loads: loads at places that are computed -> picked from the whole dimension.

    table[argmax(s, 1)]        ->  sum(where(hit, table[None, 0:E], 0), 1)
    table[argmax(s, 1), d]     ->  group_sum(hit, table[0:E, d])
    where hit = clip(argmax(s, 1), 0, E - 1)[:, None] == arange(E)[None, :]
    x[argmax(s, 0), d]         ->  sum(where(hit[:, None], x[0:E, d], 0), 0), of one place

Of each sum one addend at most is not 0, so it is exact, and blind to what is not picked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import is_

from tilelang import ir
from tilelang.codegen.pallas.computed import (
    ComputedPlace,
    ComputedPlaces,
    one_hot,
    product,
    selects_fit,
    spread,
)
from tilelang.codegen.pallas.target import Target, stays
from tilelang.ir import Expr, Load, Type, map_children
from tilelang.ir.lanes import expanded
from tilelang.ir.traversal import map_body, map_stmt, picked
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.dtypes import wide_of
from tilelang.language.shapes import transpose

from .gather_ahead import ahead_of, copies


def one_hot_loads(kernel: ir.KernelIR, target: Target, gathers: str | None = None) -> ir.KernelIR:
    """The kernel without loads of small arrays at places that scalar memory cannot hold.

    Columns that XLA puts together stay: by default many of them, or as `gathers` says.
    """
    body = tuple(_nest(kernel, nest, target, gathers) for nest in kernel.body)
    return kernel if all(map(is_, body, kernel.body)) else replace(kernel, body=body)


def _nest(kernel: ir.KernelIR, nest: ir.Loop, target: Target, gathers: str | None) -> ir.Loop:
    computed, found = ComputedPlaces(kernel, nest), list[Load]()

    def read(expr: Expr, copied: bool) -> Expr:
        inner = map_children(expr, partial(read, copied=copied))
        if not isinstance(expr, Load) or not isinstance(inner, Load):
            return inner
        if ahead_of(kernel, nest, inner, gathers, target, copied):
            return inner
        load = picked_load(kernel, inner, computed.place(expr), target)
        if load is None:
            return inner
        found.append(expr)
        return load.value()

    def statement(stmt: ir.Stmt) -> ir.Body:
        match stmt:
            case ir.Store() if stmt.combine is not None and computed.place(stmt):
                return (stmt,)  # too large: refused where it is stored
            case _:
                return (map_stmt(stmt, partial(read, copied=copies(stmt))),)

    (made,) = map_body((nest,), statement)
    assert isinstance(made, ir.Loop)
    return made if found else nest


def picked_load(
    kernel: ir.KernelIR, load: Load, place: ComputedPlace | None, target: Target
) -> _PickedLoad | None:
    """A load at computed places of one dimension, where vector memory holds all of the array."""
    tensor = kernel.tensor(load.tensor)
    if place is None or not place.simple:
        return None
    found = _PickedLoad(load, replace(place, index=load.index))
    selected = (place.size,) if found.multiplied else tensor.shape
    fits = place.single or selects_fit(selected, target.rows(4), target)
    held = place.held(tensor.shape)
    return found if fits and stays(held, tensor.dtype, target, stored=False) else None


@dataclass(frozen=True)
class _PickedLoad:
    """A load whose place is computed."""

    load: Load
    place: ComputedPlace

    @property
    def multiplied(self) -> bool:
        """Whether rows of numbers are picked, or columns, which matrix units do."""
        return not self.place.single and self.load.type.rank == 2

    def value(self) -> Expr:
        """What is loaded."""
        load = self.load
        made = self._product() if self.multiplied else self._selected()
        if load.mask is None:
            return made
        return where(load.mask, made, ir.Const(load.other, Type((), load.type.dtype)), load.loc)

    def _whole(self) -> Load:
        """The dimension with all of its positions."""
        load, index = self.load, self.place.whole
        kind = replace(load.type, shape=picked(index))
        return replace(load, index=index, type=kind, mask=None)

    def _hit(self) -> Expr:
        """[rows, position], or [position] of one place: which one it is."""
        loc, size = self.load.loc, self.place.size
        place = binary("maximum", cast(self.place.expr, "int32", loc), 0, loc)
        return one_hot(binary("minimum", place, size - 1, loc), size, 1, loc)

    def _selected(self) -> Expr:
        """The sum over the positions of what is picked."""
        load, dim = self.load, self.place.dim
        held = "int32" if load.type.dtype == "bool" else wide_of(load.type.dtype)
        whole = cast(self._whole(), held, load.loc)
        if not self.place.single:
            whole, dim = expanded(whole, dim), dim + 1
        hit = spread(self._hit(), whole.type.rank, self.place.dim)
        picked = where(hit, whole, ir.Const(0, Type((), held)), load.loc)
        return cast(reduce("sum", picked, dim, False, load.loc), load.type.dtype, load.loc)

    def _product(self) -> Expr:
        """The same of many numbers a row, or a column."""
        loc = self.load.loc
        whole: Expr = self._whole()
        if not self.place.dim:
            return product(self._hit(), whole, loc)
        return transpose(product(self._hit(), transpose(whole, (1, 0), loc), loc), (1, 0), loc)
