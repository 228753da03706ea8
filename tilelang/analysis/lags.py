"""lag_facts(...) -> LagFact...: what is only what something else was one tile earlier.

for tm in hl.tile(M):
    before = acc                        what all tiles but the last made: that goes by the block
    acc = acc + x[tm, :].sum(0)
    y[0, :] = y[1, :]                   so does this, where y[1, :] is stored further down
    for k in hl.grid(3):
        a, b = b, a + x[tm, k].sum()    and this: how often they change places goes by the tiles
    l = l * hl.exp(m - new) + ...       not asked: it folds what there was (online softmax)
    total = acc + x[tm, :].sum(0)       not asked: it may be what acc is next
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..ir import Assign, Carry, Expr, KernelIR, Load, Store, Var, children, walk
from ..ir.text import position
from ..ir.traversal import exprs_of
from .carries import Definitions, names
from .facts import LagFact
from .placed import Place, loops, placed
from .ranges import Ranges
from .stores import apart, is_free, mentions, moving

Left = Carry | Store  # what a tile leaves for the next one


@dataclass(frozen=True)
class _Placed:
    """Where a store or an assignment stands: its number in program order, the loops around it."""

    number: int
    around: Place

    def sees(self, other: _Placed) -> bool:
        """Whether `other` has always run when this one does."""
        return other.number < self.number and self.around[: len(other.around)] == other.around


@dataclass(frozen=True)
class _LaggingTiles:
    """One loop over tiles.

    carries   what it carries, by name
    stored    stores of which every tile's go to the same elements
    assigned  what is assigned inside of it, by name
    inner     what decides on a carry of a loop inside of it, by both names of the carry
    """

    ir: KernelIR
    axis: str
    carries: Mapping[str, Carry]
    stored: tuple[tuple[Store, _Placed], ...]
    assigned: Mapping[str, tuple[Expr, _Placed]]
    inner: Mapping[str, tuple[Expr, ...]]

    def parts(self, expr: Expr, at: _Placed | None) -> Iterator[Expr | Left]:
        """What a value is computed from; `at` is the statement that does it, if one does.

        A name is looked into once: values may be shared, and carries are computed from themselves.
        """
        seen: set[str] = set()
        queue: list[tuple[Expr, _Placed | None]] = [(expr, at)]
        while queue:
            part, place = queue.pop()
            match part:
                case Var(name) if name in seen:
                    continue
                case Var(name) if name in self.carries:
                    yield self.carries[name]
                case Var(name) if name in self.assigned:
                    queue.append(self.assigned[name])
                case Var(name) if name in self.inner:
                    queue += [(e, None) for e in self.inner[name]]
                case Load() if place is not None and (store := self.left_in(part, place)):
                    yield store
                case _:
                    yield part
                    queue += [(child, place) for child in children(part)]
            if isinstance(part, Var):
                seen.add(part.name)

    def left_in(self, load: Load, at: _Placed) -> Store | None:
        """The store by which the tile before left what is loaded."""
        own = ((load.tensor, load.index) == (s.tensor, s.index) for s, p in self.stored
               if at.sees(p) and s.mask is None)  # fmt: skip
        later = (s for s, place in self.stored if place.number >= at.number)
        same = (s for s in later if self.ir.root(s.tensor) == self.ir.root(load.tensor))
        return None if any(own) else next((s for s in same if not apart(load, s)), None)

    def taken_over(
        self, expr: Expr, at: _Placed | None = None, over: str | None = None
    ) -> tuple[Left, ...]:
        """What the tile before left, where the value is computed from nothing else of a tile.

        over   another loop, nothing of which it is computed from either
        """
        parts = tuple(self.parts(expr, at))
        left = tuple(p for p in parts if isinstance(p, Carry | Store))
        rest = (p for p in parts if not isinstance(p, Carry | Store))
        axes = {self.axis, over or self.axis}
        return () if any(mentions(p, a) for p in rest for a in axes) else left


def lag_facts(ir: KernelIR, defined: Definitions, known: Ranges) -> tuple[LagFact, ...]:
    """One fact for each value that is what another was one tile earlier."""
    cut = [_tiles(ir, a, defined, known) for a in loops(ir) if is_free(a, ir)]
    inside = (fact for tiles in cut for fact in _inside(tiles, defined, known))
    return (*(fact for tiles in cut for fact in _facts(tiles)), *inside)


def _inside(tiles: _LaggingTiles, defined: Definitions, known: Ranges) -> Iterator[LagFact]:
    """Values that tiles carry through a loop of other iterations, where they change places."""
    for name, (loop, around) in loops(tiles.ir).items():
        if tiles.axis not in around or tiles.ir.axis(name).kind == "tile":
            continue
        turns = _tiles(tiles.ir, name, defined, known)
        through = {c.name for c in loop.carries if _carries(tiles.parts(c.init, None))}
        for carry in loop.carries if len(through) > 1 else ():
            found = _carries(turns.taken_over(carry.next, over=tiles.axis))
            left = [c for c in found if c.name in through and not _same(c)]
            if left and carry.name in through and carry not in left:
                yield LagFact(carry.called, left[0].called, tiles.axis, carry.loc)


def _carries(parts: Iterable[Expr | Left]) -> list[Carry]:
    return [p for p in parts if isinstance(p, Carry)]


def _facts(tiles: _LaggingTiles) -> Iterator[LagFact]:
    for carry in tiles.carries.values():
        left = [c for c in tiles.taken_over(carry.next) if not _same(c)]
        if left and carry not in left and _read(carry, tiles.ir):
            yield LagFact(carry.called, _user(left[0]), tiles.axis, carry.loc)
    for store, place in tiles.stored:
        left = [c for c in tiles.taken_over(store.value, place) if not _same(c)]
        if left and store not in left and not _chosen(store, tiles.axis):
            yield LagFact(_user(store), _user(left[0]), tiles.axis, store.loc)


def _tiles(ir: KernelIR, axis: str, defined: Definitions, known: Ranges) -> _LaggingTiles:
    inside = [
        (stmt, _Placed(number, around))
        for number, (stmt, around) in enumerate(placed(ir.body))
        if axis in around
    ]
    stored = ((s, at) for s, at in inside if isinstance(s, Store) and s.combine is None)
    inner = [(loop, ir.axis(a)) for a, (loop, around) in loops(ir).items() if axis in around]
    return _LaggingTiles(
        ir,
        axis,
        {c.name: c for c in loops(ir)[axis][0].carries},
        tuple((s, at) for s, at in stored if axis not in moving(s.index, ir, defined, known)),
        {s.name: (s.value, at) for s, at in inside if isinstance(s, Assign)},
        {
            name: (carry.init, carry.next, over.begin, over.end)
            for loop, over in inner
            for carry in loop.carries
            for name in (carry.name, carry.out)
        },
    )


def _read(carry: Carry, ir: KernelIR) -> bool:
    """Whether anything reads it, in the loop or behind it."""
    return any({carry.name, carry.out} & names(e) for e in exprs_of(ir.body, ir.axes))


def _same(left: Left) -> bool:
    """A carry that no tile changes."""
    return isinstance(left, Carry) and isinstance(left.next, Var) and left.next.name == left.name


def _chosen(store: Store, axis: str) -> bool:
    """Whether only some tiles store."""
    return store.mask is not None and any(mentions(e, axis) for e in walk(store.mask))


def _user(left: Left) -> str:
    return left.called if isinstance(left, Carry) else f"{left.tensor}[{position(left.index)}]"
