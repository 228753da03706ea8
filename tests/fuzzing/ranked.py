"""ranked(rng) -> Program: the greatest so far, and something of where it is.

    best = x[t, :].amax(0)
    at = hl.where(best > top, ..., at)      or >=; or, where it is as great, both together
    top = hl.maximum(top, best)

What is kept may be the first or the last position of the greatest, how often it is there, or what
another array has there.  Numbers are small and whole, so that one is as great as another: then some
of these go by how the loop is cut, and must be refused.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import (
    Binary,
    Let,
    Loop,
    Number,
    Position,
    Program,
    Reduce,
    Ref,
    Update,
    Value,
    Where,
    fitted,
    pruned,
)
from tests.fuzzing.small import COLUMNS, LOWEST, SIZES, Sprout, nest

FAR = 99.0  # behind every position, times 1/16


def ranked(rng: random.Random) -> Program:
    """Of rows of groups or of an array, perhaps one for each column."""
    sprout, rows = Sprout(rng), rng.choice(SIZES)
    outer, over = sprout.rows_of_groups(rows)
    columns = [COLUMNS] if sprout.columns else []
    dims = tuple(a.name for a in columns)
    given = sprout.load([*sprout._some(outer), over, *columns])
    other = sprout.load([*sprout._some(outer), over, *columns])
    sprout.tensors = [
        replace(t, whole=True, dtype="float32") if t.role == "input" else t for t in sprout.tensors
    ]
    lowest = LOWEST / 1e28
    body = (
        Let("top", dims, Number(lowest)),
        Let("at", dims, Number(-1.0)),
        Loop(
            over.name,
            (
                Let("v", (over.name, *dims), given),
                Let("best", dims, Reduce("max", over.name, Ref("v"))),
                Update("at", "set", _kept(rng, over.name, other)),
                Update("top", "max", Ref("best")),
            ),
        ),
        *(sprout.store([outer[0], *columns], Ref(name)) for name in ("top", "at")),
    )
    axes = (*outer, over, *columns)
    return fitted(pruned(Program(axes, tuple(sprout.tensors), nest(outer, body))))


def _kept(rng: random.Random, axis: str, other: Value) -> Value:
    """What is kept of the greatest of a tile, in one of several ways to meet what was before."""
    places = rng.choice((Position(axis), Position(axis), Number(1.0), other))
    op = "sum" if isinstance(places, Number) else rng.choice(("min", "max", "max", "sum"))
    neutral = {"min": FAR, "max": -1.0, "sum": 0.0}[op]
    found = Where("==", Ref("v"), Ref("best"), places, Number(neutral))
    mark: Value = Reduce(op, axis, found)
    if rng.random() < 0.5:
        return Where(rng.choice((">", ">", ">=")), Ref("best"), Ref("top"), mark, Ref("at"))
    both = Binary("max" if op == "max" else "+", Ref("at"), mark)
    same = Where("==", Ref("best"), Ref("top"), both, Ref("at"))
    return Where(">", Ref("best"), Ref("top"), mark, same)
