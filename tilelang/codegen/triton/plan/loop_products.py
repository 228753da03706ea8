"""Products of a loop: what they are computed from, and how warps read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tilelang.ir import Apply, Expr, Load, Loop, Var, multiplied, reached
from tilelang.language.dtypes import itemsize
from tilelang.language.op import SAME

from .alignment import BOX, LEAST_COPY
from .loops import own_dots, own_exprs
from .pipe import Pipe, turns_bytes
from .reductions import lanes_of
from .sides import sums_across
from .unmoved import depends


@dataclass(frozen=True)
class LoopProducts:
    """One loop with its own products; `runs`: inside of a program, so that copies go ahead."""

    loop: Loop
    blocks: Mapping[str, int]
    pipe: Pipe
    made: Mapping[str, Expr]
    runs: bool
    rows: Mapping[str, int] = field(default_factory=dict)  # bytes that those of an array begin at

    def is_slow(self, load: Load) -> bool:
        """Whether threads load every number, because no asynchronous copy begins at rows."""
        return self.rows.get(load.tensor, BOX) < LEAST_COPY

    def dots(self) -> Iterator[Apply]:
        return iter(own_dots(self.loop))

    def loads(self) -> Iterator[Load]:
        """Tiles that the loop's own statements load, each in its turn."""
        return (e for e in own_exprs(self.loop) if isinstance(e, Load) and e.type.shape)

    def turns_bytes(self, dot: Apply) -> bool:
        """Whether warps that multiply together turn bytes of the right operand in registers."""
        together = self.pipe.together(dot, self.blocks) and not self.pipe.target.columns
        return together and turns_bytes(dot)

    def bytes_across(self, dot: Apply, side: int) -> bool:
        """Whether bytes of an asynchronous product pass through registers: it sums along rows."""
        narrow = itemsize(dot.args[side].type.dtype) == 1 and not self.pipe.target.columns
        return narrow and sums_across(dot, side)

    @cached_property
    def also_read(self) -> frozenset[Load]:
        """What is read by more than products of several warps: there is one copy less of it.

        Triton 3.6 keeps one until the product that runs on is done where that alone reads it.
        """
        every = (e for e in own_exprs(self.loop) if isinstance(e, Apply) and e.op not in SAME)
        others = (
            e
            for e in every
            if not (e.op == "dot" and (self.turns_bytes(e) or self.asynchronous(e)))
        )
        found = {self.source(a) for e in others for a in e.args}
        return frozenset(load for load, plain in found if load is not None and plain)

    @cached_property
    def mixed(self) -> frozenset[Load]:
        """What an asynchronous product reads and a warp's own too: from two places."""
        read = {self.asynchronous(d): set[Load | None]() for d in self.dots()}
        for dot in self.dots():
            if self.pipe.parts(dot) == 1:  # the parts of others are in registers
                read[self.asynchronous(dot)] |= {self.source(a)[0] for a in dot.args}
        return frozenset(e for e in read.get(True, set()) & read.get(False, set()) if e)

    @cached_property
    def both_ways(self) -> frozenset[Load]:
        """What warps sum along the last dimension of in one product, and along another in others.

        Of 2 bytes both are read from one place.  Others lie in two, and none is copied ahead.
        """
        dots = [dot for dot in self.dots() if not self.asynchronous(dot)]
        ways = {(self.source(d.args[n])[0], sums_across(d, n)) for d in dots for n in (0, 1)}
        found = Counter(load for load, _ in ways if load and itemsize(load.type.dtype) != 2)
        return frozenset(load for load, count in found.items() if count > 1)

    def feeds(self, dot: Apply, other: Apply) -> bool:
        """Whether another product needs the result of one in the same iteration."""
        return any(dot in reached(a, self.made) for a in self.needs(other))

    def needs(self, dot: Apply) -> tuple[Expr, ...]:
        """What a product is computed from: its operands, and what it is added to."""
        every = list(self.dots())
        sums = (e for e in own_exprs(self.loop) if isinstance(e, Apply) and e.op == "add")
        pairs = (e.args if e.args[1] in every else e.args[::-1] for e in sums)
        return (*dot.args, *(other for other, product in pairs if product == dot))

    def stays(self, operand: Expr) -> bool:
        """Whether a left operand that was computed before the loop is read in each iteration."""
        return self.runs and not depends(operand, self.loop)

    def is_broad(self, loop: Loop) -> bool:
        """Whether warps lie along the columns of a loop's results: those of the last decide.

        Triton 3.6 begins with that, and gives the others what it has.
        """
        *_, (rows, columns) = ((1, 0), *map(self.shape, own_dots(loop)))
        return rows < columns

    def lies(self, operand: Expr) -> bool:
        """Whether an operand of asynchronous products lies as memory does, which they read it from.

        Results of other products lie as these want them, what is copied ahead is read so, and
        tensor memory takes either.
        """
        return not (multiplied(operand, self.made) or self.pipe.target.columns)

    def asynchronous(self, dot: Apply) -> bool:
        return self.pipe.asynchronous(dot, self.blocks)

    def shape(self, dot: Apply) -> tuple[int, int]:
        rows, columns = (lanes_of(d, self.blocks) for d in dot.type.shape[-2:])
        return rows, columns

    def source(self, expr: Expr) -> tuple[Load | None, bool]:
        """The load that an operand is made of, and whether it is as it was loaded."""
        match expr:
            case Load():
                return expr, True
            case Apply("transpose", (inner,)):
                return self.source(inner)
            case Apply("cast" | "reshape" | "squeeze", (inner,)):
                load, plain = self.source(inner)
                return load, plain and inner.type.dtype == expr.type.dtype
            case Var(name) if name in self.made:
                return self.source(self.made[name])
            case _:
                return None, False
