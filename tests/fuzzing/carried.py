"""carried(rng) -> Program: what a loop carries and stores on the way: running sums and decays.

s = x[0, c] or 0                    z[g, c] = s at the end
for j in hl.grid(...):              perhaps a loop before, of constants alone
    u = u * 0.5 + 1
for i in hl.grid(...):              or tiles of a fixed length, stored by their numbers; or the
                                    turns of a tile, for r in hl.tile(...): hl.grid(r.begin, r.end)
    y[g, i, c] = s                  before it changes, or after, or what is computed of it
    s = s * a[i] + x[i, c]          scaled by numbers, or by rows; a half, or half of the way to it;
                                    not at all
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    Let,
    Load,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Statement,
    Store,
    Tensor,
    Unary,
    Update,
    Value,
    fitted,
    pruned,
)
from tests.fuzzing.small import COLUMNS, SIZES, nest

BLENDS = 0.5  # of those that take a half
TILES = 0.4  # of the loops over numbers are in one over tiles
FLOAT = ("float32", "float32", "bfloat16")


def carried(rng: random.Random) -> Program:
    """One carry, or one and the running sum of it."""
    columns = rng.choice((COLUMNS, replace(COLUMNS, kind="tile", size=rng.choice(SIZES))))
    over, outer = Axis("i", "grid", rng.randint(1, 12)), list[Axis]()
    tensors = list[Tensor]()
    if rng.random() < 0.4:
        outer = [Axis("g", "grid", rng.randint(1, 4))]
        if rng.random() < 0.6:
            tensors.append(Tensor("o", (outer[0].size + 1,), "int32", "offsets", limit=over.size))
            over = replace(over, offsets="o", of="g")
    if not tensors and rng.random() < 0.3:
        over = Axis("i", "tile", rng.choice(SIZES), block=rng.choice((8, 16)))
    around = (*outer, *((columns,) if columns.kind == "tile" else ()))
    tensors += [Tensor(n, (), rng.choice(FLOAT), "input") for n in ("x", "a", "w", "b")]
    tensors += [Tensor(n, (), "float32", "output", 0.0) for n in ("y", "v", "z")]
    groups = tuple(Pick(a.name) for a in outer)
    first: Value = Load("b", (*groups, Pick("c"))) if rng.random() < 0.4 else Number(0.0)
    lets: tuple[Statement, ...] = (Let("s", ("c",), first), Let("u", ("c",), Number(0.0)))
    inner = _turn(over, groups, rng)
    last = (Store("z", (*groups, Pick("c")), Ref(rng.choice("su"))),) if rng.random() < 0.6 else ()
    axes: tuple[Axis, ...] = (*outer, over, columns)
    if rng.random() < 0.3:
        turns = Axis("j", "grid", rng.randint(1, 4))
        change = Update("u", rng.choice(("sum", "decay")), Number(1.0))
        axes, lets = (*axes, turns), (*lets, *nest((turns,), (change,)))
    own = random.Random(f"tiles {axes} {inner}")  # of the same seeds as before
    loops: tuple[Axis, ...] = (over,)
    if over.kind == "grid" and own.random() < TILES:
        rows = replace(over, name="r", kind="tile", block=own.choice((0, 0, 8)))
        loops = rows, replace(over, inside="r", bounded=False)
        axes = tuple(a for a in axes if a != over) + loops
    if random.Random(f"half of the way {axes} {inner}").random() < BLENDS:
        inner = tuple(_blended(s) for s in inner)
    body = nest(around, (*lets, *nest(loops, inner), *last))
    return fitted(pruned(Program(axes, tuple(tensors), body)))


def _blended(stmt: Statement) -> Statement:
    """The mean of what a loop carries and what is added, in the place of a half and that."""
    is_decay = isinstance(stmt, Update) and stmt.op == "decay"
    return replace(stmt, op="blend") if is_decay else stmt


def _turn(over: Axis, groups: tuple[Pick, ...], rng: random.Random) -> tuple[Statement, ...]:
    """One iteration."""
    tile = over.kind == "tile"
    here = Pick(over.name, number=tile)
    row: Value = Load("x", (*(() if over.offsets else groups), Pick(over.name), Pick("c")))
    added = Reduce("sum", over.name, row) if tile else row
    if rng.random() < 0.3:
        added = Binary("*", added, Load("w", (Pick("c"),)))
    by = rng.choice(((here,), (here, Pick("c")), (Pick("c"),)))
    scaled = (Update("s", "scale", Load("a", by)),) if rng.random() < 0.6 else ()
    changes: tuple[Statement, ...] = (*scaled, Update("s", rng.choice(("sum", "decay")), added))
    if rng.random() < 0.3:
        changes = (*changes, Update("u", rng.choice(("sum", "decay")), Ref("s")))
    value: Value = Ref(rng.choice("ssu"))
    if rng.random() < 0.4:
        value = rng.choice(
            (Unary("tanh", value), Binary("*", value, added), Binary("*", value, value))
        )
    place = (*groups, here, Pick("c"))
    before = (Store("v", place, Ref("s")),) if rng.random() < 0.4 else ()
    stored = Store("y", place, value)
    return (*before, *((stored, *changes) if rng.random() < 0.4 else (*changes, stored)))
