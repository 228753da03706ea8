"""Memory: how much shared memory a launch needs, derived from its products.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from tilelang.analysis.facts import Facts
from tilelang.ir import (
    Apply,
    Assign,
    At,
    Body,
    Dim,
    Expr,
    KernelIR,
    Load,
    Loop,
    Store,
    Var,
    every_loop,
    every_store,
    meant,
    multiplied,
    reached,
    statement_exprs,
    walk,
)
from tilelang.ir.traversal import definitions
from tilelang.language.dtypes import itemsize

from .alignment import LEAST_COPY, uncopied
from .latency import copied
from .life import Life
from .loops import copies_ahead, dots_in, moves_along, own_dots, own_exprs, without
from .pipe import Pipe, turns_bytes
from .placement import place
from .problem import Prepared
from .reductions import LANES, WIDE, lanes_of, moved_bytes, reduction_bytes, value_bytes
from .results import MATRIX, leaving_bytes, of_loads
from .roles import products, summed
from .sides import is_turned, registers_turn, sums_across
from .turns import ProductUse, turns
from .unmoved import depends

ROWS = 128  # of tensor memory: numbers of 4 bytes in one of its columns
COLUMN = ROWS * 4  # bytes of one
THREE = 3  # products of tf32 that stand for one of float32
# Bytes of a left operand of asynchronous products from which on it stays in shared memory: by the
# compiler's figures 64 x 512 of bfloat16 do, and 128 x 128 do not.
HELD = 32 << 10
BARRIERS = 48  # bytes, for the products of sm_100
NUMBER = 16  # bytes of what is loaded alone, in all of its buffers


def shared_bytes(ir: KernelIR, facts: Facts, blocks: Mapping[str, int], pipe: Pipe) -> int:
    """Bytes of shared memory that the largest launch needs."""
    return max((launch_bytes(ir, facts, loop, blocks, pipe) for loop in ir.body), default=0)


def launch_bytes(
    ir: KernelIR, facts: Facts, loop: Loop, blocks: Mapping[str, int], pipe: Pipe
) -> int:
    """Bytes of one launch: of its largest loop, or of a result on its way to memory."""
    kernel = Prepared(ir, facts, blocks, {})
    placed = place(kernel, loop, None).programs
    once = {s.axis for s in every_loop((loop,)) if _is_once(ir, s.axis, blocks)}
    blocks = {axis: kernel.lanes(axis) for axis in blocks}  # products sum over no less than 16
    multiplied = bool(products(ir))
    loop = without(loop, once) if multiplied else loop
    loops, made = list(every_loop((loop,))), _made(ir.body) | _made((loop,))
    slow, cut = uncopied(ir), frozenset(a.name for a in ir.axes if a.static is None)
    # products of float32 are three of them
    chained = any(sum(map(pipe.parts, own_dots(s))) > 1 for s in loops)
    # the loop over a program's results, where it has several
    last = [s.axis for s in loops if s.axis in placed][-1:] if multiplied and pipe.repeats else []
    bounds = {a: (ir.axis(a).begin, ir.axis(a).end) for a in placed}

    def one(stmt: Loop) -> _Loop:
        repeated = stmt.axis in last
        runs = repeated or stmt.axis not in {*placed, *once}
        inside = bounds if repeated else {}
        return _Loop(stmt, blocks, pipe, made, runs, slow, cut, chained, inside)

    found = {s.axis: one(s) for s in loops}
    if not multiplied:
        stored = ir.stored((loop,))
        ahead = (s.copied() for s in found.values() if copies_ahead(ir, s.loop, stored))
        return max(ahead, default=0) + reduction_bytes(loop, blocks, pipe.warps, made)

    def needed(one: Loop) -> int:
        return found[one.axis].bytes(needed)

    most = needed(loop)
    if not most:
        return reduction_bytes(loop, blocks, pipe.warps, made)
    stores = every_store((loop,))
    return max(most, leaving_bytes(stores, blocks, made, cut, pipe, chained))


def _is_once(ir: KernelIR, axis: str, blocks: Mapping[str, int]) -> bool:
    """Whether a loop has one step, which the compiler knows: it is none, then."""
    known = ir.axis(axis).static
    return known is not None and known[1] - known[0] <= blocks.get(axis, 1)


def _made(body: Body) -> dict[str, Expr]:
    """What names stand for, those of what loops carry out too."""
    carries = (c for loop in every_loop(body) for c in loop.carries)
    return definitions(body) | {c.out: c.next for c in carries}


def launch_columns(ir: KernelIR, loop: Loop, blocks: Mapping[str, int], pipe: Pipe) -> int:
    """Columns of tensor memory that one launch needs at least: those of its largest loop."""
    made = _made(ir.body)
    return _most(loop, lambda one, inner: _Loop(one, blocks, pipe, made, True).columns(inner))


def _most(loop: Loop, needed: Callable[[Loop, int], int]) -> int:
    """What a loop needs, given what the loop inside of it that needs most does."""
    inner = (_most(s, needed) for s in loop.body if isinstance(s, Loop))
    return needed(loop, max(inner, default=0))


@dataclass(frozen=True)
class _Loop:
    """One loop with its own products; `runs`: inside of a program, so that copies go ahead."""

    loop: Loop
    blocks: Mapping[str, int]
    pipe: Pipe
    made: Mapping[str, Expr]
    runs: bool
    slow: frozenset[str] = frozenset()  # arrays of which threads load every number
    cut: frozenset[str] = frozenset()  # axes whose range memory holds
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
            kept[load] = self.ahead * value_bytes(load, self.blocks)
        needs = [inside(w) if isinstance(w, Loop) else self._rearranged(w) for _, w in parts]
        most = (sum((n, *(b.beside(i) for b in beside.values()))) for i, n in enumerate(needs))
        passing = max((b.size for b in beside.values() if b.passes), default=0)
        numbers = NUMBER * sum(not e.type.shape for e in self._copied) if self.ahead else 0
        barriers = BARRIERS if dots and self.pipe.target.columns else 0
        split = max(map(self.pipe.parts, dots), default=1)
        moved = split * moved_bytes(own_exprs(self.loop), self.blocks)
        # beside what is kept: of a launch that keeps nothing, launch_bytes has the largest result
        stores = [s for s in self.loop.body if isinstance(s, Store)] if kept else []
        stored = leaving_bytes(stores, self.blocks, self.made, self.cut, self.pipe, self.chained)
        return sum(kept.values()) + max([passing, stored, *most]) + moved + barriers + numbers

    def _parts(self) -> tuple[tuple[int, Apply | Loop], ...]:
        """Products and loops inside in their order, each with the number of its statement."""
        found: dict[Apply | Loop, int] = {}
        for number, exprs in enumerate(self._statements()):
            if isinstance(exprs, Loop):
                found[exprs] = number
                continue
            for e in (e for x in exprs for e in walk(x)):
                if isinstance(e, Apply) and e.op == "dot":
                    found.setdefault(e, number)
        return tuple((number, what) for what, number in found.items())

    def _statements(self) -> Iterator[Loop | tuple[Expr, ...]]:
        """What the statements of the body compute, and after them what is carried on."""
        yield from (s if isinstance(s, Loop) else statement_exprs(s) for s in self.loop.body)
        yield tuple(c.next for c in self.loop.carries)

    def _made(self, parts: tuple[tuple[int, Apply | Loop], ...]) -> dict[Expr, int]:
        """The first part after what is loaded or named: a statement loads before it computes."""
        found: dict[Expr, int] = {}
        for number, stmt in enumerate(self.loop.body):
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
                read = None if self._asynchronous(dot) else (side, sums_across(dot, side))
                several = read is not None and self.pipe.parts(dot) > 1
                # what several products turn passes through memory for each of them
                turned = uses[dot.args[side]] > 1 and registers_turn(dot.args[side])
                for key, size in passing:
                    both = key in self._both_ways
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

    def copied(self) -> int:
        """What a loop without products has on its way."""
        return self.ahead * sum(value_bytes(load, self.blocks) for load in self._others(set()))

    def columns(self, inner: int) -> int:
        """Of two products that feed each other: both results, and what is computed between them.

        Results stay while a loop inside runs, which needs `inner` columns; left operands do not.

        More of them are not all there at one time, and a single one fits whenever registers do.
        Three products for one have a result each, all there for the whole loop, and one left
        operand at a time; two results of 64 rows lie beside each other.
        """
        dots = list(self._dots())
        apart = [d for d in dots if self._asynchronous(d) and self.pipe.parts(d) > 1]
        held = sum(self._across(d, THREE, d.type.shape[-1]) for d in apart)
        held += max([inner, *(self._across(d, 1, summed(d)) for d in apart)])
        if len(dots) != 2 or not all(map(self._asynchronous, dots)):
            return held
        whole = [d for d in dots if self.pipe.parts(d) == 1]
        between = [d.args[0] for d in whole if self._source(d.args[0])[0] is None]
        return held + sum(value_bytes(e, self.blocks) for e in (*whole, *between)) // COLUMN

    def _across(self, dot: Apply, count: int, dim: Dim) -> int:
        """Columns of so many values that have the rows of a product's result, and `dim` columns."""
        return -(-count * self._shape(dot)[0] // ROWS) * lanes_of(dim, self.blocks)

    @cached_property
    def ahead(self) -> int:
        """Iterations between a copy and its use: none around another loop.

        What waits for others that are copied, as for positions, shares these among them.
        """
        if not self.runs or any(isinstance(s, Loop) for s in self.loop.body):
            return 0
        return (self.pipe.stages - 1) // (max(self._copied.values(), default=0) + 1)

    @cached_property
    def _copied(self) -> Mapping[Load, int]:
        """What is copied ahead of products, by how many others wait for it."""
        most = self.pipe.stages - 1
        return copied(self._dots(), self.made, self._moves, self.bounds, most) if most > 1 else {}

    def _dots(self) -> Iterator[Apply]:
        return iter(own_dots(self.loop))

    def _loads(self) -> Iterator[Load]:
        """Tiles that the loop's own statements load, each in its turn."""
        return (e for e in own_exprs(self.loop) if isinstance(e, Load) and e.type.shape)

    def _others(self, operands: set[Expr]) -> Iterator[Load]:
        """What moves and is no operand is copied ahead all the same."""
        for load in dict.fromkeys(self._loads()):
            copied = self.ahead and self._moves(load) and load.tensor not in self.slow
            if copied and load not in operands:
                yield load

    def _moves(self, load: Load) -> bool:
        """Whether iterations load different elements; a program's only one keeps nothing."""
        axes = self.bounds or {self.loop.axis}
        return not self.runs or any(moves_along(load, axis, self.made) for axis in axes)

    def _operand(self, dot: Apply, side: int) -> tuple[list, list]:
        """(kept for the loop, passing while the product runs) of an operand: keys and bytes."""
        operand, parts = dot.args[side], self.pipe.parts(dot)
        load, plain = self._source(operand)
        through = self._asynchronous(dot)
        size = value_bytes(operand, self.blocks)
        flat = self._flat(dot, side)
        direct = load is not None and plain and parts == 1 and flat
        kept: list[tuple[Expr, int]] = []
        passing: list[tuple[Expr, int]] = []
        if load is not None and self._moves(load):
            # warps that turn the left operand do it in registers, where no copies arrive of which
            # each thread wants less than the 4 bytes that one takes
            turned = side == 0 and is_turned(dot) and itemsize(load.type.dtype) < LEAST_COPY
            slow = load.tensor in self.slow
            # the left operand waits for bytes that each warp turns in registers
            later = turns_bytes(dot) and self.pipe.grouped and not self.pipe.target.columns
            slow |= (later and side == 1) or load in self._both_ways
            arrives = (through or (flat and not turned)) and not slow
            count = self._turns.get(load, self.ahead + ((through or later) and direct))
            count = count if self.ahead and arrives else 0
            if slow and self.ahead and through and self.pipe.target.columns:
                count = 2  # one is filled while the product reads the other
            split = parts > 1 and not self.ahead and bool(self._computed(dot, side, True))
            if split:  # it becomes its parts where it is multiplied, whoever has loaded it before
                operand = Apply("parts", (operand,), operand.type)
            else:
                where = kept if count else passing
                where.append((load, max(count, 1) * value_bytes(load, self.blocks)))
        elif load is not None and not (side == 0 and through and self._elsewhere(load, parts)):
            kept.append((operand, parts * size))
        # registers hold the others, which are results of products; tensor memory what loops make
        large = not through or size > HELD or self._lies(operand)
        innermost = not any(isinstance(s, Loop) for s in self.loop.body)
        large = large or (parts == 1 and innermost and self.pipe.target.columns > 0)
        if load is None and side == 0 and large and self._stays(operand):
            kept.append((operand, parts * size))
        elif not direct and (load is None or self._moves(load)):
            use = self._uses.get(dot)
            whole = use is not None and use.stays and not use.copied and self.ahead
            found = kept if whole else passing  # which the product reads while the next turn begins
            found += [(operand, n) for n in self._computed(dot, side, load is not None)]
        return kept, passing

    @cached_property
    def _both_ways(self) -> frozenset[Load]:
        """What warps sum along the last dimension of in one product, and along another in others.

        Of 2 bytes both are read from one place.  Others lie in two, and none is copied ahead.
        """
        dots = [dot for dot in self._dots() if not self._asynchronous(dot)]
        ways = {(self._source(d.args[n])[0], sums_across(d, n)) for d in dots for n in (0, 1)}
        found = Counter(load for load, _ in ways if load and itemsize(load.type.dtype) != 2)
        return frozenset(load for load, count in found.items() if count > 1)

    @cached_property
    def _uses(self) -> Mapping[Apply, ProductUse]:
        """The loop's own products beside tensor memory, where all of them are asynchronous."""
        dots = list(self._dots())
        if not self.pipe.target.columns or not all(map(self._asynchronous, dots)):
            return {}
        alone = all(self.pipe.parts(dot) == 1 for dot in dots)
        return {dot: self._use(dot, dots) for dot in dots} if alone else {}

    @cached_property
    def _turns(self) -> Mapping[Expr, int]:
        """How often there is what these products read."""
        return turns(list(self._uses.values()), self.ahead)

    def _use(self, dot: Apply, dots: list[Apply]) -> ProductUse:
        """What one of the loop's own products reads and gives."""
        sources = [self._source(a) for a in dot.args]
        loads = {load for load, plain in sources if load is not None and plain}
        given = (
            (plain and load is not None) or not depends(a, self.loop)
            for a, (load, plain) in zip(dot.args, sources, strict=True)
        )
        fed = [n for n, other in enumerate(dots) if self._feeds(dot, other)]
        stores = [s.value for s in self.loop.body if isinstance(s, Store)]
        read = bool(fed) or any(dot in reached(value, self.made) for value in stores)
        return ProductUse(loads, fed, all(given), read)

    def _rearranged(self, dot: Apply) -> int:
        """Bytes that a sum of asynchronous products passes before the last one is added to it.

        Triton 3.6 lays all warps along the rows of those that others need, and no more along the
        last one's than it has rows for.  Of three for one the small right part has left memory.
        """
        rows, _ = self._shape(dot)
        alike = self.pipe.target.columns or rows >= MATRIX * self.pipe.warps
        others = [d for d in self._dots() if d != dot]
        if alike or not self._asynchronous(dot) or any(self._feeds(dot, d) for d in others):
            return 0
        size = min(WIDE * LANES * self.pipe.warps, value_bytes(dot, self.blocks))
        if self.pipe.parts(dot) > 1:
            return max(size - value_bytes(dot.args[1], self.blocks), 0)
        _, _, *added = self._needs(dot)
        return size if any(meant(e, self.made) in others for e in added) else 0

    def _feeds(self, dot: Apply, other: Apply) -> bool:
        """Whether another product needs the result of one in the same iteration."""
        return any(dot in reached(a, self.made) for a in self._needs(other))

    def _needs(self, dot: Apply) -> tuple[Expr, ...]:
        """What a product is computed from: its operands, and what it is added to."""
        every = list(self._dots())
        sums = (e for e in own_exprs(self.loop) if isinstance(e, Apply) and e.op == "add")
        pairs = (e.args if e.args[1] in every else e.args[::-1] for e in sums)
        return (*dot.args, *(other for other, product in pairs if product == dot))

    def _stays(self, operand: Expr) -> bool:
        """Whether a left operand that was computed before the loop is read in each iteration."""
        return self.runs and not depends(operand, self.loop)

    def _elsewhere(self, load: Load, parts: int) -> bool:
        """Whether a left operand that does not move is multiplied from where its parts are made.

        Parts of float32 are in tensor memory then.  Boxes of rows of one head are in registers:
        [64, 1, 128] becomes no matrix where it lies, as [1, 64, 128] does.
        """
        if parts > 1 and self.pipe.target.columns:
            return True
        places = [n for n, entry in enumerate(load.index) if isinstance(entry, At)]
        return self.pipe.boxes and any(n >= len(places) for n in places)

    def _flat(self, dot: Apply, side: int) -> bool:
        """Whether an operand is copied as a matrix, or as several of them: not as one of a batch.

        What stays in registers of a batch of one by the compiler's figures: the left operand of an
        asynchronous product that no hardware copies, and the right one of warps if it is narrow.
        """
        if dot.type.rank == 2:
            return True
        if self._asynchronous(dot):
            return side == 1 or self.pipe.boxes or self.pipe.target.columns > 0
        several = prod(lanes_of(d, self.blocks) for d in dot.type.shape[:-2]) > 1
        return several or side == 0 or itemsize(dot.args[1].type.dtype) >= LEAST_COPY

    def _computed(self, dot: Apply, side: int, loaded: bool) -> list[int]:
        """Bytes of what passes through shared memory of an operand that was computed in registers.

        An asynchronous product reads its right operand there, and a left one that is turned, unless
        it is loaded as float32.  Others take what is made of loads alone where it is computed, and
        not what depends on positions or sums; warps that lie along the columns of results hold rows
        of products that others need.
        """
        operand, parts = dot.args[side], self.pipe.parts(dot)
        size = value_bytes(operand, self.blocks)
        if self._asynchronous(dot):
            apart = parts == 1 and self._lies(operand) and not (loaded or self.ahead)
            turned = is_turned(dot) and (parts == 1 or not (loaded or self.pipe.target.columns))
            return [parts * size] if side == 1 or turned or apart else []
        if loaded:
            return []
        by_number, made_before = of_loads(operand, self.made), not multiplied(operand, self.made)
        if by_number and side == 1 and self.ahead:
            return []  # it arrives before, and threads take their numbers of it
        if parts == 1 and made_before:
            return [] if by_number else [size]
        every = list(dict.fromkeys(dots_in(self.loop)))  # and those of loops inside, which feed it
        across = any(rows < columns for rows, columns in map(self._shape, every))
        chained = len(every) > 1 and across
        # a right operand that is loaded for three products has left memory by then
        gone = parts > 1 and not self.ahead and self._source(dot.args[1])[0] is not None
        if side == 0 and (gone or not chained):
            whole = made_before and not (by_number or chained)  # and split where it is multiplied
            return [size] if whole else []
        return [parts * size]

    def _lies(self, operand: Expr) -> bool:
        """Whether an operand of asynchronous products lies as memory does, which they read it from.

        Results of other products lie as these want them, what is copied ahead is read so, and
        tensor memory takes either.
        """
        return not (multiplied(operand, self.made) or self.pipe.target.columns)

    def _asynchronous(self, dot: Apply) -> bool:
        return self.pipe.asynchronous(dot, self.blocks)

    def _shape(self, dot: Apply) -> tuple[int, int]:
        rows, columns = (lanes_of(d, self.blocks) for d in dot.type.shape[-2:])
        return rows, columns

    def _source(self, expr: Expr) -> tuple[Load | None, bool]:
        """The load that an operand is made of, and whether it is as it was loaded."""
        match expr:
            case Load():
                return expr, True
            case Apply("transpose", (inner,)):
                return self._source(inner)
            case Apply("cast" | "reshape" | "squeeze", (inner,)):
                load, plain = self._source(inner)
                return load, plain and inner.type.dtype == expr.type.dtype
            case Var(name) if name in self.made:
                return self._source(self.made[name])
            case _:
                return None, False
