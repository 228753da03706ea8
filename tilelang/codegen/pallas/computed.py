"""Computed places: positions that are made of more than what scalar memory holds.

TPUs address rows by numbers of scalar memory, where nothing is computed from vectors, and no loop
carries anything; and columns by none.  What is at such a place is picked from the whole dimension,
by a one-hot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilelang import ir
from tilelang.analysis.uses import of_vectors, picks
from tilelang.errors import Loc
from tilelang.ir import (
    Apply,
    At,
    Expr,
    Gather,
    Index,
    Load,
    Span,
    Store,
    Type,
    every_expr,
    every_store,
    loads,
)
from tilelang.ir.lanes import arange, expanded, trailing
from tilelang.ir.traversal import definitions, inlined, picked
from tilelang.language.build import binary, cast
from tilelang.language.dtypes import is_float, itemsize

from .passes.members import SUM
from .target import SHARE, Target, padded_bytes

HALF = 16  # bits of an integer that float32 holds exactly, as the parts of a product have to


@dataclass(frozen=True)
class ComputedPlace:
    """Dimension `at` of an index, of so many positions, whose place is computed."""

    index: tuple[Index, ...]
    at: int
    size: int

    @property
    def single(self) -> bool:
        """Whether it is one place, of all that is loaded or stored."""
        return isinstance(self.index[self.at], At)

    @property
    def expr(self) -> Expr:
        entry = self.index[self.at]
        assert isinstance(entry, At | Gather)
        return entry.expr

    @property
    def dim(self) -> int:
        """The dimension of what is loaded or stored that goes by the places, or would."""
        return sum(not isinstance(entry, At) for entry in self.index[: self.at])

    @property
    def shape(self) -> tuple[ir.Dim, ...]:
        """Of what is loaded or stored."""
        return picked(self.index)

    @property
    def simple(self) -> bool:
        """Whether every row has a place of its own, and none goes by its place twice."""
        shape, rows = self.shape, self.expr.type.shape
        if self.single or len(rows) != 1:
            return self.single
        again = isinstance(rows[0], str) and shape.count(rows[0]) > 1
        return shape[self.dim : self.dim + 1] == rows and not again

    def held(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What a step holds of an array: of each dimension with another single place, one plane."""
        places = enumerate(zip(self.index, shape, strict=True))
        return tuple(
            1 if isinstance(entry, At) and d != self.at else size for d, (entry, size) in places
        )

    @property
    def whole(self) -> tuple[Index, ...]:
        """The index of all positions."""
        return (*self.index[: self.at], Span(0, self.size), *self.index[self.at + 1 :])


class ComputedPlaces:
    """Which places of a nest are computed."""

    def __init__(self, kernel: ir.KernelIR, nest: ir.Loop) -> None:
        self._kernel, self._nest = kernel, nest
        self._stored = kernel.stored((nest,))

    def place(self, site: Load | Store) -> ComputedPlace | None:
        """The first place that is computed; None where several dimensions have many places."""
        gathers = [d for d, entry in enumerate(site.index) if isinstance(entry, Gather)]
        singles = [d for d, entry in enumerate(site.index) if self._single(entry)]
        far = _beside(site.index, gathers) or any(
            self._of_rows(self.written_out(e)) for e in picks(site)
        )
        found, shape = [*(gathers if far else ()), *singles], self._kernel.tensor(site.tensor).shape
        if not found or len(gathers) > 1 or 0 in shape:
            return None
        return ComputedPlace(site.index, found[0], shape[found[0]])

    def far(self, place: ComputedPlace) -> Expr | None:
        """What says where it is, written out; None where memory does: columns are picked, too."""
        full = self.written_out(place.expr)
        return full if self._of_rows(full) else None

    def written_out(self, expr: Expr) -> Expr:
        """The expression without names."""
        return inlined(expr, self._values)

    def changes(self, tensor: str) -> bool:
        """Whether the nest stores to a tensor, or to what it is a view of."""
        return self._kernel.root(tensor) in self._stored

    @cached_property
    def _values(self) -> Mapping[str, Expr]:
        return definitions(self._kernel.body)

    @cached_property
    def _far(self) -> frozenset[str]:
        return frozenset(_not_held(self._kernel, self._nest))

    def _single(self, entry: Index) -> bool:
        """Whether a place is made of vectors, or of what the nest stores, which lies with them."""
        if not isinstance(entry, At):
            return False
        full = self.written_out(entry.expr)
        return of_vectors(full) or any(self.changes(load.tensor) for load in loads(full))

    def _of_rows(self, expr: Expr) -> bool:
        """Whether a number of each row is made of more than what lies in scalar memory."""
        far = any(load.tensor in self._far for load in loads(expr))
        return far or of_vectors(expr)


def _beside(index: tuple[Index, ...], gathers: list[int]) -> bool:
    """Whether columns are picked, or planes of a value whose rows lie in front: no copy has one."""
    return any(not isinstance(entry, At) for d in gathers for entry in index[:d])


def _not_held(kernel: ir.KernelIR, nest: ir.Loop) -> Iterator[str]:
    """The tensors whose numbers are asked for as blocks, or change: no scalar memory holds them."""
    yield from (store.tensor for store in every_store((nest,)))
    for expr in every_expr((nest,)):
        yield from (e.tensor for e in loads(expr) if e.type.rank > 1)
    yield from (t.name for t in kernel.tensors if is_float(t.dtype))


def one_hot(place: Expr, size: int, axis: int, loc: Loc | None) -> Expr:
    """[rows, size], or [size, rows] with `axis` 0: which of so many positions places are.

    [size] of one place.
    """
    held = cast(place, "int32", loc)
    if not place.type.rank:
        return binary("eq", held, arange(size), loc)
    return binary("eq", expanded(held, axis), expanded(arange(size), 1 - axis), loc)


def spread(hit: Expr, rank: int, dim: int) -> Expr:
    """A one-hot that meets values of so many dimensions, of which its own begin at `dim`."""
    return trailing(hit, rank - dim - hit.type.rank)


def product(hit: Expr, rows: Expr, loc: Loc | None) -> Expr:
    """[places, columns] of a one-hot [places, rows]: the sums of the rows that each picks.

    Of integers it picks one at most, which float32 has the halves of.
    """
    dtype = rows.type.dtype
    if is_float(dtype) or itemsize(dtype) <= 2:
        return cast(_summed(hit, rows, loc), dtype, loc)
    low = binary("bitwise_and", rows, (1 << HALF) - 1, loc)
    high = binary("shift_right", rows, HALF, loc)
    upper, lower = (cast(_summed(hit, part, loc), "int32", loc) for part in (high, low))
    made = binary("add", binary("shift_left", upper, HALF, loc), lower, loc)
    return cast(made, dtype, loc)


def _summed(hit: Expr, rows: Expr, loc: Loc | None) -> Expr:
    """float32, which is exact of one addend that 16 bits or float32 hold."""
    wide = rows if rows.type.dtype == "bfloat16" else cast(rows, "float32", loc)
    kind = Type((*hit.type.shape[:1], *rows.type.shape[1:]), "float32")
    return Apply(SUM, (hit, wide), kind, (), loc)


def selects_fit(shape: tuple[int, ...], rows: int, target: Target) -> bool:
    """Whether what is selected of so many copies of an array fits into its part of memory."""
    one = padded_bytes((1, *shape)[-2:], "float32", target)
    return rows * prod(shape[:-2]) * one <= target.vmem_default // SHARE
