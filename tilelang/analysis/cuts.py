"""changed(ir, loop) -> carries whose value goes by how the loop is cut into tiles, seen in numbers.

    [ a a | b b b | c c ]    seven positions in three tiles, and in two: online softmax, a mean that
    [ a a | b b b   c c ]    is kept up to date, log(exp(acc) + sum) are worth the same after both

The body is computed in float32 with numbers made up for what is in memory, one for each position.
Two results that differ for every way to make them up are a proof that some call has two results; a
carry that differs by a choice of its own, which what is stored takes out again, is none.  What
cannot be computed here, such as what a loop stored and reads again, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar
from zlib import crc32

import numpy as np

from ..ir import Assign, Body, Carry, Expr, KernelIR, Load, Loop, Stmt, Store, index_exprs
from ..language.dtypes import is_float, to_numpy
from ..language.moment import Array, Covered, Moment
from .carries import Definitions, depends_on, sources_of
from .placed import Place, loops, placed

Draw = Literal["any", "rising", "same"]
State = dict[str, Array]  # what could be computed
Key = TypeVar("Key")
DRAWS: tuple[Draw, ...] = ("any", "rising", "same")  # an author may know that ids rise, or agree
CUTS = ((0, 2, 5, 7), (0, 2, 7))  # where tiles begin and end
OUTER = 2  # positions of a tile of a loop around, or behind
LONGEST = 16  # positions of a loop inside
LARGEST = 1 << 17  # elements of a value: a thousand numbers in a hundred rows
INTEGERS = 12  # those in memory are smaller: as bounds of loops, they make short ones
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 by the golden ratio: Knuth, TAOCP 6.4
CLOSE = 1e-4  # of values near 1 in float32, which the order of a sum changes by 1e-6
UNKNOWN = (LookupError, TypeError, ValueError)  # NumPy has no 2 ** -1 of integers, no max of none


@dataclass(frozen=True)
class _Drawn:
    """Memory that is made up.

    stored, wanted  arrays that the kernel changes, and names that are computed at all
    """

    ir: KernelIR
    draw: Draw
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
        """One for each position: floats from 0.5, small integers, either bool."""
        mixed, total = np.asarray(np.uint64(crc32(name.encode())) * MULTIPLIER), np.asarray(0)
        for positions in at if self.draw != "same" or is_float(dtype) else ():
            mixed = (mixed ^ (mixed >> np.uint64(29))) + positions.astype(np.uint64)
            mixed, total = mixed * MULTIPLIER, total + positions
        unit, rises = (mixed >> np.uint64(11)) / 2.0**53, self.draw == "rising"
        if is_float(dtype):
            found = 0.5 + total / 32 if rises else 0.5 + unit
        elif dtype == "bool":
            found = total > INTEGERS if rises else unit < 0.5
        else:
            found = total // 2 if rises else np.floor(unit * INTEGERS)
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

    def one(self, axis: str, moment: Moment) -> Covered:
        """An iteration of a loop: the first, or one that begins at 0 if nobody knows where."""
        begin = int(_known({axis: self.ir.axis(axis).begin}, moment).get(axis, 0))
        return Covered(begin, begin + (1 if self.ir.axis(axis).kind == "grid" else OUTER))


def changed(ir: KernelIR, axis: str, defined: Definitions) -> frozenset[str]:
    """Names of carries of the loop over an axis that are not the same however it is cut."""
    loop, around = loops(ir)[axis]
    stored = frozenset(ir.root(name) for name in ir.stored())
    wanted = _wanted(ir, loop, defined)
    found = frozenset(c.name for c in loop.carries)
    with np.errstate(all="ignore"):
        for draw in DRAWS:
            memory = _Drawn(ir, draw, stored, wanted)
            found &= _changed(loop, around, memory, defined) if found else found
    return found


def _changed(loop: Loop, around: Place, memory: _Drawn, defined: Definitions) -> frozenset[str]:
    """Those for one way to make up what is in memory."""
    here, rest = _reached(memory.ir.body, loop, around, memory, Moment(memory, most=LARGEST))
    begin = memory.one(loop.axis, here).begin
    tiles = ([Covered(begin + a, begin + b) for a, b in pairwise(cut)] for cut in CUTS)
    one, other = (_state(loop, memory, here, cut) for cut in tiles)
    found = frozenset(name for name in one.keys() & other if _differ(one[name], other[name]))
    if found and not _leaves(memory.ir, loop, around, defined):
        left = [_stored(rest, memory, here.next(_outs(loop, state))) for state in (one, other)]
        if not any(a is None or b is None or _differ(a, b) for a, b in zip(*left, strict=True)):
            return frozenset()
    return found


def _wanted(ir: KernelIR, loop: Loop, defined: Definitions) -> frozenset[str]:
    """What carries are computed from, and what is stored that is computed from them."""
    outs = frozenset(c.out for c in loop.carries)
    before = (sources_of(e, defined) for c in loop.carries for e in (c.init, c.next))
    stores = (s for s, _ in placed(ir.body) if isinstance(s, Store))
    after = (sources_of(e, defined) for s in stores for e in _parts(s))
    return frozenset().union(*before, *(names for names in after if names & outs))


def _leaves(ir: KernelIR, loop: Loop, around: Place, defined: Definitions) -> bool:
    """Whether a carry is stored inside of its loop, or carried on by one around it."""
    inside = frozenset(c.name for c in loop.carries)
    stores = [s for s, at in placed(ir.body) if isinstance(s, Store) and loop.axis in at]
    outs = frozenset(c.out for c in loop.carries)
    outer = (c.next for axis in around for c in loops(ir)[axis][0].carries)
    return any(depends_on(e, inside, defined) for s in stores for e in _parts(s)) or any(
        depends_on(e, outs, defined) for e in outer
    )


def _parts(store: Store) -> tuple[Expr, ...]:
    """All that says what is stored where."""
    mask = () if store.mask is None else (store.mask,)
    return (store.value, *mask, *(e for entry in store.index for e in index_exprs(entry)))


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
    begin, end, step = (
        int(bounds["begin"]),
        int(bounds["end"]),
        1 if axis.kind == "grid" else LONGEST,
    )
    tiles = [Covered(i, min(i + step, end)) for i in range(begin, end, step)]
    return _outs(loop, _state(loop, memory, moment, tiles))


def _state(loop: Loop, memory: _Drawn, moment: Moment, tiles: Iterable[Covered]) -> State:
    """The carries after some tiles, those that can be computed."""
    state = _known({c.name: c.init for c in loop.carries}, moment)
    for tile in tiles:
        inner = moment.inside(loop.axis, tile, state)
        for stmt in loop.body:
            inner.values.update(_named(stmt, memory, inner))
        state = _known({c.name: c.next for c in loop.carries}, inner)
    return state


def _outs(loop: Loop, state: State) -> State:
    """The carries by the names that they have after the loop."""
    return {c.out: state[c.name] for c in loop.carries if c.name in state}


def _stored(body: Body, memory: _Drawn, moment: Moment) -> Iterator[Array | None]:
    """All that statements store, where and under which masks; of loops, what one tile stores."""
    for stmt in body:
        if isinstance(stmt, Store):
            parts = dict(enumerate(_parts(stmt)))
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
