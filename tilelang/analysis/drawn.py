"""Drawn: memory that is made up, for bodies of loops that are computed before there is any call.

x[t, :]        floats near 1, -2 or 0, one for each position, that grow, so that maxima move
offsets[g]     integers of about MOST: conditions may ask for small ones or large ones
y[t, :]        what the loop itself has stored there, or what was there before
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

import numpy as np

from ..ir import Carry, Expr, KernelIR, Load
from ..language.dtypes import is_float, to_numpy
from ..language.moment import Array, Covered, Moment
from .written import Noted, seen

Key = TypeVar("Key")
State = dict[str, Array]  # what could be computed
MOST = (1, 2, 12, 1 << 10)  # of integers, at least half of it: conditions may ask for either
BELOW = 3.0  # floats of one size are negative: a maximum may hide what is small
SIGNS = 2  # the size of floats of both signs: a condition may ask for that of a sum
TURN = 1.3  # position from which on most are positive: a tile of two has others than all
STEEP, FAR = 8, 2.0  # positions by which they grow by one, and no further than that
LENGTH = 11  # of ranges that memory bounds
OUTER = 2  # positions of a tile of a loop around, or behind
APART = 4  # positions between those tiles that are tried
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 by the golden ratio: Knuth, TAOCP 6.4
UNKNOWN = (LookupError, TypeError, ValueError)  # NumPy has no 2 ** -1 of integers, no max of none


@dataclass(frozen=True)
class Drawn:
    """Memory that is made up.

    rises   with the position
    sizes   which of MOST, and which iteration of loops over numbers around
    stored  arrays that the kernel changes elsewhere, of which nothing is known
    wanted  names that are computed at all
    bounds  arrays that say where the loop begins and ends: it has LENGTH positions, or `most`
    begins  those of them that say where it begins: at 0, too
    edges   those that say it of any loop: they rise as offsets do
    most    positions of the loop that are tried, if it is longer than a short one
    log     what was stored so far
    """

    ir: KernelIR
    rises: bool
    sizes: int
    stored: frozenset[str]
    wanted: frozenset[str]
    bounds: frozenset[str]
    begins: frozenset[str]
    edges: frozenset[str]
    most: int
    log: list[Noted] = field(default_factory=list)

    def load(self, load: Load, moment: Moment) -> Array:
        """Numbers that are made up for the positions, or that the loop stored there."""
        array = self.ir.root(load.tensor)
        if array in self.stored:
            raise LookupError(load.tensor)
        shape, at = moment.lengths(load.type.shape), moment.positions(load.index)
        found = self.numbers(load.tensor, load.type.dtype, at, shape)
        found = seen([w for w in self.log if w.array == array], load.tensor, at, found)
        return found if load.mask is None else np.where(moment.value(load.mask), found, load.other)

    def dtype(self, name: str) -> str:
        """What is rounded is no difference that an author means: large numbers may cancel."""
        return "float64" if is_float(name) else name

    def numbers(self, name: str, dtype: str, at: Iterable[Array], shape: tuple[int, ...]) -> Array:
        """One for each position; floats that grow, so that maxima move, and either bool."""
        mixed = np.asarray(np.uint64(crc32(f"{name} {self.sizes}".encode())) * MULTIPLIER)
        total, most = np.asarray(0), MOST[self.sizes]
        for positions in at:
            mixed = (mixed ^ (mixed >> np.uint64(29))) + positions.astype(np.uint64)
            mixed, total = mixed * MULTIPLIER, total + positions
        unit = (mixed >> np.uint64(11)) / 2.0**53
        if is_float(dtype):
            found = 0.5 + total % 64 / 64 + (0.0 if self.rises else unit)
            found = found - BELOW if self.sizes == 1 else found
            if self.sizes == SIGNS:
                found = self.signed(name, total) + (0.0 if self.rises else unit - 0.5)
        elif dtype == "bool":
            found = unit < 0.5
        elif name in self.bounds:
            length = max(LENGTH, self.most)
            found = length * (total + (self.sizes > 0 or name not in self.begins))
        elif self.rises:
            found = most * (1 + total) if name in self.edges else most // 2 + total // 4
        else:
            found = most // 2 + np.floor(unit * (most - most // 2))
            found = found + (most * total if name in self.edges else 0)
        return np.broadcast_to(found.astype(to_numpy(self.dtype(dtype))), shape)

    def signed(self, name: str, total: Array) -> Array:
        """Numbers that turn from negative to positive over the first positions of an array's rows.

        total  the sum of the positions in all dimensions
        """
        known = [t.shape for t in self.ir.tensors if t.name == name]
        middle = sum((n - 1) / 2 for shape in known for n in shape[1:])
        return np.clip((total - middle - TURN) / STEEP, -FAR, FAR)

    def carried(self, carry: Carry, moment: Moment) -> State:
        """A value of which nothing is known, where it can be made up."""
        kind = carry.init.type
        try:
            shape = moment.lengths(kind.shape)
        except LookupError:
            return {}
        return {
            carry.name: self.numbers(carry.name, kind.dtype, np.indices(shape, sparse=True), shape)
        }

    def begin(self, axis: str, moment: Moment) -> int:
        """Where a loop begins, 0 if nobody knows."""
        return int(worth({axis: self.ir.axis(axis).begin}, moment).get(axis, 0))

    def one(self, axis: str, moment: Moment) -> Covered:
        """An iteration of a loop."""
        known, begin = self.ir.axis(axis), self.begin(axis, moment)
        if known.kind == "tile":  # of rows that see all of what is cut, or none, or a part of it
            begin += self.sizes * APART
            return Covered(begin, begin + OUTER)
        begin, end = known.static or (begin, begin + MOST[self.sizes])
        at = begin + (max(end - begin, 1) - 1) * self.sizes // (len(MOST) - 1)
        return Covered(at, at + 1)


def worth(exprs: Mapping[Key, Expr], moment: Moment) -> dict[Key, Array]:
    """What expressions are worth, those that can be computed."""
    here, found = moment.next(), dict[Key, Array]()
    for name, expr in exprs.items():
        with suppress(*UNKNOWN):
            found[name] = here.value(expr)
    return found
