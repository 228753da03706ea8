"""changes(ir) -> what goes by how loops are cut into tiles, seen in numbers.

    [ a | b | c c | d d d ]   seven positions in four tiles, and in one: online softmax, a mean that
    [ a   b   c c   d d d ]   is kept up to date, log(exp(acc) + sum) are worth the same after both

The body is computed in float32 with numbers made up for what is in memory, one for each position.
Two results that differ, also where numbers rise, are a proof that some call has two results; a
carry that differs by a choice of its own, which what is stored takes out again, is none.  What
cannot be computed here, such as what a loop stored and reads again, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar
from zlib import crc32

import numpy as np

from ..ir import (
    Along,
    Assign,
    Body,
    Carry,
    Expr,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    statement_exprs,
)
from ..language.dtypes import is_float, to_numpy
from ..language.moment import Array, Covered, Moment
from .carries import Definitions, depends_on, sources_of
from .placed import Place, loops, placed
from .stores import is_free

State = dict[str, Array]  # what could be computed
Key = TypeVar("Key")
MOST = (1, 2, 12, 1 << 10)  # of integers, at least half of it: conditions may ask for either
RISES = (False, True)  # an author may know that ids rise, or times
CUTS = ((0, 1, 2, 4, 7), (0, 7))  # where tiles begin and end
OUTER = 2  # positions of a tile of a loop around, or behind
APART = 4  # positions between those tiles that are tried
LONGEST = 16  # positions of a loop inside
LARGEST = 1 << 17  # elements of a value: a thousand numbers in a hundred rows
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 by the golden ratio: Knuth, TAOCP 6.4
CLOSE = 1e-4  # of values near 1 in float32, which the order of a sum changes by 1e-6
UNKNOWN = (LookupError, TypeError, ValueError)  # NumPy has no 2 ** -1 of integers, no max of none


@dataclass(frozen=True)
class _Drawn:
    """Memory that is made up.

    rises           with the position
    sizes           which of MOST, and which iteration of loops over numbers around
    stored, wanted  arrays that the kernel changes, and names that are computed at all
    """

    ir: KernelIR
    rises: bool
    sizes: int
    stored: frozenset[str]
    wanted: frozenset[str]

    def load(self, load: Load, moment: Moment) -> Array:
        """Numbers that are made up for the positions; none of what the kernel stores."""
        if self.ir.root(load.tensor) in self.stored:
            raise LookupError(load.tensor)
        shape = moment.lengths(load.type.shape)
        found = self.numbers(load.tensor, load.type.dtype, moment.positions(load.index), shape)
        return found if load.mask is None else np.where(moment.value(load.mask), found, load.other)

    def dtype(self, name: str) -> str:
        """Narrow floats are not rounded: that is no difference that an author means."""
        return "float32" if is_float(name) else name

    def numbers(self, name: str, dtype: str, at: Iterable[Array], shape: tuple[int, ...]) -> Array:
        """One for each position: floats near 1 that grow, so that maxima move, either bool."""
        mixed = np.asarray(np.uint64(crc32(f"{name} {self.sizes}".encode())) * MULTIPLIER)
        total, most = np.asarray(0), MOST[self.sizes]
        for positions in at:
            mixed = (mixed ^ (mixed >> np.uint64(29))) + positions.astype(np.uint64)
            mixed, total = mixed * MULTIPLIER, total + positions
        unit = (mixed >> np.uint64(11)) / 2.0**53
        if is_float(dtype):
            found = 0.5 + total % 64 / 64 + (0.0 if self.rises else unit)
        elif dtype == "bool":
            found = unit < 0.5
        else:
            found = most // 2 + (total // 4 if self.rises else np.floor(unit * (most - most // 2)))
        return np.broadcast_to(found.astype(to_numpy(self.dtype(dtype))), shape)

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
        return int(_known({axis: self.ir.axis(axis).begin}, moment).get(axis, 0))

    def one(self, axis: str, moment: Moment) -> Covered:
        """An iteration of a loop."""
        known, begin = self.ir.axis(axis), self.begin(axis, moment)
        if known.kind == "tile":  # of rows that see all of CUTS, or none, or a part of them
            begin += self.sizes * APART
            return Covered(begin, begin + OUTER)
        begin, end = known.static or (begin, begin + MOST[self.sizes])
        at = begin + (max(end - begin, 1) - 1) * self.sizes // (len(MOST) - 1)
        return Covered(at, at + 1)


@dataclass(frozen=True)
class Changed:
    """Carries of a loop, by name, that are not the same however it is cut.

    stores  those in it of which the last tile's value is not, by their place in its body
    """

    carries: frozenset[str] = frozenset()
    stores: frozenset[int] = frozenset()


def changes(ir: KernelIR, defined: Definitions) -> dict[str, Changed]:
    """Those of every loop over tiles that a config cuts."""
    every = ((loop, around) for loop, around in loops(ir).values() if loop.carries)
    free = ((loop, around) for loop, around in every if is_free(loop.axis, ir))
    return {loop.axis: _loop(ir, loop, around, defined) for loop, around in free}


def _loop(ir: KernelIR, loop: Loop, around: Place, defined: Definitions) -> Changed:
    """Those of one loop."""
    stored = frozenset(ir.root(name) for name in ir.stored())
    wanted = _wanted(ir, loop, defined)
    carries, stores = frozenset[str](), frozenset[int]()
    with np.errstate(all="ignore"):
        for sizes in range(len(MOST)):
            drawn = (_Drawn(ir, rises, sizes, stored, wanted) for rises in RISES)
            first = _changed(loop, around, next(drawn), defined)
            if first != Changed():
                rising = _changed(loop, around, next(drawn), defined)
                first = Changed(first.carries & rising.carries, first.stores & rising.stores)
            carries, stores = carries | first.carries, stores | first.stores
    return Changed(carries, stores)


def _changed(loop: Loop, around: Place, memory: _Drawn, defined: Definitions) -> Changed:
    """Those for one way to make up what is in memory."""
    here, rest = _reached(memory.ir.body, loop, around, memory, Moment(memory, most=LARGEST))
    begin = memory.begin(loop.axis, here)
    tiles = ([Covered(begin + a, begin + b) for a, b in pairwise(cut)] for cut in CUTS)
    (one, last), (other, same) = (_state(loop, memory, here, cut) for cut in tiles)
    found = frozenset(name for name in one.keys() & other if _differ(one[name], other[name]))
    left, right = _stays(loop, last), _stays(loop, same)
    stores = frozenset(at for at in left.keys() & right if _differ(left[at], right[at]))
    if found and not _leaves(memory.ir, loop, around, defined):
        after = [_stored(rest, memory, here.next(_outs(loop, state))) for state in (one, other)]
        if not any(a is None or b is None or _differ(a, b) for a, b in zip(*after, strict=True)):
            found = frozenset()
    return Changed(found, stores)


def _stays(loop: Loop, last: Moment) -> dict[int, Array]:
    """What the last tile stores where all tiles do, by the place of the store."""
    stores = {
        at: s
        for at, s in enumerate(loop.body)
        if isinstance(s, Store) and s.combine is None
        if not any(isinstance(entry, Along) and entry.axis == loop.axis for entry in s.index)
    }
    masks = _known({at: s.mask for at, s in stores.items() if s.mask is not None}, last)
    sure = {
        at: s.value for at, s in stores.items() if s.mask is None or np.all(masks.get(at, False))
    }
    return _known(sure, last)


def _wanted(ir: KernelIR, loop: Loop, defined: Definitions) -> frozenset[str]:
    """What carries and stores in the loop are computed from, and stores of what it leaves."""
    outs = frozenset(c.out for c in loop.carries)
    carries = (sources_of(e, defined) for e in statement_exprs(loop))
    stores = ((s, at[-1:]) for s, at in placed(ir.body) if isinstance(s, Store))
    asked = ((at, sources_of(e, defined)) for s, at in stores for e in statement_exprs(s))
    kept = (names for at, names in asked if at == (loop.axis,) or names & outs)
    return frozenset().union(*carries, *kept)


def _leaves(ir: KernelIR, loop: Loop, around: Place, defined: Definitions) -> bool:
    """Whether a carry is stored inside of its loop, or carried on by one around it."""
    inside = frozenset(c.name for c in loop.carries)
    stores = [s for s, at in placed(ir.body) if isinstance(s, Store) and loop.axis in at]
    outs = frozenset(c.out for c in loop.carries)
    outer = (c.next for axis in around for c in loops(ir)[axis][0].carries)
    return any(depends_on(e, inside, defined) for s in stores for e in statement_exprs(s)) or any(
        depends_on(e, outs, defined) for e in outer
    )


def _reached(
    body: Body, target: Loop, around: Place, memory: _Drawn, moment: Moment
) -> tuple[Moment, Body]:
    """What is known before a loop in one iteration of those around it, and what follows it."""
    for at, stmt in enumerate(body):
        if stmt is target:
            return moment, body[at + 1 :]
        if isinstance(stmt, Loop) and around[:1] == (stmt.axis,):
            inner = moment.inside(stmt.axis, memory.one(stmt.axis, moment), {})
            for carry in stmt.carries:
                inner = inner.next(memory.carried(carry, inner))
            return _reached(stmt.body, target, around[1:], memory, inner)
        moment.values.update(_named(stmt, memory, moment))
    raise AssertionError(f"no loop over {target.axis}")


def _named(stmt: Stmt, memory: _Drawn, moment: Moment) -> State:
    """What a statement names, if that is wanted and can be computed."""
    match stmt:
        case Assign(name, value) if name in memory.wanted:
            return _known({name: value}, moment)
        case Loop() if any(c.out in memory.wanted for c in stmt.carries):
            return _looped(stmt, memory, moment)
        case _:
            return {}


def _looped(loop: Loop, memory: _Drawn, moment: Moment) -> State:
    """What a short loop leaves; a tile of it is all of its positions."""
    axis = memory.ir.axis(loop.axis)
    bounds = _known({"begin": axis.begin, "end": axis.end}, moment)
    if len(bounds) < 2 or bounds["end"] - bounds["begin"] > LONGEST:
        return {}
    begin, end = (int(bounds[edge]) for edge in ("begin", "end"))
    step = 1 if axis.kind == "grid" else LONGEST
    tiles = [Covered(i, min(i + step, end)) for i in range(begin, end, step)]
    return _outs(loop, _state(loop, memory, moment, tiles)[0])


def _state(
    loop: Loop, memory: _Drawn, moment: Moment, tiles: Iterable[Covered]
) -> tuple[State, Moment]:
    """The carries after some tiles, those that can be computed, and the last tile."""
    state, inner = _known({c.name: c.init for c in loop.carries}, moment), moment
    for tile in tiles:
        inner = moment.inside(loop.axis, tile, state)
        for stmt in loop.body:
            inner.values.update(_named(stmt, memory, inner))
        state = _known({c.name: c.next for c in loop.carries}, inner)
    return state, inner


def _outs(loop: Loop, state: State) -> State:
    """The carries by the names that they have after the loop."""
    return {c.out: state[c.name] for c in loop.carries if c.name in state}


def _stored(body: Body, memory: _Drawn, moment: Moment) -> Iterator[Array | None]:
    """All that statements store, where and under which masks; of loops, what one tile stores."""
    for stmt in body:
        if isinstance(stmt, Store):
            parts = dict(enumerate(statement_exprs(stmt)))
            found = _known(parts, moment)
            yield from (found.get(part) for part in parts)
        elif isinstance(stmt, Loop) and not stmt.carries:
            inner = moment.inside(stmt.axis, memory.one(stmt.axis, moment), {})
            yield from _stored(stmt.body, memory, inner)
        elif isinstance(stmt, Loop):
            yield None
        moment.values.update(_named(stmt, memory, moment))


def _known(exprs: Mapping[Key, Expr], moment: Moment) -> dict[Key, Array]:
    """What expressions are worth, those that can be computed."""
    here, found = moment.next(), dict[Key, Array]()
    for name, expr in exprs.items():
        with suppress(*UNKNOWN):
            found[name] = here.value(expr)
    return found


def _differ(one: Array, other: Array) -> bool:
    return not np.allclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)
