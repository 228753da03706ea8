"""Moment: one point of an execution in NumPy, at which every expression is worth something.

Whoever executes says what is in memory: `Kernel.reference` what a call gave, the proofs of folds
what they made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

import numpy as np

from .. import ir
from .dtypes import to_numpy
from .evaluate import Array, compute


@dataclass(frozen=True)
class Covered:
    """What one iteration covers: positions begin to end - 1.  Of a grid axis, one position.

    The rest is None where it is not known how the loop is cut.
    """

    begin: int
    end: int
    id: int | None = None
    count: int | None = None
    block_size: int | None = None

    @property
    def positions(self) -> Array:
        return np.arange(self.begin, self.end)

    def __len__(self) -> int:
        return max(self.end - self.begin, 0)


class Contents(Protocol):
    """What is read, and the dtype that values of a dtype are computed in."""

    def load(self, load: ir.Load, moment: Moment) -> Array: ...

    def dtype(self, name: str) -> str: ...


@dataclass(frozen=True)
class Moment:
    """What is known: memory, values by name, and the tile of each axis.

    LookupError for what is not known, and for arrays of more elements than `most`.
    """

    memory: Contents
    values: dict[str, Array] = field(default_factory=dict)
    tiles: Mapping[str, Covered] = field(default_factory=dict)
    most: int | None = None
    done: dict[int, Array] = field(default_factory=dict)  # by id, of one statement

    def next(self, values: Mapping[str, Array] | None = None) -> Moment:
        """For another statement, in which an expression is evaluated once; it may know more."""
        return replace(self, values={**self.values, **values} if values else self.values, done={})

    def inside(self, axis: str, tile: Covered, carried: Mapping[str, Array]) -> Moment:
        """In an iteration of a loop, whose names are its own."""
        values, tiles = {**self.values, **carried}, {**self.tiles, axis: tile}
        return replace(self, values=values, tiles=tiles, done={})

    def value(self, expr: ir.Expr) -> Array:
        """What an expression is worth; a shared subexpression is evaluated once."""
        known = self.done.get(id(expr))
        if known is None:
            known = self.done[id(expr)] = np.asarray(self._computed(expr))
        return known

    def _computed(self, expr: ir.Expr) -> Array:
        match expr:
            case ir.Const(value):
                return np.asarray(value).astype(to_numpy(self.memory.dtype(expr.type.dtype)))
            case ir.Var(name):
                return self.values[name]
            case ir.GridIndex(axis):
                return np.asarray(self.tiles[axis].begin, np.int32)
            case ir.TileIndex(axis):
                return self.tiles[axis].positions.astype(np.int32)
            case ir.TileScalar(axis, what):
                if (scalar := getattr(self.tiles[axis], what)) is None:
                    raise LookupError(f"{axis}.{what}")
                return np.asarray(scalar, np.int32)
            case ir.Load():
                return self.memory.load(expr, self)
            case ir.Apply(op, args):
                operands = tuple(self.value(a) for a in args)
                shape = self.lengths(expr.type.shape)
                return compute(op, operands, self.memory.dtype(expr.type.dtype), shape, expr.attrs)
            case _:
                assert_never(expr)

    def lengths(self, shape: Iterable[ir.Dim]) -> tuple[int, ...]:
        """A shape in numbers: along an axis, as many as the tile has positions."""
        found = tuple(len(self.tiles[d]) if isinstance(d, str) else d for d in shape)
        if self.most is not None and math.prod(found) > self.most:
            raise LookupError(f"an array of {found}")
        return found

    def positions(self, index: tuple[ir.Index, ...]) -> tuple[Array, ...]:
        """One array of positions per tensor dimension; together they broadcast to the value."""
        every = [self._along(entry) for entry in index]
        place, rank = 0, sum(one.ndim for one in every)
        out: list[Array] = []
        for one in every:
            place += one.ndim
            out.append(one.reshape(*one.shape, *(1,) * (rank - place)) if one.ndim else one)
        return tuple(out)

    def _along(self, entry: ir.Index) -> Array:
        match entry:
            case ir.At(expr) | ir.Gather(expr):
                return self.value(expr).astype(np.int64)
            case ir.Span(start, stop):
                return np.arange(start, stop)
            case ir.Along(axis, offset):
                moved = 0 if offset is None else int(self.value(offset))
                return self.tiles[axis].positions + moved
            case _:
                assert_never(entry)
