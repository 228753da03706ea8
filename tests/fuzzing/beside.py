"""beside(rng) -> Program: two stores to one output, in two loops or in one, at moved places.

for g in ...:  for t in rows of g: y[t + p[g], c] = x[t, c]
               for s in others of g: y[s + o[g + 1], c] = w[s, c]
"""

from __future__ import annotations

import random

from tests.fuzzing.program import (
    Axis,
    Binary,
    Load,
    Loop,
    Pick,
    Program,
    Store,
    Tensor,
    Term,
    fitted,
    pruned,
)
from tests.fuzzing.small import COLUMNS, SIZES


def beside(rng: random.Random) -> Program:
    """Rows of a group and others behind them, or, seldom, among them."""
    one, two = (Axis(n, "tile", rng.choice(SIZES), o, "g") for n, o in (("t", "o"), ("s", "p")))
    group = Axis("g", "grid", rng.randint(1, 4))
    ends = (group.size + 1,)
    tensors = [Tensor(a.offsets, ends, "int32", "offsets", limit=a.size) for a in (one, two)]
    tensors += [Tensor(n, (), "float32", "input") for n in ("x", "w")]
    tensors.append(Tensor("y", (), "float32", "output", 0.0))
    if rng.random() < 0.3:  # as many of both: y[t + o[g], c] and y[t + o[g + 1], c]
        two = one
    later = rng.choice((1, 1, 1, 1, 1, 0))
    places = [
        Pick(one.name, terms=(Term("g", two.offsets),)),
        Pick(two.name, terms=(Term("g", one.offsets, later=later),)),
    ]
    x, w = (Load(n, (Pick(a.name), Pick("c"))) for n, a in (("x", one), ("w", two)))
    values = (Binary("*", x, x), Binary("*", w, x) if two is one else w)
    stores = [Store("y", (p, Pick("c")), v) for p, v in zip(places, values, strict=True)]
    rng.shuffle(stores)
    inner = (Loop("t", tuple(stores)),)
    if two is not one:
        inner = tuple(Loop(s.index[0].axis, (s,)) for s in stores)
    body = (Loop("g", inner),)
    return fitted(
        pruned(Program((group, *dict.fromkeys((one, two)), COLUMNS), tuple(tensors), body))
    )
