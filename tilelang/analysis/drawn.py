"""Drawn: memory that is made up, for bodies of loops that are computed before there is any call.

x[t, :]        floats near 1 or -2, one for each position, that grow, so that maxima move; or of
               both signs, so that sums of two positions have others than those of all; or
               of two numbers, so that one is as great as another
offsets[g]     integers of about MOST: conditions may ask for small ones or large ones
y[t, :]        what the loop itself has stored there, or what was there before
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

import numpy as np

from ..ir import Along, Carry, Expr, Gather, Index, KernelIR, Load
from ..language.dtypes import is_float, to_numpy
from ..language.moment import Array, Covered, Moment
from .written import Noted, seen

Key = TypeVar("Key")
Turn = tuple[Array, Array]
State = dict[str, Array]  # what could be computed
TRIES, FEWER = 64, 16  # with limits that memory has, and where something is compared at all
# Of integers, and at least half of it: conditions may ask for either.
MOST = (1, 2, 12, 1 << 10) + (1,) * (TRIES - 4)
BELOW = 3.0  # floats of one size are negative: a maximum may hide what is small
ANY = (4, *range(8, TRIES))  # the sizes of numbers of any sign, again and again: others are limits
SIGNS = (2, *ANY)  # those of both signs: conditions may ask for that of a sum
# What is compared is one of two numbers: several are the greatest, also in one tile.  What is not
# has its greatest and its least between the first and the last of these, or first of all.
TIES = np.array([2, 1, 2, 2, 1, 2, 1])
TIED = {5: {2: 3, 3: 1}, 6: {0: 1, 1: 0}, 7: {0: 3, 1: 4}}
# Floats of both signs along a loop, again and again: of 7 or 11 positions from any one on the sum
# is positive, that of one pair is negative and that of another is not.  Arrays begin at one of
# FIRST: both numbers of the first pair are negative, and products of two arrays are as such numbers
# are.  Found by trying.
SIGNED = np.array([1.2, -0.2, -0.4, -0.4, 1.3, -0.5, -0.4])
FIRST = np.array([1, 2, 5])
TURN = np.array([1.3, 3.3, 5.3])  # positions from which on numbers that rise are positive
STEEP, FAR = 8, 2.0  # positions by which they grow by one, and no further than that
EXACT = 1 << 12  # of one: products of floats and their sums are exact, in any order
LENGTH = 11  # of ranges that memory bounds
LONGEST = 16  # positions of a short loop
OUTER = 3  # positions of a tile of a loop around, or behind: one may see none of two that are cut
WHOLE = 40  # how large integers of both signs are that no position is made of
SMALL = np.array([0, 0, 2, 1, 0, 3, -1])  # such integers, or numbers that they are compared with
LIMITS = (1, 3, 10)  # how large what is compared with all of a loop is, by turns
FEW = 6  # how large others are, which meet limits of memory by chance
APART = 4  # positions between those tiles that are tried
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 by the golden ratio: Knuth, TAOCP 6.4
UNKNOWN = (LookupError, TypeError, ValueError)  # NumPy has no 2 ** -1 of integers, no max of none


@dataclass(frozen=True)
class Drawn:
    """Memory that is made up.

    rises   with the position, what is `placing` or `ordered`
    sizes   which of MOST, and which iteration of loops over numbers around
    stored  arrays that the kernel changes elsewhere, of which nothing is known
    wanted  names that are computed at all
    bounds  arrays that say where the loop begins and ends: it has LENGTH positions, or `most`
    begins  those of them that say where it begins: at 0, too
    edges   those that say it of any loop: they rise as offsets do
    placing those, and all that positions are made of
    ordered arrays that comparisons are made of, which an author may know to rise
    most    positions of the loop that are tried, if it is longer than a short one
    axis    the loop
    follow  loops inside whose ranges go by its tiles
    scale   how large floats of both signs are: more than what they are compared with
    whole_scale  the same of integers
    log     what was stored so far
    origin  where the loop begins
    """

    ir: KernelIR
    rises: bool
    sizes: int
    stored: frozenset[str]
    wanted: frozenset[str]
    bounds: frozenset[str]
    begins: frozenset[str]
    edges: frozenset[str]
    placing: frozenset[str]
    ordered: frozenset[str]
    most: int
    axis: str
    follow: frozenset[str]
    scale: float
    whole_scale: float
    log: list[Noted] = field(default_factory=list)
    origin: int = 0

    def load(self, load: Load, moment: Moment) -> Array:
        """Numbers that are made up for the positions, or that the loop stored there."""
        array = self.ir.root(load.tensor)
        if array in self.stored:
            raise LookupError(load.tensor)
        shape, at = moment.lengths(load.type.shape), moment.positions(load.index)
        turn = self.turn(load, at, moment)
        found = self.numbers(load.tensor, load.type.dtype, at, shape, turn)
        found = seen([w for w in self.log if w.array == array], load.tensor, at, found)
        return found if load.mask is None else np.where(moment.value(load.mask), found, load.other)

    def dtype(self, name: str) -> str:
        """What is rounded is no difference that an author means: large numbers may cancel."""
        return "float64" if is_float(name) else name

    def turn(self, load: Load, at: Sequence[Array], moment: Moment) -> Turn | None:
        """The positions of the loop that an array goes by, and those of other tiles."""
        pairs = [(dims_of(entry), found) for entry, found in zip(load.index, at, strict=True)]
        own = next((found for dims, found in pairs if self.axis in dims), None)
        if own is None:
            return None
        tile = moment.tiles[self.axis].positions
        own = own if own.size != len(tile) else (tile - self.origin).reshape(own.shape)
        others = (found for dims, found in pairs if dims and self.axis not in dims)
        return own, sum(others, np.asarray(0))

    def numbers(
        self,
        name: str,
        dtype: str,
        at: Iterable[Array],
        shape: tuple[int, ...],
        turn: Turn | None = None,
    ) -> Array:
        """One for each position; floats that grow, so that maxima move, and either bool."""
        mixed = np.asarray(np.uint64(crc32(f"{name} {self.sizes}".encode())) * MULTIPLIER)
        total, most = np.asarray(0), MOST[self.sizes]
        for positions in at:
            mixed = (mixed ^ (mixed >> np.uint64(29))) + positions.astype(np.uint64)
            mixed, total = mixed * MULTIPLIER, total + positions
        unit = (mixed >> np.uint64(11)) / 2.0**53
        if is_float(dtype):
            found = 0.5 + total % 64 / 64 + (0.0 if self.rising(name) else unit)
            found = found - BELOW if self.sizes == 1 else found
            if self.sizes in SIGNS:
                found = self.signed(name, total, turn, unit)
            elif self.sizes in TIED:
                found = self.scale * self.tied(name, total, turn, unit / 8)
            found = np.rint(found * EXACT) / EXACT
        elif dtype == "bool":
            found = unit < 0.5
        elif name in self.bounds:
            length = max(LENGTH, self.most)
            found = length * (total + (self.sizes not in (0, ANY[0]) or name not in self.begins))
        elif self.both_signs(name):
            found = self.whole(name, total, turn, unit)
            found = np.abs(found) if dtype.startswith("uint") else found
            found = np.clip(found, np.iinfo(dtype).min, np.iinfo(dtype).max)
        elif self.rising(name):
            found = most * (1 + total) if name in self.edges else most // 2 + total // 4
        else:
            found = most // 2 + np.floor(unit * (most - most // 2))
            found = found + (most * total if name in self.edges else 0)
        return np.broadcast_to(found.astype(to_numpy(self.dtype(dtype))), shape)

    def both_signs(self, name: str) -> bool:
        """Whether integers have both signs; one alone, and large ones that rise, need not."""
        alone = any(t.name == name and math.prod(t.shape) == 1 for t in self.ir.tensors)
        rises = self.sizes < ANY[0] and self.sizes not in SIGNS and self.rising(name)
        return self.sizes > 1 and not (alone or rises or name in self.placing)

    def rising(self, name: str) -> bool:
        """Whether it is one that rises, if there are some."""
        return self.rises and (name in self.ordered or name in self.placing)

    def signed(self, name: str, total: Array, turn: Turn | None, unit: Array) -> Array:
        """Numbers of both signs: that rise, that have them wherever the loop is, or any."""
        names = [t.name for t in self.ir.tensors]
        own, others = turn or (total, np.asarray(0))
        which = others + (names.index(name) if name in names else 0)
        if self.sizes in ANY and not (turn and self.rising(name)):
            limit = turn is None and name in self.ordered
            return self.scale * (LIMITS[self.sizes % len(LIMITS)] if limit else 1) * (2 * unit - 1)
        if self.rising(name):
            chance = crc32(f"{self.sizes} {name}".encode()) / 2**32
            any_one = self.sizes in ANY
            after = LENGTH * chance if any_one else TURN[which % len(TURN)]
            by = 1 + STEEP * chance if any_one else STEEP
            return self.scale * np.clip((own - after) / by, -FAR, FAR) + total / 4096
        first = FIRST[which % len(FIRST)]
        return SIGNED[(own + first) % len(SIGNED)] * (self.scale + unit / 4)

    def whole(self, name: str, total: Array, turn: Turn | None, unit: Array) -> Array:
        """Integers of both signs; or small ones, also what they may be compared with, or 0."""
        if self.sizes in TIED:
            found = self.tied(name, total, turn, unit / 8)
            by = max(1, int(self.whole_scale) // 2) if self.sizes == min(TIED) else 1
            return by * found if name in self.ordered else np.rint(found * WHOLE)
        if self.sizes < ANY[0] and self.sizes not in SIGNS:
            return np.rint((2 * unit - 1) * MOST[self.sizes])
        if self.sizes not in ANY:
            return np.rint(self.signed(name, total, turn, unit) * WHOLE)
        own, by = turn[0] if turn else total, max(1, int(self.whole_scale) // 2)
        if self.sizes != ANY[0]:
            return np.rint(self.signed(name, total, turn, unit) / self.scale * by * FEW)
        return by * (np.maximum(own - 1, 0) if self.rising(name) else SMALL[own % len(SMALL)])

    def tied(self, name: str, total: Array, turn: Turn | None, more: Array) -> Array:
        """One of two numbers; where they rise, the first is less than all others.

        What is not compared is neither least nor greatest at the first or the last of a tie.
        """
        own = turn[0] if turn else total
        if name not in self.ordered:
            middle = 2 + own * 5 % LONGEST / (2 * LONGEST)
            ends = TIED[self.sizes]
            return np.select([own == at for at in ends], [*ends.values()], middle) + more
        return np.minimum(own, 1) if self.rising(name) else TIES[own % len(TIES)]

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
        share = self.sizes if self.sizes < ANY[0] else 0
        at = begin + (max(end - begin, 1) - 1) * share // (ANY[0] - 1)
        return Covered(at, at + 1)


def dims_of(entry: Index) -> Iterable[str | int]:
    """What a position of an array goes by."""
    match entry:
        case Along(axis):
            return (axis,)
        case Gather(expr):
            return expr.type.shape
        case _:
            return ()


def worth(exprs: Mapping[Key, Expr], moment: Moment) -> dict[Key, Array]:
    """What expressions are worth, those that can be computed."""
    here, found = moment.next(), dict[Key, Array]()
    for name, expr in exprs.items():
        with suppress(*UNKNOWN):
            found[name] = here.value(expr)
    return found
