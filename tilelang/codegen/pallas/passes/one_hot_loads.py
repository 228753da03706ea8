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
from tilelang.codegen.pallas.computed import ComputedPlaces, one_hot, product, selects_fit, spread
from tilelang.codegen.pallas.target import Target, stays
from tilelang.ir import At, Expr, Load, Type, map_children
from tilelang.ir.lanes import expanded
from tilelang.ir.traversal import map_body, map_stmt
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.dtypes import wide_of
from tilelang.language.shapes import transpose

from .gather_ahead import copies, is_ahead


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
        if is_ahead(kernel, nest, inner, gathers, target, copied):
            return inner
        picked = _found(kernel, inner, computed.dim(expr), target)
        if picked is None:
            return inner
        found.append(expr)
        return picked.value()

    def statement(stmt: ir.Stmt) -> ir.Body:
        match stmt:
            case ir.Store() if stmt.combine is not None and computed.dim(stmt) is not None:
                return (stmt,)  # too large: refused where it is stored
            case _:
                return (map_stmt(stmt, partial(read, copied=copies(stmt))),)

    (made,) = map_body((nest,), statement)
    assert isinstance(made, ir.Loop)
    return made if found else nest


def _found(kernel: ir.KernelIR, load: Load, at: int | None, target: Target) -> _PickedLoad | None:
    """A load at computed places of one dimension, where vector memory holds all of the array."""
    tensor = kernel.tensor(load.tensor)
    if at is None or 0 in tensor.shape:
        return None
    found = _PickedLoad(load, at, tensor.shape[at])
    fits = found.fits(tensor.shape, target)
    return found if fits and stays(tensor.shape, tensor.dtype, target, stored=False) else None


@dataclass(frozen=True)
class _PickedLoad:
    """A load whose dimension `at`, of so many positions, has a computed place."""

    load: Load
    at: int
    size: int

    @property
    def _single(self) -> bool:
        return isinstance(self.load.index[self.at], At)

    @property
    def _dim(self) -> int:
        """The dimension of what is loaded that goes by the places, or would."""
        return sum(not isinstance(entry, At) for entry in self.load.index[: self.at])

    def fits(self, shape: tuple[int, ...], target: Target) -> bool:
        """Whether every row has a place of its own, and vector memory what is selected of."""
        if self._single:
            return True
        entry, wanted = self.load.index[self.at], self.load.type.shape
        assert isinstance(entry, ir.Gather)
        place = entry.expr.type.shape
        if wanted[self._dim : self._dim + 1] != place or wanted.count(place[0]) > 1:
            return False
        return selects_fit(shape[-1:] if self._multiplied else shape, target.rows(4), target)

    @property
    def _multiplied(self) -> bool:
        """Whether rows of numbers are picked, which matrix units do."""
        return not self._single and self.load.type.rank == 2

    def value(self) -> Expr:
        """What is loaded."""
        load = self.load
        made = self._product() if self._multiplied else self._selected()
        if load.mask is None:
            return made
        return where(load.mask, made, ir.Const(load.other, Type((), load.type.dtype)), load.loc)

    def _whole(self) -> Load:
        """The dimension with all of its positions."""
        load, at, dim = self.load, self.at, self._dim
        index = (*load.index[:at], ir.Span(0, self.size), *load.index[at + 1 :])
        rest = load.type.shape[dim + (not self._single) :]
        shape = (*load.type.shape[:dim], self.size, *rest)
        return replace(load, index=index, type=replace(load.type, shape=shape), mask=None)

    def _hit(self) -> Expr:
        """[rows, position], or [position] of one place: which one it is."""
        entry, loc = self.load.index[self.at], self.load.loc
        assert isinstance(entry, At | ir.Gather)
        place = binary("maximum", cast(entry.expr, "int32", loc), 0, loc)
        return one_hot(binary("minimum", place, self.size - 1, loc), self.size, 1, loc)

    def _selected(self) -> Expr:
        """The sum over the positions of what is picked."""
        load, dim = self.load, self._dim
        held = "int32" if load.type.dtype == "bool" else wide_of(load.type.dtype)
        whole = cast(self._whole(), held, load.loc)
        if not self._single:
            whole, dim = expanded(whole, dim), dim + 1
        hit = spread(self._hit(), whole.type.rank, self._dim)
        picked = where(hit, whole, ir.Const(0, Type((), held)), load.loc)
        return cast(reduce("sum", picked, dim, False, load.loc), load.type.dtype, load.loc)

    def _product(self) -> Expr:
        """The same of many numbers a row, or a column."""
        loc = self.load.loc
        whole: Expr = self._whole()
        if not self._dim:
            return product(self._hit(), whole, loc)
        return transpose(product(self._hit(), transpose(whole, (1, 0), loc), loc), (1, 0), loc)
