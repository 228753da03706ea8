"""Memory: how much shared memory a loop needs, derived from its products.

    acc += dot(x[tm, tk], w[tk, tn])  3 stages    x and w, in 3 buffers each
    dot(q[tq], k[tk].T)  in a loop over tk        q in one buffer, k in as many as there are stages

What the compiler keeps for the whole loop:
  * what moves with the loop is copied ahead: into a buffer for each stage but one, and one more
    where an asynchronous product reads it there; rows that a tile of positions picks are copied
    when the positions are there, which shares the stages (latency.py);
  * what does not move is copied once.
Where no loop has a product, what moves is in a buffer for each stage but one.
And while one product runs, what is computed for it and passes through shared memory, or what a loop
inside needs; and what changes the places of lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from tilelang.ir import (
    Apply,
    Assign,
    At,
    Dim,
    Expr,
    Load,
    Loop,
    Store,
    Var,
    every_loop,
    meant,
    multiplied,
    reached,
    statement_exprs,
    walk,
)
from tilelang.ir.traversal import dots
from tilelang.language.dtypes import itemsize

from .alignment import LEAST_COPY
from .latency import copied
from .life import Life
from .loop_products import LoopProducts
from .loops import dots_in, moves_along, own_exprs
from .reductions import LANES, WIDE, lanes_of, moved_bytes, value_bytes
from .results import MATRIX, leaving_bytes, of_loads
from .roles import summed
from .sides import is_narrow, is_turned, registers_turn, sums_across, turned_matrices
from .turns import ProductUse, turns
from .unmoved import depends

ROWS = 128  # of tensor memory: numbers of 4 bytes in one of its columns
COLUMN = ROWS * 4  # bytes of one
THREE = 3  # products of tf32 that stand for one of float32
# Bytes of a left operand of asynchronous products from which on it stays in shared memory: by the
# compiler's figures 64 x 512 of bfloat16 do, and 128 x 128 do not.
HELD = 32 << 10
BARRIERS = 48  # bytes, for the products of sm_100
TURNED = "turned"  # how warps read what they turn
NUMBER = 16  # bytes of what is loaded alone, in all of its buffers


@dataclass(frozen=True)
class LoopMemory:
    """What a loop keeps in memory, and for how long."""

    of: LoopProducts
    cut: frozenset[str] = frozenset()  # axes whose range memory holds
    boxed: frozenset[Load] = frozenset()  # what descriptors copy
    chained: bool = False  # whether a loop of the launch has several products
    # of a loop over a program's results: their axes, and where these begin and end
    bounds: Mapping[str, tuple[Expr, Expr]] = field(default_factory=dict)

    def bytes(self, inside: Callable[[Loop], int]) -> int:
        """What all of the loop keeps, and the most that is beside it while one of its parts runs.

        Its parts are products, and loops inside, which need `inside` themselves.
        """
        parts = self._parts()
        dots = [what for _, what in parts if isinstance(what, Apply)]
        kept, beside = self._held(parts)
        for load in self._others({*kept, *(key for key, _ in beside)}) if dots else ():
            kept[load] = self.ahead * value_bytes(load, self.of.blocks)
        waited = list(self._waited({*kept, *(key for key, _ in beside)}))
        needs = [inside(w) if isinstance(w, Loop) else self._rearranged(w) for _, w in parts]
        most = (sum((n, *(b.beside(i) for b in beside.values()))) for i, n in enumerate(needs))
        # what is turned is beside what else is there of the same
        also = {key: life.size for (key, way), life in beside.items() if way is None}
        passing = (
            life.size + also.get(key, 0) * (way == TURNED)
            for (key, way), life in beside.items()
            if life.passes
        )
        numbers = NUMBER * sum(not e.type.shape for e in self._copied) if self.ahead else 0
        barriers = BARRIERS if dots and self.of.pipe.target.columns else 0
        split = max(map(self.of.pipe.parts, dots), default=1)
        moved = split * moved_bytes(own_exprs(self.of.loop), self.of.blocks)
        # beside what is kept: of a launch that keeps nothing, launch_bytes has the largest result
        stores = [s for s in self.of.loop.body if isinstance(s, Store)] if kept else []
        stored = self.leaving(stores)
        peaks = (
            self._arriving(e, self._made(parts).get(e, 0), beside) for e in waited if self._moves(e)
        )
        most = max([*passing, *peaks, stored, *most]) + moved + barriers + numbers
        before = (value_bytes(e, self.of.blocks) for e in waited)  # nothing else is there
        return max([sum(kept.values()) + most, *before])

    def leaving(self, stores: Iterable[Store]) -> int:
        """The most that is on its way to memory at one time."""
        sizes = self.of.blocks, self.of.made
        return leaving_bytes(stores, *sizes, self.cut, self.of.rows, self.of.pipe, self.chained)

    def _parts(self) -> tuple[tuple[int, Apply | Loop], ...]:
        """Products and loops inside in their order, each with the number of its statement."""
        found: dict[Apply | Loop, int] = {}
        for number, exprs in enumerate(self._statements()):
            if isinstance(exprs, Loop):
                found[exprs] = number
                continue
            for dot in dots(e for x in exprs for e in walk(x)):
                found.setdefault(dot, number)
        return tuple((number, what) for what, number in found.items())

    def _statements(self) -> Iterator[Loop | tuple[Expr, ...]]:
        """What the statements of the body compute, and after them what is carried on."""
        yield from (s if isinstance(s, Loop) else statement_exprs(s) for s in self.of.loop.body)
        yield tuple(c.next for c in self.of.loop.carries)

    def _made(self, parts: tuple[tuple[int, Apply | Loop], ...]) -> dict[Expr, int]:
        """The first part after what is loaded or named: a statement loads before it computes."""
        found: dict[Expr, int] = {}
        for number, stmt in enumerate(self.of.loop.body):
            first = next((n for n, (s, _) in enumerate(parts) if s >= number), len(parts))
            exprs = () if isinstance(stmt, Loop) else statement_exprs(stmt)
            for e in (e for x in exprs for e in walk(x) if isinstance(e, Load)):
                found.setdefault(e, first)
            if isinstance(stmt, Assign):
                found[Var(stmt.name, stmt.value.type)] = first
        return found

    def _held(
        self, parts: tuple[tuple[int, Apply | Loop], ...]
    ) -> tuple[dict[Expr, int], dict[tuple[Expr, object], Life]]:
        """What operands take for the whole loop, and what they take from one part to another."""
        made = self._made(parts)
        uses = Counter(a for _, dot in parts if isinstance(dot, Apply) for a in dot.args)
        kept: dict[Expr, int] = {}
        beside: dict[tuple[Expr, object], Life] = {}  # by what it is, and how warps read it
        for number, (_, dot) in enumerate(parts):
            if isinstance(dot, Loop):
                continue
            waits = None
            for side in (0, 1):
                whole, passing = self._operand(dot, side)
                for key, size in whole:
                    kept[key] = max(kept.get(key, 0), size)
                read = None if self.of.asynchronous(dot) else (side, sums_across(dot, side))
                several = read is not None and self.of.pipe.parts(dot) > 1
                # what several products turn passes through memory for each of them
                turned = uses[dot.args[side]] > 1 and registers_turn(dot.args[side])
                turning = read is not None and not (several or self.ahead)
                turning = turning and registers_turn(dot.args[side])
                left = side == 0 and read is None and self.of.pipe.parts(dot) > 1
                columns = left and self.of.pipe.target.columns
                for key, size in passing:
                    if isinstance(key, Load) and (turning or columns):
                        size //= self._turns_of(key, dot, side) if turning else 1
                        beside[key, TURNED] = Life(size, number, number, read, passes=True)
                        continue
                    both = key in self.of.both_ways or key in self.of.mixed
                    way = read if turned or (both and not several) else None
                    seen = (key, way) not in beside and any(key == k for k, _ in beside)
                    again = seen and not both
                    first = number if again else min(made.get(key, number), number)
                    last = first if both and several else number  # registers hold it from then on
                    passes = several and isinstance(key, Load)
                    life = Life(size, first, last, read, passes, waits)
                    beside[key, way] = life.after(beside.get((key, way)))
                if any(not isinstance(key, Load) for key, _ in passing):
                    waits = number
        return kept, beside

    def _turns_of(self, load: Load, dot: Apply, side: int) -> int:
        """How many parts an operand goes in that warps turn in registers: rows of both are apart.

        Warps load rows of 16 bytes a thread, and multiply 16 rows or 8 columns, or those of all.
        """
        rows, columns = (lanes_of(d, self.of.blocks) for d in load.type.shape[-2:])
        size = columns * itemsize(load.type.dtype)
        at_once = self.of.pipe.warps * LANES * WIDE // size
        across = self.of.pipe.warps if side and self.of.is_broad(self.of.loop) else 1
        return max(rows // max(at_once, MATRIX if side == 0 else MATRIX // 2 * across), 1)

    def copied(self) -> int:
        """What a loop without products has on its way: beside a store what does not move, too."""
        stores = self._stores()
        loads = dict.fromkeys(self.of.loads()) if self.ahead else ()
        found = (e for e in loads if self.is_copied(e) and (stores or self._moves(e)))
        return self.ahead * sum(value_bytes(load, self.of.blocks) for load in found)

    def is_copied(self, load: Load) -> bool:
        """Whether threads of a loop without products copy the 4 bytes each that they must."""
        share = value_bytes(load, self.of.blocks) // (LANES * self.of.pipe.warps)
        enough = max(share, itemsize(load.type.dtype)) >= LEAST_COPY
        return enough and not self.of.is_slow(load)

    def columns(self, inner: int) -> int:
        """Of two products that feed each other: both results, and what is computed between them.

        Results stay while a loop inside runs, which needs `inner` columns; left operands do not.

        More of them are not all there at one time, but what they are added to is, beside the widest
        of the others; and a single one fits whenever registers do.
        Three products for one have a result each, all there for the whole loop, and one left
        operand at a time; two results of 64 rows lie beside each other.
        """
        dots = list(self.of.dots())
        apart = [d for d in dots if self.of.asynchronous(d) and self.of.pipe.parts(d) > 1]
        held = sum(self._across(d, THREE, d.type.shape[-1]) for d in apart)
        held += max([inner, *(self._across(d, 1, summed(d)) for d in apart)])
        whole = [d for d in dots if self.of.pipe.parts(d) == 1]
        if len(dots) < 2 or not all(map(self.of.asynchronous, dots)):
            return held
        if len(dots) > 2:
            sums = list(filter(self._is_carried, whole))
            others = (self._across(d, 1, d.type.shape[-1]) for d in whole if d not in sums)
            added = sum(value_bytes(d, self.of.blocks) for d in sums) // COLUMN
            return held + added + max(others, default=0)
        between = [d.args[0] for d in whole if self.of.source(d.args[0])[0] is None]
        return held + sum(value_bytes(e, self.of.blocks) for e in (*whole, *between)) // COLUMN

    def _is_carried(self, dot: Apply) -> bool:
        """Whether a product is added to what the loop carries."""
        _, _, *added = self.of.needs(dot)
        names = {c.name for c in self.of.loop.carries}
        return any(isinstance(e, Var) and e.name in names for e in added)

    def _across(self, dot: Apply, count: int, dim: Dim) -> int:
        """Columns of so many values that have the rows of a product's result, and `dim` columns."""
        return -(-count * self.of.shape(dot)[0] // ROWS) * lanes_of(dim, self.of.blocks)

    def _stores(self) -> bool:
        return any(isinstance(s, Store) for s in self.of.loop.body)

    @cached_property
    def ahead(self) -> int:
        """Iterations between a copy and its use: none around another loop.

        What waits for others that are copied, as for positions, shares these among them.
        """
        if not self.of.runs or any(isinstance(s, Loop) for s in self.of.loop.body):
            return 0
        return (self.of.pipe.stages - 1) // (max(self._copied.values(), default=0) + 1)

    @cached_property
    def _copied(self) -> Mapping[Load, int]:
        """What is copied ahead of products, by how many others wait for it."""
        most = self.of.pipe.stages - 1
        return (
            copied(self.of.dots(), self.of.made, self._moves, self.bounds, most) if most > 1 else {}
        )

    def _others(self, operands: set[Expr]) -> Iterator[Load]:
        """What moves and is no operand is copied ahead all the same."""
        apart = {e for dot in self.of.dots() for e in turned_matrices(dot, self.of.made)}
        alone = () if self.of.pipe.target.columns else filter(is_narrow, apart)
        left = {*operands, *alone}
        for load in dict.fromkeys(self.of.loads()):
            copied = self.ahead and self._moves(load) and not self.of.is_slow(load)
            if copied and load not in left:
                yield load

    def _waited(self, counted: set[Expr]) -> Iterator[Load]:
        """What descriptors copy and registers take at once; nothing computes with it in memory."""
        for load in dict.fromkeys(self.of.loads()):
            if load in self.boxed and load not in counted:
                yield load

    def _arriving(self, load: Load, at: int, beside: Mapping[tuple[Expr, object], Life]) -> int:
        """Bytes while a box is taken that is first used at one part: of it nothing is made yet."""
        others = [
            life.size
            for (key, _), life in beside.items()
            if life.first <= at <= life.last and (life.first < at or isinstance(key, Load))
        ]
        return value_bytes(load, self.of.blocks) + sum(others)

    def _moves(self, load: Load) -> bool:
        """Whether iterations load different elements; a program's only one keeps nothing."""
        axes = self.bounds or {self.of.loop.axis}
        return not self.of.runs or any(moves_along(load, axis, self.of.made) for axis in axes)

    def _operand(self, dot: Apply, side: int) -> tuple[list, list]:
        """(kept for the loop, passing while the product runs) of an operand: keys and bytes."""
        operand, parts = dot.args[side], self.of.pipe.parts(dot)
        load, plain = self.of.source(operand)
        through = self.of.asynchronous(dot)
        size = value_bytes(operand, self.of.blocks)
        flat = self._flat(dot, side)
        direct = load is not None and plain and parts == 1 and flat
        kept: list[tuple[Expr, int]] = []
        passing: list[tuple[Expr, int]] = []
        if load is not None and self._moves(load):
            # warps that turn the left operand do it in registers, where no copies arrive of which
            # each thread wants less than the 4 bytes that one takes
            turned = load in self._turned
            slow = self.of.is_slow(load)
            # the left operand waits for bytes that each warp turns in registers
            later = self.of.turns_bytes(dot)
            slow |= (later and side == 1) or load in self.of.both_ways
            across = through and self.of.bytes_across(dot, side)
            slow |= across and load not in self.boxed
            arrives = (through or (flat and not turned)) and not slow
            alone = load not in self.of.also_read and load not in self._in_registers
            last = (through or later) and direct and alone and not across
            count = self._turns.get(load, self.ahead + last)
            count = count if self.ahead and arrives else 0
            if slow and self.ahead and through and self.of.pipe.target.columns:
                count = 2  # one is filled while the product reads the other
            apart = not (count or direct) and bool(self._computed(dot, side, True))
            apart = apart and not (parts > 1 and self.ahead)
            if not apart:
                if across and load in self.boxed:  # turned beside the boxes
                    passing.append((Apply("turned", (operand,), operand.type), size))
                where = kept if count else passing
                where.append((load, max(count, 1) * value_bytes(load, self.of.blocks)))
        elif load is not None and not (side == 0 and self._elsewhere(load, dot)):
            kept.append((operand, parts * size))
        # registers hold the others, which are results of products; tensor memory what loops make
        large = not through or size > HELD or self.of.lies(operand)
        innermost = not any(isinstance(s, Loop) for s in self.of.loop.body)
        large = large or (parts == 1 and innermost and self.of.pipe.target.columns > 0)
        if load is None and (side == 1 or large) and self.of.stays(operand):
            if side == 1 or not self._in_each_warp(operand):
                kept.append((operand, parts * size))
        elif not direct and (load is None or self._moves(load)):
            if load is not None and parts > 1:  # made where it is multiplied, whoever loaded it
                operand = Apply("parts", (operand,), operand.type)
            use = self._uses.get(dot)
            whole = use is not None and use.stays and not use.copied and self.ahead
            found = kept if whole else passing  # which the product reads while the next turn begins
            found += [(operand, n) for n in self._computed(dot, side, load is not None)]
        return kept, passing

    @cached_property
    def _turned(self) -> frozenset[Load]:
        """What comes as a left operand that warps turn in registers: no copies arrive of it."""
        found = {self.of.source(d.args[0])[0]: d for d in self.of.dots() if is_turned(d)}
        return frozenset(
            load
            for load, dot in found.items()
            if load and is_narrow(load) and load not in self.boxed and not self.of.asynchronous(dot)
        )

    @cached_property
    def _in_registers(self) -> frozenset[Load]:
        """What asynchronous products have in registers as left operands, though it is copied."""
        found = {self.of.source(d.args[0])[0]: d for d in self.of.dots() if self.of.asynchronous(d)}
        return frozenset(e for e, dot in found.items() if e and self._elsewhere(e, dot))

    @cached_property
    def _uses(self) -> Mapping[Apply, ProductUse]:
        """The loop's own products beside tensor memory, where all of them are asynchronous."""
        dots = list(self.of.dots())
        if not self.of.pipe.target.columns or not all(map(self.of.asynchronous, dots)):
            return {}
        alone = all(self.of.pipe.parts(dot) == 1 for dot in dots)
        return {dot: self._use(dot, dots) for dot in dots} if alone else {}

    @cached_property
    def _turns(self) -> Mapping[Expr, int]:
        """How often there is what these products read."""
        return turns(list(self._uses.values()), self.ahead)

    def _use(self, dot: Apply, dots: list[Apply]) -> ProductUse:
        """What one of the loop's own products reads and gives."""
        sources = [self.of.source(a) for a in dot.args]
        loads = {load for load, plain in sources if load is not None and plain}
        given = (
            (plain and load is not None) or not depends(a, self.of.loop)
            for a, (load, plain) in zip(dot.args, sources, strict=True)
        )
        fed = [n for n, other in enumerate(dots) if self.of.feeds(dot, other)]
        stores = [s.value for s in self.of.loop.body if isinstance(s, Store)]
        read = bool(fed) or any(dot in reached(value, self.of.made) for value in stores)
        return ProductUse(loads, fed, all(given), read)

    def _rearranged(self, dot: Apply) -> int:
        """Bytes that a sum of asynchronous products passes before the last one is added to it.

        Triton 3.6 lays all warps along the rows of those that others need, and no more along the
        last one's than it has rows for.  Of three for one the small right part has left memory.
        """
        rows, _ = self.of.shape(dot)
        alike = self.of.pipe.target.columns or rows >= MATRIX * self.of.pipe.warps
        others = [d for d in self.of.dots() if d != dot]
        if alike or not self.of.asynchronous(dot) or any(self.of.feeds(dot, d) for d in others):
            return 0
        size = min(WIDE * LANES * self.of.pipe.warps, value_bytes(dot, self.of.blocks))
        if self.of.pipe.parts(dot) > 1:
            return max(size - value_bytes(dot.args[1], self.of.blocks), 0)
        _, _, *added = self.of.needs(dot)
        return size if any(meant(e, self.of.made) in others for e in added) else 0

    def _elsewhere(self, load: Load, dot: Apply) -> bool:
        """Whether a left operand that does not move is multiplied from where its parts are made.

        Parts of float32 are in tensor memory then, and boxes of them are taken apart in registers.
        There are boxes of rows of one head: [64, 1, 128] becomes no matrix where it lies, as
        [1, 64, 128] does.
        """
        through, columns = self.of.asynchronous(dot), self.of.pipe.target.columns > 0
        if self.of.pipe.parts(dot) > 1 and (self.of.pipe.boxes or (through and columns)):
            return True
        places = [n for n, entry in enumerate(load.index) if isinstance(entry, At)]
        registers = through and not columns and self.of.pipe.boxes
        return registers and any(n >= len(places) for n in places)

    def _flat(self, dot: Apply, side: int) -> bool:
        """Whether an operand is copied as a matrix, or as several of them: not as one of a batch.

        What stays in registers of a batch of one by the compiler's figures: the left operand of an
        asynchronous product that no hardware copies, and the right one of warps if it is narrow.
        """
        if dot.type.rank == 2:
            return True
        if self.of.asynchronous(dot):
            return side == 1 or self.of.pipe.boxes or self.of.pipe.target.columns > 0
        several = prod(lanes_of(d, self.of.blocks) for d in dot.type.shape[:-2]) > 1
        return several or side == 0 or itemsize(dot.args[1].type.dtype) >= LEAST_COPY

    def _in_each_warp(self, operand: Expr) -> bool:
        """Whether each warp has all rows of a result, of which it gives threads what they want."""
        made = list(dots(reached(operand, self.of.made)))
        shapes = [self.of.shape(dot) for dot in made if self.of.pipe.parts(dot) > 1 or self.chained]
        return len(made) == len(shapes) == 1 and MATRIX >= shapes[0][0] >= shapes[0][1]

    def _made_inside(self, dot: Apply) -> bool:
        """Whether a left operand is made of a result that a loop inside has added up, of few rows.

        Warps lie along its columns then, and the product, which Triton does not see behind that
        loop, wants whole rows of it.
        """
        inside = {*dots_in(self.of.loop)} - {*self.of.dots()}
        few = self.of.shape(dot)[0] < MATRIX * self.of.pipe.warps
        made = reached(dot.args[0], self.of.made) if few and inside else ()
        return not self.of.pipe.target.columns and any(e in inside for e in made)

    def _computed(self, dot: Apply, side: int, loaded: bool) -> list[int]:
        """Bytes of what passes through shared memory of an operand that was computed in registers.

        An asynchronous product reads its right operand there, and a left one that is turned, unless
        it is loaded as float32.  Others take what is made of loads alone where it is computed, and
        not what depends on positions or sums; warps that lie along the columns of results hold rows
        of products that others need.
        """
        operand, parts = dot.args[side], self.of.pipe.parts(dot)
        size = value_bytes(operand, self.of.blocks)
        if self.of.asynchronous(dot):
            apart = parts == 1 and self.of.lies(operand) and not (loaded or self.ahead)
            taken = loaded or self.of.pipe.target.columns or turned_matrices(dot, self.of.made)
            turned = is_turned(dot) and (parts == 1 or not taken)
            met = side == 0 and not loaded and self._made_inside(dot)
            return [parts * size] if side == 1 or turned or apart or met else []
        if loaded:
            return []
        by_number = of_loads(operand, self.of.made)
        made_before = not multiplied(operand, self.of.made)
        turned = turned_matrices(dot, self.of.made) if side == 0 else ()
        if turned:  # where they are loaded, or from where they were copied
            return [size] if any(map(is_narrow, turned)) or not self.ahead else []
        if by_number and side == 1 and self.ahead:
            return []  # it arrives before, and threads take their numbers of it
        if parts == 1 and made_before:
            return [] if by_number else [size]
        broad = any(map(self.of.is_broad, every_loop((self.of.loop,))))  # which feed it, too
        chained = broad and len(set(dots_in(self.of.loop))) > 1
        # a right operand that is loaded for three products has left memory by then
        gone = parts > 1 and not self.ahead and self.of.source(dot.args[1])[0] is not None
        if side == 0 and (gone or not (chained or is_turned(dot))):
            whole = made_before and not (by_number or chained)  # and split where it is multiplied
            return [size] if whole else []
        return [parts * size]
