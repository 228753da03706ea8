"""beside(rng) -> Program: two stores to one output, in two loops, at moved places.

for g in ...:  for t in ...: y[g, t, c] = x[g, t, c]
               for s in ...: y[g, s + 40, c] = w[g, s, c]     behind 40 rows, or among them
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    Load,
    Loop,
    Pick,
    Program,
    Store,
    Tensor,
    fitted,
    pruned,
)
from tests.fuzzing.small import COLUMNS, SIZES


def beside(rng: random.Random) -> Program:
    """Rows of a group and others behind them: with a gap, or, seldom, where they may meet."""
    one, two = (Axis(n, "tile", rng.choice(SIZES)) for n in "ts")
    group = Axis("g", "grid", rng.randint(1, 4))
    tensors = [Tensor("n", (group.size,), "int32", "index", limit=one.size + 1)]
    if rng.random() < 0.5:  # only so many rows
        one = replace(one, of="g", length="n")
    tensors += [Tensor(n, (), "float32", "input") for n in ("x", "w")]
    tensors.append(Tensor("y", (), "float32", "output", 0.0))
    rows = (Pick("g"), Pick("t"), Pick("c"))
    shift = max(one.size + rng.choice((0, 0, 0, 0, 8, -1)), 0)
    moved = (Pick("g"), Pick("s", shift=shift), Pick("c"))
    other = Load("w", (Pick("g"), Pick("s"), Pick("c")))
    stores = Store("y", rows, Load("x", rows)), Store("y", moved, Binary("*", other, other))
    body = Loop("g", (Loop("t", stores[:1]), Loop("s", stores[1:])))
    return fitted(pruned(Program((group, one, two, COLUMNS), tuple(tensors), (body,))))
