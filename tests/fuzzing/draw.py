"""draw(seed) -> Program: a random kernel that means something.

What is drawn gives one result whatever the tiles are: a sum over a tile is a carry's, a carry is
read after its loop, and a value that is stored does not depend on a tile that the store leaves out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
    Even,
    Let,
    Load,
    Loop,
    Number,
    Pick,
    Position,
    Program,
    Reduce,
    Ref,
    Seen,
    Statement,
    Store,
    Tensor,
    Unary,
    Update,
    Value,
    parts,
    pruned,
)

MULTIPLES = (2, 2, 2, 3, 7, 20)  # of which positions values are others
MOST_DIMS = 3  # of a value
MOST_RANK = 4  # of an array
DEEPEST = 4  # loops
SIZES = (1, 5, 16, 24, 30, 33, 40, 50, 64, 77)
DTYPES = ("float32", "float32", "bfloat16", "int32")


def draw(seed: int) -> Program:
    """The program of a seed; every seed gives one."""
    for attempt in range(100):
        drawing = Drawing(random.Random(1000 * seed + attempt))
        program = drawing.program()
        if program.outputs:
            return program
    raise AssertionError(f"seed {seed} gives no program")


@dataclass(frozen=True)
class Scope:
    """Open loops from outer to inner, and the named values with their dimensions."""

    open: tuple[Axis, ...] = ()
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def inside(self, axis: Axis) -> Scope:
        return Scope((*self.open, axis), self.values)

    def knowing(self, name: str, dims: tuple[str, ...]) -> Scope:
        return Scope(self.open, (*self.values, (name, dims)))

    @property
    def tiles(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.open if a.kind == "tile")


class Drawing:
    """A program in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tensors: list[Tensor] = []
        self.nest = 0  # of the outputs that may be read: those of earlier nests
        self.made: dict[str, int] = {}  # output -> the last nest that stores to it
        self.seen: set[str] = set()  # outputs that this nest reads
        self.usual: dict[str, Pick] = {}  # tile -> how it indexes outputs and most inputs
        self.count = 0
        self.axes = self._axes()
        self.full = tuple(a for a in self.axes if a.kind == "full")

    def program(self) -> Program:
        body: list[Statement] = []
        for nest in range(self.rng.choice((1, 1, 1, 2))):
            self.nest, self.seen = nest, set()
            body += self._block(Scope(), self._loopable(), 0)
        found = pruned(Program(self.axes, tuple(self.tensors), tuple(body)))
        return replace(found, axes=tuple(self._bounded(found, a) for a in found.axes))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ------------------------------------------------------------ axes

    def _axes(self) -> tuple[Axis, ...]:
        """Some static loops, whole dimensions, and one kind of ragged nest."""
        rng, size = self.rng, self._size
        found = [Axis("h", "grid", rng.randint(1, 4)), Axis("i", "grid", rng.randint(1, 3))]
        found += [Axis("tn", "tile", size()), Axis("ts", "tile", size())]
        found = rng.sample(found, rng.randint(0, 3))
        found += [Axis("c", "full", rng.choice((3, 8, 24, 40)))] if self.chance(0.5) else []
        kinds = (self._single, self._double, self._double, self._nested, self._local, self._causal)
        ragged = rng.choice(kinds)
        if not found or self.chance(0.85):
            found += ragged()
        return tuple(found)

    def _size(self) -> int:
        return self.rng.choice(SIZES)

    def _ranges(self, rows: int, groups: int) -> str:
        name = self.fresh("offsets")
        self.tensors.append(Tensor(name, (groups + 1,), "int32", "offsets", limit=rows))
        return name

    def _single(self) -> list[Axis]:
        groups, rows = self.rng.randint(1, 6), self._size()
        offsets = self._ranges(rows, groups)
        return [Axis("g", "grid", groups), Axis("tm", "tile", rows, offsets, "g")]

    def _double(self) -> list[Axis]:
        """Two ragged tiles of one group: the same ranges, or their own."""
        group, first = self._single()
        size = first.size if self.chance(0.3) else self._size()
        offsets = first.offsets if size == first.size else self._ranges(size, group.size)
        return [group, first, Axis("tk", "tile", size, offsets, "g")]

    def _causal(self) -> list[Axis]:
        """Two tiles of one range; the second one goes up to the first, perhaps from shortly before
        it on."""
        group, first = self._single()
        window = self.rng.choice((0, 0, 1, 7, 20))
        ranges = (first.size, first.offsets, "g")
        return [group, first, Axis("tk", "tile", *ranges, until=first.name, window=window)]

    def _nested(self) -> list[Axis]:
        batches, pages, rows = self.rng.randint(1, 4), self.rng.randint(1, 7), self._size()
        outer, inner = self._ranges(pages, batches), self._ranges(rows, pages)
        return [
            Axis("a", "grid", batches),
            Axis("p", "grid", pages, outer, "a"),
            Axis("tm", "tile", rows, inner, "p"),
        ]

    def _local(self) -> list[Axis]:
        groups, rows = self.rng.randint(1, 6), self._size()
        offsets = self._ranges(rows, groups)
        return [Axis("g", "grid", groups), Axis("tl", "tile", rows, offsets, "g", local=True)]

    def _loopable(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.kind != "full")

    def _bounded(self, program: Program, axis: Axis) -> Axis:
        """Whether max_extent is said; it may be left out where the tile indexes a dimension."""
        own = [p for p in parts(program.body) if isinstance(p, Loop) and p.axis == axis.name]
        plain = all(Pick(axis.name) in parts(loop.body) for loop in own)
        free = axis.kind == "tile" and plain and not axis.local and self.chance(0.5)
        return replace(axis, bounded=not free)

    # ------------------------------------------------------------ statements

    def _block(self, scope: Scope, left: Sequence[Axis], depth: int) -> list[Statement]:
        found: list[Statement] = []
        if scope.open and self.chance(0.4):
            scope = self._named(scope, found)
        loops = rows = 0
        able = self._able(scope, left)
        ragged = [a for a in able if a.kind == "tile" and a.offsets and not a.until]
        if ragged and depth < DEEPEST and self.chance(0.4):
            loops = rows = self.rng.choice((2, 2, 3))
            for _ in range(loops):
                scope = self._in_a_row(scope, ragged, able, depth, found)
        while able and loops < 2 and depth < DEEPEST and (loops == 0 or self.chance(0.25)):
            loops += 1
            scope = self._loop(scope, self.rng.choice(able), left, depth, found)
        if scope.open and (loops == 0 or self.chance(0.9 if rows else 0.6)):
            self._store(scope, found)
        return found

    def _in_a_row(
        self,
        scope: Scope,
        ragged: Sequence[Axis],
        able: Sequence[Axis],
        depth: int,
        found: list[Statement],
    ) -> Scope:
        """One of several ragged loops that follow each other and that contain no loops."""
        if self.chance(0.3):
            scope = self._named(scope, found)
        axis = self.rng.choice(able if self.chance(0.1) else ragged)
        scope = self._loop(scope, axis, [axis], depth, found)
        if self.chance(0.3):
            self._store(scope, found)
        return scope

    def _able(self, scope: Scope, left: Sequence[Axis]) -> list[Axis]:
        """Loops that may be opened: the one that picks their range is open."""
        opened = {a.name for a in scope.open}
        return [a for a in left if {a.of, a.until} <= {*opened, ""}]

    def _named(self, scope: Scope, found: list[Statement]) -> Scope:
        value, dims = self._value(scope)
        name = self.fresh("v")
        found.append(Let(name, dims, value))
        return scope.knowing(name, dims)

    def _loop(
        self,
        scope: Scope,
        axis: Axis,
        left: Sequence[Axis],
        depth: int,
        found: list[Statement],
    ) -> Scope:
        """A loop, perhaps with a carry, which is a value after it."""
        inner, rest = scope.inside(axis), [a for a in left if a != axis]
        body: list[Statement] = []
        name = ""
        if scope.open and (axis.until or self.chance(0.65)):
            name, dims, start = self._carry(inner, axis, rest, body)
            found.append(Let(name, dims, Number(start)))
        if not axis.until and (not name or self.chance(0.5)):
            more = self._block(inner, rest, depth + 1)
            body = more + body if self.chance(0.3) else body + more
        if body:
            found.append(Loop(axis.name, tuple(body), self.chance(0.3)))
        return scope.knowing(name, dims) if name else scope

    def _carry(
        self, inner: Scope, axis: Axis, rest: Sequence[Axis], body: list[Statement]
    ) -> tuple[str, tuple[str, ...], float]:
        """A carry over one loop, or over it and one more: (name, dimensions, initial value)."""
        name, over = self.fresh("acc"), [axis]
        more = [a for a in self._able(inner, rest) if a.kind == "tile" and not a.until]
        if more and not axis.until and self.chance(0.2):
            over.append(self.rng.choice(more))
            inner = inner.inside(over[1])
        tiles = [a.name for a in over if a.kind == "tile"]
        step = self._causal_step(inner, axis) if axis.until else self._step(inner, tiles)
        op, value, dims = step
        update: Statement = Update(name, op, value)
        body.append(Loop(over[1].name, (update,)) if len(over) > 1 else update)
        start = -4.0 if op == "max" else self.rng.choice((0.0, 0.0, 1.5))
        return name, dims, start

    def _step(self, inner: Scope, tiles: list[str]) -> tuple[str, Value, tuple[str, ...]]:
        """What a carry takes in: summed over these tiles, or their maximum."""
        dot = self._dot(inner, tiles[-1]) if len(tiles) == 1 and self.chance(0.35) else None
        if dot is not None:
            return "sum", *dot
        value, dims = self._value(inner, want=tiles)
        op = self.rng.choice(("sum", "sum", "max") if tiles else ("sum", "max", "decay"))
        for tile in tiles:
            if tile in dims:
                by = "max" if op == "sum" and self.chance(0.02) else op  # to be refused
                value, dims = Reduce(by, tile, value), tuple(d for d in dims if d != tile)
            elif op == "sum" and not self.chance(0.04):  # once for every tile: to be refused
                op = "max"
        return op, value, dims

    def _causal_step(self, inner: Scope, axis: Axis) -> tuple[str, Value, tuple[str, ...]]:
        """Everything that a causal loop takes in is masked: it visits whole tiles."""
        op = self.rng.choice(("sum", "sum", "max"))
        value: Value = self._load(inner, [axis.name, axis.until], 0)
        seen = Seen(axis.name, value, -4.0 if op == "max" else 0.0)
        columns = [d for d in self._order(inner) if d not in (axis.name, axis.until)]
        if op == "sum" and columns and self.chance(0.6):
            column = self.rng.choice(columns)
            right = self._load(inner, [axis.name, column], 0)
            left_first = self._order(inner).index(axis.until) < self._order(inner).index(column)
            if left_first and {axis.name, column} == self._vectors(right):
                return op, Dot(axis.name, seen, right), (axis.until, column)
        dims = self._vectors(value) - {axis.name} | {axis.until}
        return op, Reduce(op, axis.name, seen), tuple(d for d in self._order(inner) if d in dims)

    def _vectors(self, load: Load) -> set[str]:
        kinds = {a.name: a.kind for a in self.axes}
        return {p.axis for p in load.index if kinds[p.axis] != "grid"}

    def _dot(self, inner: Scope, over: str) -> tuple[Value, tuple[str, ...]] | None:
        """A product of two loads along a tile, if there are dimensions for its result."""
        others = [d for d in self._order(inner) if d != over]
        if len(others) < 2:
            return None
        rows, columns = sorted(self.rng.sample(others, 2), key=others.index)
        sides = (self._load(inner, [rows, over], 0), self._load(inner, [over, columns], 0))
        if any(isinstance(p, Pick) and p.through for p in parts(sides)):
            return None
        return Dot(over, *(side for side in sides)), (rows, columns)

    def _store(self, scope: Scope, found: list[Statement]) -> None:
        value, dims = self._value(scope)
        if scope.values and self.chance(0.75):
            name, dims = scope.values[-1]
            value = Ref(name)
        own = [a for a in scope.open if a.kind == "grid" or a.name in dims or self.chance(0.9)]
        axes = self._without_parents(own)
        axes += [a for a in self.full if a.name in dims or self.chance(0.1)]
        if not axes or len(axes) > MOST_RANK or sum(a.kind != "grid" for a in axes) > MOST_DIMS:
            return
        if self.chance(0.4):
            self.rng.shuffle(axes)
        index = tuple(self._pick(a, 0.08, stored=True) for a in axes)
        found.append(Store(self._output(index), index, value))

    def _without_parents(self, axes: list[Axis]) -> list[Axis]:
        """Mostly without the group that picks a range, because the range tells it."""
        likely = {a.of: 0.65 if a.local else 0.35 for a in axes if a.of}
        return [a for a in axes if a.name not in likely or self.chance(likely[a.name])]

    def _output(self, index: tuple[Pick, ...]) -> str:
        shape = self._shape(index)
        earlier = [t.name for t in self.tensors if t.role == "output" and t.shape == shape]
        earlier = [n for n in earlier if self.made[n] < self.nest and n not in self.seen]
        if earlier and self.chance(0.5):
            again = self.rng.choice(earlier)
            self.made[again] = self.nest
            return again
        name = self.fresh("y")
        dtype = self.rng.choice(("float32", "float32", "bfloat16"))
        fill = self.rng.choice((0.0, 0.0, 3.0, None))
        self.tensors.append(Tensor(name, shape, dtype, "output", fill))
        self.made[name] = self.nest
        return name

    # ------------------------------------------------------------ values

    def _order(self, scope: Scope) -> tuple[str, ...]:
        """All dimensions that a value can have here, in order."""
        return (*scope.tiles, *(a.name for a in self.full))

    def _value(
        self, scope: Scope, want: Sequence[str] = (), depth: int = 0
    ) -> tuple[Value, tuple[str, ...]]:
        """A value and its dimensions, `want` among them."""
        value, dims = self._leaf(scope, want)
        if depth < 2 and self.chance(0.45):
            other, more = self._value(scope, (), depth + 1)
            both = tuple(d for d in self._order(scope) if d in {*dims, *more})
            if len(both) <= MOST_DIMS:
                value, dims = self._combined(scope, value, other), both
        if self.chance(0.2):
            value = Unary(self.rng.choice(("tanh", "abs", "neg", "relu")), value)
        picked = [t for t in scope.tiles if t in dims]
        if picked and self.chance(0.06):
            of = random.Random(f"multiples {value}").choice(MULTIPLES)
            value = Even(self.rng.choice(picked), value, Number(0.25), of)
        return value, dims

    def _combined(self, scope: Scope, left: Value, right: Value) -> Value:
        op = self.rng.choice(("+", "-", "*", "max"))
        return Binary(op, left, Unary("tanh", right) if op == "*" else right)

    def _leaf(self, scope: Scope, want: Sequence[str]) -> tuple[Value, tuple[str, ...]]:
        fitting = [(n, d) for n, d in scope.values if set(want) <= set(d)]
        if fitting and self.chance(0.4):
            name, dims = self.rng.choice(fitting)
            return Ref(name), dims
        if not want and self.chance(0.1):
            axis = self.rng.choice(scope.open)
            return Position(axis.name), (axis.name,) if axis.kind == "tile" else ()
        load = self._load(scope, want, 0.7)
        here = {p.axis for p in load.index}
        return load, tuple(d for d in self._order(scope) if d in here)

    def _load(self, scope: Scope, want: Sequence[str], more: float) -> Load:
        """An array indexed by `want` and, as `more` says, by other open loops."""
        axes = [a for a in (*scope.open, *self.full) if a.name in want]
        for axis in self.rng.sample((*scope.open, *self.full), len(scope.open) + len(self.full)):
            vectors = sum(a.kind != "grid" for a in axes)
            room = len(axes) < MOST_RANK and (axis.kind == "grid" or vectors < MOST_DIMS)
            likely = 0.5 if axis.kind == "grid" else more
            if axis not in axes and room and self.chance(likely):
                axes.append(axis)
        axes = axes or [scope.open[-1]]
        axes = [a for a in (*scope.open, *self.full) if a in self._without_parents(axes)]
        if self.chance(0.35):
            self.rng.shuffle(axes)
        index = tuple(self._pick(a, 0.12) for a in axes)
        return Load(self._input(index), index)

    def _pick(self, axis: Axis, unusual: float, stored: bool = False) -> Pick:
        """Plain, moved, or through an index tensor; a local tile often from its begin on.

        Most outputs are stored at one position of a tile: others in the same loop are refused.
        """
        if axis.kind == "full":
            return Pick(axis.name)
        if axis.kind == "tile" and not self.chance(unusual / 4):
            usual = self.usual.setdefault(axis.name, self._moved(axis))
            return usual if stored or self.chance(0.75) else self._elsewhere(axis)
        if not self.chance(unusual):
            return Pick(axis.name)
        if self.chance(0.5):
            return Pick(axis.name, shift=self.rng.randint(1, 3))
        return Pick(axis.name, through=self._table(axis))

    def _elsewhere(self, axis: Axis) -> Pick:
        """Another position than that of outputs."""
        shift = self.rng.choice((0, 0, 1, 2, 3, 17))
        if axis.local:
            return Pick(axis.name, shift, start=self.chance(0.5))
        return Pick(axis.name, shift, back=bool(axis.offsets) and self.chance(0.6))

    def _moved(self, axis: Axis) -> Pick:
        """How a tile moves in most arrays of a program."""
        if axis.local:
            return Pick(axis.name, start=self.chance(0.7))
        return Pick(axis.name, shift=self.rng.randint(1, 3) if self.chance(0.15) else 0)

    def _table(self, axis: Axis) -> str:
        """An index tensor for every position of an axis."""
        limit = self.rng.randint(1, 2 * axis.size)
        name = self.fresh("index")
        self.tensors.append(Tensor(name, (axis.size,), "int32", "index", limit=limit))
        return name

    def _input(self, index: tuple[Pick, ...]) -> str:
        """An input of the shape, perhaps one that is read elsewhere, or an earlier result."""
        shape = self._shape(index)
        same = [t.name for t in self.tensors if t.shape == shape and self._readable(t)]
        if same and self.chance(0.5):
            again = self.rng.choice(same)
            self.seen.add(again)
            return again
        name = self.fresh("x")
        self.tensors.append(Tensor(name, shape, self.rng.choice(DTYPES), "input"))
        return name

    def _readable(self, tensor: Tensor) -> bool:
        """Inputs, and results of earlier nests that were not rounded."""
        if tensor.role == "input":
            return True
        earlier = tensor.role == "output" and self.made[tensor.name] < self.nest
        return earlier and tensor.dtype == "float32"

    def _shape(self, index: tuple[Pick, ...]) -> tuple[int, ...]:
        by_name = {t.name: t for t in self.tensors}
        axes = {a.name: a for a in self.axes}
        return tuple(
            by_name[p.through].limit if p.through else axes[p.axis].size + p.shift for p in index
        )
