"""weighed(rng) -> Program: a value that is summed with weights, and reduced alone, in one loop.

    v = x[t, :]
    acc = acc + (v * w[t][:, None]).sum(0)
    top = hl.maximum(top, v.amax(0))

What the lanes outside of a range hold for one of them is nothing that the other may be spoilt by.
"""

from __future__ import annotations

import random

from tests.fuzzing.program import (
    Binary,
    Let,
    Loop,
    Number,
    Program,
    Reduce,
    Ref,
    Statement,
    Unary,
    Update,
    Value,
    fitted,
    pruned,
)
from tests.fuzzing.small import COLUMNS, LOWEST, SIZES, Sprout, nest


def weighed(rng: random.Random) -> Program:
    """Of rows of groups or of an array: a sum, a maximum, or both, in any order."""
    sprout, rows = Sprout(rng), rng.choice(SIZES)
    sprout.columns = True
    outer, over = sprout.rows_of_groups(rows)
    alone = Ref("v")
    rows_of = (over.name, "c")
    given: Value = sprout.load([*sprout._some(outer), over, COLUMNS])
    weight: Value = sprout.load([*sprout._some(outer), over])
    weight = Unary("tanh", weight) if sprout.chance(0.3) else weight
    scaled = Binary("*", *rng.sample((alone, weight), 2))
    updates: list[Statement] = [Update("acc", "sum", Reduce("sum", over.name, scaled))]
    second = rng.choice(("max", "max", "sum"))
    updates.append(Update("top", second, Reduce(second, over.name, alone)))
    rng.shuffle(updates)
    starts = (Let("acc", ("c",), Number(0.0)), Let("top", ("c",), Number(LOWEST / 1e28)))
    body = (
        *starts,
        Loop(over.name, (Let("v", rows_of, given), *updates)),
        *(sprout.store([outer[0], COLUMNS], Ref(name)) for name in ("acc", "top")),
    )
    axes = (*outer, over, COLUMNS)
    return fitted(pruned(Program(axes, tuple(sprout.tensors), nest(outer, body))))
