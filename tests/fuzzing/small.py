"""small(rng) -> Program: a small kernel of one nest, for `changes.py` to make unusual."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
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
    Term,
    TileNumber,
    Unary,
    Update,
    Value,
    fitted,
    pruned,
)

SIZES = (1, 7, 12, 16, 24, 33, 40, 50)
DTYPES = ("float32", "float32", "float32", "bfloat16", "int32")
COLUMNS = Axis("c", "full", 8)
ROWS, HEADS = Axis("r", "full", 8), Axis("h", "full", 8)  # of a block that is looked up
LOWEST = -1e30  # of scores


def small(rng: random.Random) -> Program:
    """A map, a reduction, a causal reduction, or several loops in a row."""
    sprout = Sprout(rng)
    axes = sprout.axes()
    leaf = rng.choice((sprout.mapping, sprout.mapping, sprout.reduction, sprout.rows))
    body = leaf(axes)
    every = (*axes, *sprout.more, *((COLUMNS,) if sprout.columns else ()))
    return fitted(pruned(Program(every, tuple(sprout.tensors), body)))


def attention(rng: random.Random) -> Program:
    """An online softmax: a maximum, a sum that follows it, and weighted rows or numbers."""
    sprout = Sprout(rng)
    kind = rng.choice(("static", "pair", "causal", "edge"))
    axes = sprout._related(kind) or [Axis(n, "tile", rng.choice(SIZES)) for n in ("tq", "tk")]
    if rng.random() < 0.5:
        axes.insert(0, Axis("i", "grid", rng.randint(1, 3)))
    body = sprout.softmax(axes)
    return fitted(pruned(Program((*axes, COLUMNS), tuple(sprout.tensors), body)))


def paged(rng: random.Random) -> Program:
    """A loop over blocks that are looked up, of which a step may run several turns.

    What it carries is an online softmax, or values that each turn changes in its own way.
    """
    sprout = Sprout(rng)
    sprout.columns = True
    length = sprout.fresh("n") if sprout.chance(0.6) else ""
    groups, turns = rng.randint(1, 3), rng.choice((1, 2, 3, 4, 5, 7))
    over = Axis("b", "grid", turns, of="i" if length else "", length=length)
    if length:
        sprout.tensors.append(Tensor(length, (groups,), "int32", "index", limit=turns + 1))
    outer = [Axis("i", "grid", groups)]
    outer += [Axis("tq", "tile", rng.choice(SIZES))] if sprout.chance(0.5) else []
    body = sprout.turns(outer, over)
    every = (*outer, over, HEADS, ROWS, COLUMNS)
    return fitted(pruned(Program(every, tuple(sprout.tensors), body)))


def grouped(rng: random.Random) -> Program:
    """Sums of the rows of groups, rows that use them, and what becomes of both."""
    sprout = Sprout(rng)
    groups, rows, name = rng.randint(1, 12), rng.choice(SIZES), sprout.fresh("offsets")
    sprout.tensors.append(Tensor(name, (groups + 1,), "int32", "offsets", limit=rows))
    group, over = Axis("g", "grid", groups), Axis("tm", "tile", rows, name, "g")
    body = sprout.of_groups(group, over)
    return fitted(pruned(Program((group, over, COLUMNS), tuple(sprout.tensors), body)))


def boxes(rng: random.Random) -> Program:
    """Rows of groups that go to boxes of their own, or come from there; mostly as they are."""
    groups, rows, local = rng.randint(1, 12), rng.choice(SIZES), rng.random() < 0.5
    most = rng.choice((0, 1, 5, 16, 17, 30))
    group = Axis("g", "grid", groups)
    over = Axis("tm", "tile", rows, "offsets1", "g", local=local, most=most, bounded=False)
    lines = (Pick("tm", start=local), Pick("c"))
    own = (Pick("g"), Pick("tm", back=not local), Pick("c"))
    into, source = rng.choice(((lines, own), (own, lines)))
    dtype, fill = rng.choice(("float32", "float32", "bfloat16")), rng.choice((0.0, 0.0, 3.0, None))
    moved: Value = Load("x1", source)
    body = nest(
        (group, over), (Store("y1", into, Unary("neg", moved) if rng.random() < 0.1 else moved),)
    )
    tensors = (
        Tensor("offsets1", (groups + 1,), "int32", "offsets", limit=rows),
        Tensor("x1", (), dtype, "input"),
        Tensor("y1", (), dtype, "output", fill),
    )
    columns = replace(COLUMNS, size=rng.choice((8, 8, 130)))
    return fitted(Program((group, over, columns), tensors, body))


def scaled(rng: random.Random) -> Program:
    """A product of numbers that are scaled by blocks of a length that the author says."""
    sprout, rows = Sprout(rng), rng.choice(SIZES)
    block = rng.choice((128, 128, 128, 8, 16))
    over = Axis("tk", "tile", rng.choice((200, 256, 300) if block == 128 else SIZES), block=block)
    outer = [Axis("tm", "tile", rows), Axis("tn", "tile", rng.choice((8, 40, 130)))]
    if sprout.chance(0.4):
        offsets = Tensor("offsets1", (rng.randint(2, 5),), "int32", "offsets", limit=rows)
        sprout.tensors.append(offsets)
        group = Axis("g", "grid", offsets.shape[0] - 1)
        outer = [group, Axis("tm", "tile", rows, offsets.name, "g"), outer[1]]
    *heads, row, column = outer
    left, right = sprout.load((row, over)), sprout.load((*sprout._some(heads), over, column))
    number = Binary("+", TileNumber(over.name), Number(1.0))
    product = Dot(over.name, Binary("*", left, number), right)
    dims = (row.name, column.name)
    body = nest(
        outer,
        (
            Let("acc", dims, Number(0.0)),
            Loop(over.name, (Update("acc", "sum", product),)),
            sprout.store([row, column], Ref("acc")),
        ),
    )
    return fitted(pruned(Program((*outer, over), tuple(sprout.tensors), body)))


def lanes(rng: random.Random) -> Program:
    """Outputs whose rows are groups and whose lanes are the tiles of their rows; ragged columns."""
    sprout, groups, rows = Sprout(rng), rng.randint(1, 6), rng.choice(SIZES)
    sprout.tensors.append(Tensor("offsets1", (groups + 1,), "int32", "offsets", limit=rows))
    group = Axis("g", "grid", groups)
    over = Axis("tm", "tile", rows, "offsets1", "g", local=rng.random() < 0.3)
    head = [Axis("i", "grid", rng.randint(1, 3))] if sprout.chance(0.4) else []
    lines = rng.choice(([], [COLUMNS], [replace(COLUMNS, size=3)]))
    outer = [group, *head]
    rng.shuffle(outer)
    stores: list[Statement] = []
    for _ in range(rng.choice((1, 1, 2))):
        where = [*outer, *lines, over] if sprout.chance(0.7) else [*head, *lines, over]
        source = [*sprout._some([group, *head]), *lines, over]
        store = sprout.store(where, Load((x := sprout.load(source)).tensor, _lying(x, over)))
        if group in where and sprout.chance(0.3):  # counted from the begin of the group
            store = replace(store, index=_counted(store.index, over))
        stores.append(store)
    body = nest((*outer, over), tuple(stores))
    return fitted(pruned(Program((*outer, over, *lines), tuple(sprout.tensors), body)))


def _lying(load: Load, over: Axis) -> tuple[Pick, ...]:
    """The index of a load of rows that lie in one array, of all groups."""
    return tuple(replace(p, start=over.local and p.axis == over.name) for p in load.index)


def _counted(index: tuple[Pick, ...], over: Axis) -> tuple[Pick, ...]:
    own = (p.axis == over.name for p in index)
    return tuple(
        replace(p, start=False, back=not over.local) if o else p for p, o in zip(index, own)
    )


def scaled_twice(rng: random.Random) -> Program:
    """A product scaled by blocks in both dimensions, or a maximum for each of the tiles."""
    sprout, rows = Sprout(rng), rng.choice(SIZES)
    tn = Axis("tn", "tile", rng.choice((8, 40, 70, 130)), block=rng.choice((8, 16, 32, 128)))
    tk = Axis("tk", "tile", rng.choice((24, 40, 200)), block=rng.choice((8, 16, 128)))
    outer = [Axis("tm", "tile", rows), tn]
    if sprout.chance(0.5):
        offsets = Tensor("offsets1", (rng.randint(2, 5),), "int32", "offsets", limit=rows)
        sprout.tensors.append(offsets)
        group = Axis("g", "grid", offsets.shape[0] - 1)
        outer = [group, Axis("tm", "tile", rows, offsets.name, "g"), tn]
    *heads, row, _ = outer
    numbers = (Pick("tk", number=True), Pick("tn", number=True))
    own = sprout._some(heads)
    scale = Load("scale", (*(Pick(a.name) for a in own), *numbers))
    sprout.tensors.append(Tensor("scale", (), "float32", "input"))
    if sprout.chance(0.3):  # a number for each row and tile
        value: Value = Reduce(rng.choice(("sum", "max")), "tn", sprout.load((row, tn)))
        store = sprout.store([row], value)
        made: tuple[Statement, ...] = (replace(store, index=(*store.index, numbers[1])),)
        return fitted(pruned(Program(tuple(outer), tuple(sprout.tensors), nest(outer, made))))
    left, right = sprout.load((row, tk)), sprout.load((*sprout._some(heads), tk, tn))
    product: Value = Binary("*", Dot("tk", left, right), scale)
    if sprout.chance(0.5):
        product = Dot("tk", left, Binary("*", right, scale))
    body = (
        Let("acc", (row.name, "tn"), Number(0.0)),
        Loop("tk", (Update("acc", "sum", product),)),
        sprout.store([row, tn], Ref("acc")),
    )
    return fitted(pruned(Program((*outer, tk), tuple(sprout.tensors), nest(outer, body))))


class Sprout:
    """A small program in the making; arrays get their lengths when all of it is known."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tensors: list[Tensor] = []
        self.count = 0
        self.columns = rng.random() < 0.5
        self.more: list[Axis] = []

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ------------------------------------------------------------ loops

    def axes(self) -> tuple[Axis, ...]:
        """Loops from outer to inner, in any order in which ranges are known."""
        rng = self.rng
        found = [Axis("i", "grid", rng.randint(1, 12)), Axis("t", "tile", rng.choice(SIZES))]
        found += [Axis("j", "grid", rng.randint(1, 4)), Axis("u", "tile", rng.choice(SIZES))]
        kind = rng.choice(("static", "static", "ragged", "ragged", "pair", "causal", "edge"))
        found = rng.sample(found, rng.randint(1, 3) if kind == "static" else rng.randint(0, 1))
        found += self._related(kind)
        rng.shuffle(found)
        ordered: list[Axis] = []
        while found:
            known = {"", *(a.name for a in ordered)}
            ordered.append(next(a for a in found if {a.of, a.until} <= known))
            found.remove(ordered[-1])
        return tuple(
            sorted(ordered, key=lambda a: bool(a.until))
        )  # its tiles are masked by one loop

    def rows_of_groups(self, rows: int) -> tuple[list[Axis], Axis]:
        """A loop over groups and one over the rows of each, or over numbers and all rows."""
        outer, over = Axis("i", "grid", self.rng.randint(1, 3)), Axis("tm", "tile", rows)
        if self.chance(0.6):
            offsets = Tensor("offsets1", (self.rng.randint(2, 6),), "int32", "offsets", limit=rows)
            self.tensors.append(offsets)
            outer = Axis("g", "grid", offsets.shape[0] - 1)
            over = replace(over, offsets=offsets.name, of=outer.name)
        return [outer], over

    def _related(self, kind: str) -> list[Axis]:
        """Loops whose ranges are those of groups, or end at another tile."""
        rng, rows = self.rng, self.rng.choice(SIZES)
        window = rng.choice((0, 0, 0, 1, 7))
        if kind == "static":
            return []
        if kind == "edge":
            first = Axis("tq", "tile", rows)
            return [first, Axis("tk", "tile", rows, until="tq", window=window)]
        groups = rng.randint(1, 6)
        name = self.fresh("offsets")
        self.tensors.append(Tensor(name, (groups + 1,), "int32", "offsets", limit=rows))
        group, first = Axis("g", "grid", groups), Axis("tm", "tile", rows, name, "g")
        if kind == "ragged":
            return [group, replace(first, local=self.chance(0.2))]
        until, window = ("tm", window) if kind == "causal" else ("", 0)
        return [group, first, Axis("tk", "tile", rows, name, "g", until=until, window=window)]

    # ------------------------------------------------------------ bodies

    def mapping(self, axes: Sequence[Axis]) -> tuple[Statement, ...]:
        """A store inside of all loops, of what is loaded there."""
        if any(a.until for a in axes):
            return self.reduction(axes)
        where = self._where(axes)
        return nest(axes, (self.store(where, self.value(axes, where)),))

    def reduction(self, axes: Sequence[Axis]) -> tuple[Statement, ...]:
        """A carry over the innermost loop, stored after it."""
        if len(axes) == 1:
            self.more.append(Axis("o", "grid", 3))
            axes = (*self.more, *axes)
        *outer, over = axes
        dims = self._dims(outer)
        name = self.fresh("acc")
        loop = self._reduced(outer, over, name, dims)
        start = Let(name, tuple(a.name for a in dims), Number(self.rng.choice((0.0, 1.5))))
        return nest(outer, (start, loop, self.store(self._where(outer, dims), Ref(name))))

    def rows(self, axes: Sequence[Axis]) -> tuple[Statement, ...]:
        """Reductions over one range in a row, and a loop that stores with all of them."""
        if axes[-1].until or axes[-1].kind == "grid" or len(axes) == 1:
            return self.reduction(axes)
        *outer, over = axes
        dims = self._dims(outer)
        body: list[Statement] = []
        made: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            name = self.fresh("acc")
            body.append(Let(name, tuple(a.name for a in dims), Number(0.0)))
            using = made if self.chance(0.4) else []
            body.append(self._reduced(outer, over, name, dims, using))
            made.append(name)
        where = self._where(axes, [*dims, over])
        value = self.value(axes, where)
        for name in self.rng.sample(made, self.rng.randint(1, len(made))):
            value = Binary("+", value, Ref(name))
        if self.chance(0.8):
            body.append(Loop(over.name, (self.store(where, value),)))
        else:
            last = Ref(made[-1])
            body.append(self.store(self._where(outer, dims), last))
        return nest(outer, tuple(body))

    def softmax(self, axes: Sequence[Axis]) -> tuple[Statement, ...]:
        """Every row sees a position at least: its own, or all of them."""
        *outer, over = axes
        row, heads = outer[-1], [a for a in axes if a.name == "i"]
        dims = (row.name, "c") if self.columns else (row.name,)
        scores: Value = self.load((*heads, row, over))
        if self.chance(0.7):
            sides = (self.load((*self._some(heads), a, COLUMNS)) for a in (row, over))
            scores = Dot("c", *sides)
        scores = Seen(over.name, scores, LOWEST) if over.until else scores
        own = (COLUMNS,) if self.columns else ()
        weighted = self.load((*self._some(heads), over, *own), through=0.25)
        starts = (("m", dims[:1], LOWEST), ("total", dims[:1], 0.0), ("acc", dims, 0.0))
        lets = (Let(name, own, Number(start)) for name, own, start in starts)
        loop = Loop(over.name, _online(row.name, over.name, scores, weighted, self.columns))
        found = [self.store([*heads, row, *own], Binary("/", Ref("acc"), Ref("total")))]
        if self.chance(0.4):
            lse = Binary("+", Ref("m"), Unary("log", Ref("total")))
            found.append(self.store([*heads, row], lse))
        return nest(outer, (*lets, loop, *found))

    def turns(self, outer: Sequence[Axis], over: Axis) -> tuple[Statement, ...]:
        """A loop that only carries values, of blocks at places that memory says."""
        table = self.fresh("table")
        self.tensors.append(Tensor(table, (over.size,), "int32", "index", limit=5))
        page = Pick("", terms=(Term(over.name, table),))
        row = outer[-1] if outer[-1].kind == "tile" else HEADS
        if self.chance(0.5):
            starts, body = self._softmax_of(page, row)
        else:
            starts, body = self._changed_by(page, row)
        stores = tuple(
            self.store([outer[0], *(a for a in (row, COLUMNS) if a.name in s.dims)], Ref(s.name))
            for s in starts
        )
        return nest(outer, (*starts, Loop(over.name, body), *stores))

    def _block(self, page: Pick, *axes: Axis) -> Load:
        name = self.fresh("x")
        self.tensors.append(Tensor(name, (), self.rng.choice(DTYPES), "input"))
        return Load(name, (page, *(Pick(a.name) for a in axes)))

    def _softmax_of(self, page: Pick, row: Axis) -> tuple[tuple[Let, ...], tuple[Statement, ...]]:
        scores: Value = Dot("c", self.load((row, COLUMNS)), self._block(page, ROWS, COLUMNS))
        scores = scores if self.chance(0.6) else self._block(page, row, ROWS)
        weighted = self._block(page, ROWS, COLUMNS)
        own = {"m": (row.name,), "total": (row.name,), "acc": (row.name, "c")}
        lets = tuple(Let(n, own[n], Number(LOWEST if n == "m" else 0.0)) for n in own)
        return lets, _online(row.name, "r", scores, weighted, True)

    def _changed_by(self, page: Pick, row: Axis) -> tuple[tuple[Let, ...], tuple[Statement, ...]]:
        """Carries that follow each other, in an order that counts."""
        lets: list[Let] = []
        body: list[Statement] = []
        for _ in range(self.rng.randint(1, 3)):
            name = self.fresh("acc")
            dims = ("c",) if row == HEADS and self.chance(0.5) else (row.name, "c")
            value: Value = Reduce("sum", "r", self._block(page, ROWS, COLUMNS))
            if self.chance(0.5):
                value = self._block(page, *(a for a in (row, COLUMNS) if a.name in dims))
            value = Unary("tanh", value)
            for other in lets:
                if set(other.dims) <= set(dims) and self.chance(0.5):
                    value = Binary("+", value, Ref(other.name))
            op = self.rng.choice(("sum", "sum", "max", "decay", "scale", "set"))
            lets.append(Let(name, dims, Number(self.rng.choice((0.0, 1.5)))))
            body.append(Update(name, op, value))
        return tuple(lets), tuple(body)

    def of_groups(self, group: Axis, over: Axis) -> tuple[Statement, ...]:
        """Loops in a row over the rows of a group, most of which use what those before found."""
        body: list[Statement] = []
        numbers: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            name, value = self.fresh("acc"), self._of_rows(group, over, numbers)
            wide = self.columns and self.chance(0.3)
            found: Value = Reduce("sum", over.name, value)
            found = found if wide or not self.columns else Reduce("sum", "c", found)
            body.append(Let(name, ("c",) if wide else (), Number(self.rng.choice((0.0, 1.5)))))
            body.append(Loop(over.name, (Update(name, "sum", found),)))
            if wide or self.chance(0.3):
                own = [group, COLUMNS] if wide else [group]
                body.append(self.store(own, Ref(name)))
            numbers += [] if wide else [name]
        if numbers or self.chance(0.5):
            own = [over, COLUMNS] if self.columns else [over]
            rows = self.store(own, self._of_rows(group, over, numbers))
            body.append(Loop(over.name, (rows,)))
        return nest((group,), tuple(body))

    def _of_rows(self, group: Axis, over: Axis, numbers: Sequence[str]) -> Value:
        """A value of rows, by numbers of their group."""
        found: Value = self.load([over, COLUMNS] if self.columns else [over])
        if self.chance(0.3):
            found = Binary("*", found, self.load([group]))
        if self.chance(0.2):
            found = Binary("+", found, Position(over.name))
        for other in numbers:
            if self.chance(0.6):
                found = Binary(self.rng.choice("+-*"), found, Unary("tanh", Ref(other)))
        return found

    def _reduced(
        self,
        outer: Sequence[Axis],
        over: Axis,
        name: str,
        dims: Sequence[Axis],
        using: Sequence[str] = (),
    ) -> Loop:
        """A loop that adds to a carry, or takes its maximum."""
        op = self.rng.choice(("sum", "sum", "max"))
        if over.kind == "grid":
            return Loop(over.name, (Update(name, op, self.value((*outer, over), dims)),))
        pair = [a for a in dims if a.kind == "tile" and a.name != over.until]
        until = [a for a in outer if a.name == over.until]
        grids = [a for a in outer if a.kind == "grid"]
        if self.chance(0.3) and pair and self.columns and not until:
            left = self.load((*self._some(grids), pair[0], over))
            right = self.load((*self._some(grids), over, COLUMNS))
            if COLUMNS in dims and len(dims) == 2:
                return Loop(over.name, (Update(name, "sum", Dot(over.name, left, right)),))
        value = self.load((*self._some(grids), *until, over, *self._some(list(dims), until)))
        found: Value = value
        for other in using:
            found = Binary("*", found, Unary("tanh", Ref(other)))
        if until:
            found = Seen(over.name, found, -4.0 if op == "max" else 0.0)
        return Loop(over.name, (Update(name, op, Reduce(op, over.name, found)),))

    def _some(self, axes: list[Axis], without: Sequence[Axis] = ()) -> list[Axis]:
        return [a for a in axes if a not in without and self.chance(0.6)]

    def _dims(self, outer: Sequence[Axis]) -> list[Axis]:
        """What a carry runs along: the tiles outside of its loop, and the columns."""
        found = [a for a in outer if a.kind == "tile"]
        return found + ([COLUMNS] if self.columns and self.chance(0.7) else [])

    def _where(self, axes: Sequence[Axis], dims: Sequence[Axis] | None = None) -> list[Axis]:
        """The axes of a store: of every loop, mostly without groups that pick a range."""
        own = [a.of for a in axes if a.of]
        found = [a for a in axes if a.name not in own or self.chance(0.2)]
        columns = self.columns if dims is None else COLUMNS in dims
        return found + ([COLUMNS] if columns else [])

    def value(self, axes: Sequence[Axis], within: Sequence[Axis]) -> Value:
        """One or two loads, or positions."""
        able = [a for a in (*axes, COLUMNS) if a.kind == "grid" or a in within]
        able = [a for a in able if a in axes or a in within]
        loads = [self.load(self._some(able) or [able[-1]]) for _ in range(self.rng.randint(1, 2))]
        found: Value = loads[0] if len(loads) == 1 else Binary("+", *loads)
        tiles = [a for a in axes if a.kind == "tile" and a in within]
        if tiles and self.chance(0.15):
            found = Binary("+", found, Position(self.rng.choice(tiles).name))
        return found

    def load(self, axes: Sequence[Axis], through: float = 0.0) -> Load:
        """Perhaps of rows that an array picks."""
        axes = list(dict.fromkeys(axes))
        if self.chance(0.2):
            self.rng.shuffle(axes)
        name = self.fresh("x")
        self.tensors.append(Tensor(name, (), self.rng.choice(DTYPES), "input"))
        if not through or not self.chance(through):
            return Load(name, tuple(Pick(a.name) for a in axes))
        table, (tile,) = self.fresh("index"), (a for a in axes if a.kind == "tile")
        limit = self.rng.randint(1, 2 * tile.size)
        self.tensors.append(Tensor(table, (tile.size,), "int32", "index", limit=limit))
        picks = (Pick(a.name, through=table if a == tile else "") for a in axes)
        return Load(name, tuple(picks))

    def store(self, axes: Sequence[Axis], value: Value) -> Store:
        axes = list(axes)
        if self.chance(0.2):
            self.rng.shuffle(axes)
        name = self.fresh("y")
        dtype = self.rng.choice(("float32", "float32", "float32", "bfloat16"))
        fill = self.rng.choice((0.0, 0.0, 3.0, None))
        self.tensors.append(Tensor(name, (), dtype, "output", fill))
        index = tuple(Pick(a.name, start=a.local) for a in axes)
        return Store(name, index, value)


def nest(axes: Sequence[Axis], body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The loops from outer to inner with one body."""
    for axis in reversed(axes):
        body = (Loop(axis.name, body),)
    return body


def _online(
    row: str, over: str, scores: Value, weighted: Value, columns: bool
) -> tuple[Statement, ...]:
    """What a softmax does with a tile of scores."""
    p = Ref("p")
    part = Dot(over, p, weighted) if columns else Reduce("sum", over, Binary("*", p, weighted))
    return (
        Let("s", (row, over), scores),
        Let("highest", (row,), Binary("max", Ref("m"), Reduce("max", over, Ref("s")))),
        Let("alpha", (row,), Unary("exp", Binary("-", Ref("m"), Ref("highest")))),
        Let("p", (row, over), Unary("exp", Binary("-", Ref("s"), Ref("highest")))),
        Update("total", "scale", Ref("alpha")),
        Update("total", "sum", Reduce("sum", over, p)),
        Update("acc", "scale", Ref("alpha")),
        Update("acc", "sum", part),
        Update("m", "set", Ref("highest")),
    )
