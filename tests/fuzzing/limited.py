"""limited(program, rng): what a value is compared with says which of two it is.

    x[t, :]                  ->   hl.where(x[t, :] > 0.5, x[t, :], 0.0)
    acc + x[t, :].sum(0)     ->   acc + hl.where(x[t, :].sum(0) < limit[g], 1.0, 0.0)
    acc + v                  ->   acc + hl.where(acc < 2.0, v, 0.0)        until it is enough
    acc + v                  ->   acc + hl.where(acc < 600.0, v * 300.0, 0.0)  of large numbers

Where it is a sum of a tile, or what is carried, it goes by how the loop is cut, and numbers must
show it, for any limit: one that is written, or one that memory has.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import _loads, sites, swapped
from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
    Load,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Tensor,
    Update,
    Value,
    Where,
    fitted,
)

OPS = ("<", "<=", ">", ">=")
LEVELS = (0.0, 0.5, -1.0, 2.0, 6.0)
LARGE = (20.0, 300.0, 5000.0)  # times what is compared
SCALED = 0.3  # of the comparisons with a number that is written
LIMIT = "limit"


def limited(program: Program, rng: random.Random) -> Program | None:
    """The program with one value so changed; None if it has none that is a float."""
    every = [s for s in sites(program.body) if isinstance(s.node, Reduce | Dot | Update)]
    found = [s for s in (*every, *_loads(program)) if _is_float(program, s.node)]
    if not found:
        return None
    kind = type(rng.choice(found).node)
    site = rng.choice([s for s in found if isinstance(s.node, kind)])
    level, tensors = _level(program, site.open, rng)
    own, by = random.Random(f"large {site.node} {level}"), 1.0
    if isinstance(level, Number) and own.random() < SCALED:
        by = own.choice(LARGE)
        level = Number(level.value * by)
    if isinstance(site.node, Update):
        added = _times(site.node.value, by)
        value = Where(rng.choice(OPS), Ref(site.node.name), level, added, Number(0.0))
        new: object = replace(site.node, value=value)
    else:
        new = _picked(_times(site.node, by), level, rng)
    body = swapped(program.body, site.node, new)
    return fitted(replace(program, body=body, tensors=(*program.tensors, *tensors)))


def _is_float(program: Program, node: object) -> bool:
    match node:
        case Update(op=op):
            return op == "sum"
        case Load(tensor):
            return "float" in program.tensor(tensor).dtype
        case Reduce(op, native=native):
            return op != "argmax" and not native
        case _:
            return True


def _level(
    program: Program, opened: tuple[str, ...], rng: random.Random
) -> tuple[Value, tuple[Tensor, ...]]:
    """What it is compared with, and the array that has it."""
    grids: list[Axis] = [a for n in opened if (a := program.axis(n)).kind == "grid"]
    if rng.random() < 0.6 or any(t.name == LIMIT for t in program.tensors):
        return Number(rng.choice(LEVELS)), ()
    index = (Pick(rng.choice(grids).name),) if grids else (Pick("", shift=1),)
    return Load(LIMIT, index), (Tensor(LIMIT, (), "float32", "input"),)


def _times(value: Value, by: float) -> Value:
    return value if by == 1.0 else Binary("*", value, Number(by))


def _picked(value: Value, level: Value, rng: random.Random) -> Where:
    pairs: tuple[tuple[Value, Value], ...] = (
        (value, Number(0.0)),
        (Number(1.0), Number(0.0)),
        (Binary("*", value, Number(2.0)), value),
    )
    return Where(rng.choice(OPS), value, level, *rng.choice(pairs))
