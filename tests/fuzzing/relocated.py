"""relocated(rng) -> Program: rows that lie at other positions than the tiles of what is stored.

for g in ...: for t in rows of g:               tiles of the rows of an array, or from 0 on
    y[t, c] = x[t + begins[g], c]               rows that memory says
    y[g, t - o[g], c] = x[t, c] - x[t - 1, c]   boxes; one row before, where there is one
    acc += x[o[g] + t, 8:16] * w[t]             parts of columns; sums, products

Where they are rows of a matrix, whose columns are whole registers, a step copies what a tile has.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
    Let,
    Load,
    Loop,
    Mask,
    Masked,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Statement,
    Store,
    Tensor,
    Term,
    Update,
    Value,
    fitted,
    pruned,
)
from tests.fuzzing.small import nest

ROWS = (7, 16, 24, 33, 40, 50, 66)
COLUMNS = (8, 8, 20, 128, 130)
DTYPES = ("float32", "float32", "bfloat16", "int8")
LONGEST = 40


def relocated(rng: random.Random) -> Program:
    """One tensor of ranges, one or two arrays that are read elsewhere, one result."""
    rows, local = rng.choice(ROWS), rng.random() < 0.5
    group = Axis("g", "grid", rng.randint(1, 5))
    most = rng.choice((0, 0, 5, 16, 30)) if local else 0
    over = Axis("t", "tile", rows, "o", "g", local=local, most=most)
    columns = Axis("c", "full", rng.choice(COLUMNS))
    outer = [group, Axis("hd", "grid", rng.randint(2, 3))] if rng.random() < 0.3 else [group]
    outer = outer[::-1] if rng.random() < 0.3 else outer
    tensors = [Tensor("o", (group.size + 1,), "int32", "offsets", limit=rows)]
    value = _moved("x1", over, outer, tensors, rng)
    if rng.random() < 0.3:
        value = Binary(rng.choice("+-*"), value, _moved("x2", over, outer, tensors, rng))
    tensors += [Tensor("w", (), "float32", "input"), Tensor("y", (), "float32", "output", 0.0)]
    heads = tuple(Pick(a.name) for a in outer if a != group)
    weight = Load("w", (Pick("t", start=local and rng.random() < 0.5),))
    how = rng.choice(("copy", "copy", "sum", "product", "max"))
    body: tuple[Statement, ...]
    if how == "copy":
        value = Binary("*", value, weight) if rng.random() < 0.4 else value
        boxes = local or rng.random() < 0.5
        own = (*heads, *((Pick("g"),) if boxes else ()), Pick("t", back=boxes and not local))
        body = nest([*outer, over], (Store("y", (*own, Pick("c")), value),))
    else:
        if how == "product":
            made: Value = Dot("t", Load("w2", (Pick("t", start=local), Pick("k"))), value)
            tensors.append(Tensor("w2", (), "float32", "input"))
        else:
            op = "max" if how == "max" else "sum"
            made = Reduce(op, "t", Binary("*", value, weight) if op == "sum" else value)
        dims = ("k", "c") if how == "product" else ("c",)
        update = Update("acc", "max" if how == "max" else "sum", made)
        last = Store("y", (Pick("g"), *heads, *map(Pick, dims)), Ref("acc"))
        body = nest(outer, (Let("acc", dims, Number(0.0)), Loop("t", (update,)), last))
    axes = (*outer, over, Axis("k", "full", 8), columns)
    return fitted(pruned(Program(axes, tuple(tensors), body)))


def _moved(
    name: str, over: Axis, outer: list[Axis], tensors: list[Tensor], rng: random.Random
) -> Value:
    """Rows of an array of its own, perhaps of several matrices, or of a part of its columns."""
    group = next(a for a in outer if a.name == over.of)
    tensors.append(Tensor(name, (), rng.choice(DTYPES), "input"))
    place, boxes = Pick("t"), ()
    match rng.choice(("given", "given", "own", "before")):
        case "given":
            begins = f"begins{len(tensors)}"
            tensors.append(Tensor(begins, (group.size,), "int32", "index", limit=LONGEST))
            place = replace(place, terms=(Term("g", begins),))
        case "own" if not over.local:
            place, boxes = replace(place, back=True), (Pick("g"),)
        case "before":
            place = replace(place, start=over.local, shift=-1)
        case _:
            place = replace(place, start=True)
    heads = tuple(Pick(a.name) for a in outer if a != group and rng.random() < 0.5)
    columns = Pick("c", rng.choice((0, 0, 0, 0, 8, 128)))
    load = Load(name, (*heads, *boxes, place, columns))
    if place.shift < 0:
        return Masked(load, (Mask(place, over.size),), 0.0)
    return load
