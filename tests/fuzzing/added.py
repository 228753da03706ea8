"""added(rng) -> Program: rows that a loop over numbers adds one by one, with numbers beside them.

for j in hl.grid(offsets[g], offsets[g + 1]):
    acc = acc + 1.0                   a number, one of the group or of the row: once for each row
    acc = acc + x[ids[j], c] * w[j]   rows as they lie or that an array picks, perhaps weighed
    top = hl.maximum(top, ...)        of some loops

A step may take several of these rows at once: what stands beside them counts for each.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    If,
    Let,
    Load,
    Number,
    Pick,
    Program,
    Ref,
    Scalar,
    Statement,
    Store,
    Tensor,
    Term,
    Update,
    Value,
    fitted,
    pruned,
)
from tests.fuzzing.small import COLUMNS, SIZES, nest


def added(rng: random.Random) -> Program:
    """Sums of one or two carries, or greatest values, of the rows of groups."""
    columns = rng.choice((COLUMNS, COLUMNS, replace(COLUMNS, kind="tile", size=rng.choice(SIZES))))
    group, over = Axis("g", "grid", rng.randint(1, 5)), Axis("j", "grid", rng.randint(1, 12))
    tensors = list[Tensor]()
    if rng.random() < 0.7:
        over = replace(over, size=rng.choice(SIZES), offsets="o", of="g")
        tensors.append(Tensor("o", (group.size + 1,), "int32", "offsets", limit=over.size))
    through = "ids" if rng.random() < 0.6 else ""
    tensors.append(Tensor("ids", (over.size,), "int32", "index", limit=rng.choice((1, 5, 30))))
    tensors.append(Tensor("kinds", (over.size,), "int32", "index", limit=3))
    tensors += [
        Tensor(n, (), rng.choice(("float32", "float32", "bfloat16")), "input") for n in "xw"
    ]
    tensors.append(Tensor("b", (), "float32", "input"))
    tensors += [Tensor(n, (), "float32", "output", 0.0) for n in ("y", "z")]
    row = Load("x", (Pick("j", through=through), Pick("c")))
    carries = ("acc", "top") if rng.random() < 0.4 else ("acc",)
    inner = tuple(s for name in carries for s in _updates(name, row, rng))
    if rng.random() < 0.3:
        inner = (If(Term("j", "kinds"), rng.choice((1, 2)), inner),)
    start: Value = Number(rng.choice((0.0, 0.0, -1.0)))
    lets = tuple(Let(name, ("c",), start) for name in carries)
    stores = tuple(
        Store(to, (Pick("g"), Pick("c")), Ref(name))
        for to, name in zip("yz", carries, strict=False)
    )
    around = (group, *((columns,) if columns.kind == "tile" else ()))
    body = nest(around, (*lets, *nest((over,), inner), *stores))
    return fitted(pruned(Program((group, over, columns), tuple(tensors), body)))


def _updates(name: str, row: Value, rng: random.Random) -> list[Statement]:
    """What is added, or taken the greatest of: a row, and what goes by no row or by its number."""
    op = rng.choice(("sum", "sum", "sum", "max"))
    weighed = Binary("*", row, Load("w", (Pick("j"),)))
    shared = Load("b", (Pick("g"), Pick("c")))
    others = (Number(1.0), Number(0.5), shared, Scalar(Term("g")), Scalar(Term("j")))
    values = [rng.choice((row, row, weighed)), *rng.sample(others, rng.randint(0, 2))]
    rng.shuffle(values)
    if op == "sum" and len(values) > 1 and rng.random() < 0.5:  # in one statement
        return [Update(name, op, Binary(rng.choice("+-"), values[0], values[1]))]
    return [Update(name, op, value) for value in values]
