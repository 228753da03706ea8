"""Interior tiles of a loop: those that no mask cuts, in a loop of their own without the masks.

    for tk in range(begin, last, 64):               scores = where(tk_at < last, ...)
        ->  whole = begin + max(last - begin, 0) // 64 * 64
            for tk in range(begin, whole, 64):      scores = ...
            for tk in range(whole, last, 64):       scores = where(tk_at < last, ...)

A mask of the positions `at = start + [0, lanes)` that holds below some position holds in all lanes
of a tile that ends there or before.  Where that is follows from the masks themselves: the end of
the range, and a diagonal that a comparison of the author's draws.  Conditions of another form stay
in both loops.  It is done for loops of products, whose warps wait for what is between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import inf

from tilelang.ir import (
    Apply,
    Const,
    Expr,
    Var,
    conjuncts,
    integers,
    map_children,
    meant,
    read_by,
    walk,
)
from tilelang.ir.integers import INT
from tilelang.ir.intervals import ANYTHING, Interval, interval
from tilelang.ir.names import take
from tilelang.ir.traversal import inlined
from tilelang.language.op import SAME

from .access import both, quotient
from .problem import Prepared
from .steps import every_step, exprs, map_exprs, without_unused
from .types import Fetch, For, Guard, Let, Read, Step, Write

BELOW = {"lt": 0, "le": 1}  # at < stop, at <= stop: the first position where it does not hold
ABOVE = {"gt": 0, "ge": 1}  # stop > at, stop >= at
COUNTS = ("program", "quotient", "remainder")  # what is not negative


def with_interiors(
    kernel: Prepared,
    steps: tuple[Step, ...],
    taken: set[str],
    around: Mapping[str, Expr] | None = None,
    kept: bool = False,
) -> tuple[Step, ...]:
    """The steps with every loop of products cut where its masks begin to hold back lanes.

    taken   names of the text; those of new values join them
    around  what the names of the steps around stand for
    kept    results are not in registers, which one that is known to be a single tile has too
    """
    out: list[Step] = []
    known = dict(around or {})
    for step in steps:
        if isinstance(step, Let):
            known[step.name] = step.value
        if isinstance(step, For):
            known = _without(known, step)
        if isinstance(step, For | Guard):
            step = replace(step, body=with_interiors(kernel, step.body, taken, known, kept))
        out += _cut(kernel, step, known, taken, kept) if isinstance(step, For) else [step]
    return tuple(out)


def _without(known: Mapping[str, Expr], loop: For) -> dict[str, Expr]:
    """What names stand for, but for those that a loop changes."""
    changed = {c.name for c in loop.carries}
    return {name: value for name, value in known.items() if name not in changed}


def _cut(
    kernel: Prepared, loop: For, around: Mapping[str, Expr], taken: set[str], kept: bool
) -> list[Step]:
    """The loop alone, or the end of its interior, the interior and the rest."""
    by, inside = integers.value_of(loop.by), tuple(every_step(loop.body))
    nested = any(isinstance(s, For) for s in inside)
    if loop.stages is None or loop.specialized or nested or not by:
        return [loop]
    length = integers.distance(*(inlined(b, around) for b in (loop.begin, loop.end)))
    if length is not None and length <= by:  # one tile, and one body of it
        return [loop]
    own = {s.name: s.value for s in inside if isinstance(s, Let)}
    tile = LoopTile(loop, _without({**around, **own}, loop), kernel)
    limits = dict.fromkeys(
        limit for s in (loop, *inside) for e in exprs(s) for limit in tile.all(e)
    )
    widths = {lanes for _, lanes in limits}
    if len(widths) != 1:
        return [loop]
    stop = reduce(integers.minimum, _least((loop.end, *(at for at, _ in limits)), around))
    room = integers.length(loop.begin, stop)
    if loop.begin == integers.const(0) and interval(inlined(stop, around), _at_least)[0] >= 0:
        room = stop
    more = widths.pop() - by
    room = integers.maximum(integers.sub(room, integers.const(more)), 0) if more else room
    trips = quotient(room, by)
    done = integers.value_of(trips)
    if kept and length is not None and done is not None and 0 < length - done * by <= by:
        return [loop]  # the rest is no loop, and would have results of its own beside these
    return _halves(loop, tile, trips, by, taken)


def _least(ends: Iterable[Expr], around: Mapping[str, Expr]) -> list[Expr]:
    """The ends, each once, without those that lie at another or a known way behind it."""
    kept: list[Expr] = []
    for end in dict.fromkeys(ends):
        behind = [integers.distance(*(inlined(e, around) for e in (k, end))) for k in kept]
        if not any(d is not None and d >= 0 for d in behind):
            kept = [k for k, d in zip(kept, behind, strict=True) if d is None]
            kept.append(end)
    return kept


def _at_least(expr: Expr) -> Interval:
    """What programs count is not negative."""
    return (0, inf) if getattr(expr, "op", None) in COUNTS else ANYTHING


def _halves(loop: For, tile: LoopTile, trips: Expr, by: int, taken: set[str]) -> list[Step]:
    if integers.value_of(trips) in (0, 1):
        return [loop]  # the compiler puts loops of one tile side by side, each with its own memory
    whole, made = integers.add(loop.begin, integers.mul(trips, by)), list[Step]()
    if not isinstance(whole, Const | Var):
        name = take(f"{loop.name.removesuffix('_start')}_whole", taken)
        made, whole = [Let(name, whole, loop.loc)], Var(name, INT)
    user = loop.name.removesuffix("_start")
    interior = _without_aliases(tile.interior(replace(loop, end=whole)))
    (interior,) = without_unused((interior,))  # by itself: the rest has the same names
    assert isinstance(interior, For)
    compares = any(map(tile.compares, every_step(interior.body)))
    free = f"all of {user} is in range" if compares else f"no mask along {user}"
    interior = replace(interior, says=(*loop.says, f"whole tiles: {free}"))
    if whole == loop.end:
        return [interior]
    carries = tuple(replace(c, init=None) for c in loop.carries)
    says = (f"the other tiles, masked along {user}",)
    return [*made, interior, replace(loop, begin=whole, carries=carries, says=says)]


def _without_aliases(loop: For) -> For:
    """The loop without names for what has one and keeps it."""
    changed = {c.name for c in loop.carries}
    names: dict[str, Expr] = {
        s.name: s.value
        for s in loop.body
        if isinstance(s, Let) and isinstance(s.value, Var) and not changed & {s.name, s.value.name}
    }
    if not names:
        return loop
    body = tuple(s for s in loop.body if not (isinstance(s, Let) and s.name in names))
    made = map_exprs(replace(loop, body=body), lambda e: inlined(e, names))
    assert isinstance(made, For)
    return made


@dataclass(frozen=True)
class LoopTile:
    """One tile of a loop.

    defined  what names stand for: of the loop's body, and of the steps around it
    """

    loop: For
    defined: Mapping[str, Expr]
    kernel: Prepared

    # ------------------------------------------------------------ where conditions hold

    def all(self, expr: Expr) -> Iterator[tuple[Expr, int]]:
        """The limits of all conditions that are computed here."""
        found = (self.limit(e) for e in walk(expr) if e.type.dtype == "bool")
        return (limit for limit in found if limit is not None)

    def limit(self, condition: Expr) -> tuple[Expr, int] | None:
        """A position and a width: the condition holds in tiles that are so wide and end there."""
        match self._plain(condition):
            case Apply(op, (at, stop)) if op in BELOW:
                return self._below(at, stop, BELOW[op])
            case Apply(op, (stop, at)) if op in ABOVE:
                return self._below(at, stop, ABOVE[op])
            case _:
                return None

    def _below(self, at: Expr, stop: Expr, more: int) -> tuple[Expr, int] | None:
        start, least = self._first(at), self._first(stop)
        if start is None or least is None or start[0] != Var(self.loop.name, INT):
            return None
        if self._moves(least[0]):  # positions of the tile itself bound no tile
            return None
        return integers.add(least[0], integers.const(more)), start[1]

    def _first(self, positions: Expr) -> tuple[Expr, int] | None:
        """The least of positions in a row, and how many they are; a number is one."""
        if not positions.type.shape:
            return None if self._moves(positions) else (positions, 1)
        match self._plain(positions):
            case Apply("add", (start, Apply("arange") as lanes)) if not start.type.shape:
                row = (lanes.attr("start", 0), lanes.attr("step", 1), lanes.args) == (0, 1, ())
                own = start == Var(self.loop.name, INT)
                if row and (own or not self._moves(start)):
                    return start, self.kernel.width(lanes.type.shape[0])
            case _:
                pass  # positions of no row of lanes
        return None

    def _plain(self, expr: Expr) -> Expr:
        """What lanes hold, whatever their shape and name."""
        while True:
            match expr:
                case Var(name) if expr.type.shape and name in self.defined:
                    expr = self.defined[name]
                case Apply(op, (value,)) if op in SAME and value.type.shape:
                    expr = value
                case _:
                    return expr

    def _moves(self, expr: Expr) -> bool:
        """Whether a value differs from tile to tile."""
        return not self._moving.isdisjoint(read_by((expr,)))

    @cached_property
    def _moving(self) -> frozenset[str]:
        """The names of what differs from tile to tile."""
        steps = (s for s in every_step(self.loop.body) if isinstance(s, Let | Read | Fetch))
        carried = (c.name for c in self.loop.carries)
        return frozenset((self.loop.name, *(s.name for s in steps), *carried))

    def compares(self, step: Step) -> bool:
        """Whether a step asks something of the tile's own positions."""
        every = (e for x in exprs(step) for e in walk(x) if e.type.dtype == "bool")
        return any(map(self._moves, every))

    # ------------------------------------------------------------ steps without them

    def holds(self, condition: Expr) -> bool:
        """Whether a condition holds in all lanes of the interior."""
        match self._plain(condition):
            case Apply("logical_and", (a, b)):
                return self.holds(a) and self.holds(b)
            case _:
                return self.limit(condition) is not None

    def left(self, mask: Expr) -> Expr | None:
        """What a mask asks beside what holds, of fewer dimensions maybe; None if all of it does."""
        every = list(conjuncts(meant(mask, self.defined)))
        found = [c for c in every if not self.holds(c)]
        if not found:
            return None
        left = reduce(both, found)
        scalar = mask.type.shape and not left.type.shape  # which the interpreter does not take
        return mask if scalar or len(found) == len(every) else left

    def value(self, expr: Expr) -> Expr:
        """The same value in the interior."""
        match expr:
            case Apply("where", (mask, value, other)):
                left = self.left(mask)
                if left is None:
                    return self.value(value) if value.type.shape == expr.type.shape else expr
                if left is not mask:
                    return replace(expr, args=(left, *map(self.value, (value, other))))
            case Apply("logical_and", (a, b)):
                for one, other in ((a, b), (b, a)):
                    if self.holds(one) and other.type.shape == expr.type.shape:
                        return self.value(other)
            case _:
                pass  # what is in the mask may have others in it
        return map_children(expr, self.value)

    def interior(self, loop: For) -> For:
        """The same loop where every condition that has a limit holds."""
        made = map_exprs(loop, self.value)
        assert isinstance(made, For)
        return replace(made, body=tuple(map(self._unmasked, made.body)))

    def _unmasked(self, step: Step) -> Step:
        match step:
            case Guard():
                return replace(step, body=tuple(map(self._unmasked, step.body)))
            case Read() | Write() if step.access.mask:
                return replace(step, access=replace(step.access, mask=self.left(step.access.mask)))
            case _:
                return step
