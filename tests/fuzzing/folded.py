"""folded(program, rng) -> Program: columns of rows become those of several heads.

acc = acc + x[t, :].sum(0)             ->   acc = acc + x[t, :, :].sum(0)
acc = acc + (x[t, :] * w[t]).sum(0)    ->   acc = acc + (x[t, :, :] * w[t, :]).sum(0)
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import mapped
from tests.fuzzing.program import (
    Axis,
    Dot,
    Let,
    Load,
    Pick,
    Program,
    Reduce,
    Store,
    Update,
    fitted,
    parts,
)

MOST_RANK, MOST_DIMS = 4, 3
HEADS = "hd"


def folded(program: Program, rng: random.Random) -> Program | None:
    """The program with a whole dimension before its columns; None if something sums along those."""
    columns = [a.name for a in program.axes if a.kind == "full"]
    uses = [p for p in parts(program.body) if isinstance(p, Load | Store)]
    reduced = {p.axis for p in parts(program.body) if isinstance(p, Dot | Reduce)}
    products = any(isinstance(p, Dot) for p in parts(program.body))
    if len(columns) != 1 or columns[0] in reduced or products or program.views:
        return None
    (name,) = columns
    if any(len(use.index) >= MOST_RANK for use in uses if Pick(name) in use.index):
        return None
    if any(len(let.dims) >= MOST_DIMS for let in parts(program.body) if isinstance(let, Let)):
        return None
    named = {p for let in parts(program.body) if isinstance(let, Let) for p in parts(let.value)}
    tiles = {a.name for a in program.axes if a.kind == "tile"}
    weights = {u.tensor for u in uses if isinstance(u, Load) and u not in named}
    weights -= {u.tensor for u in uses if isinstance(u, Store) or Pick(name) in u.index}
    weights -= _alone(program, name)
    weights = {w for w in sorted(weights) if rng.random() < 0.6}

    def more(node: object) -> object:
        match node:
            case Let(dims=dims) if name in dims:
                return replace(node, dims=_before(dims, name, HEADS))
            case Load(index=index) | Store(index=index) if Pick(name) in index:
                return replace(node, index=_before(index, Pick(name), Pick(HEADS)))
            case Load(tensor, index) if tensor in weights and index[-1].axis in tiles:
                return replace(node, index=(*index, Pick(HEADS)))
            case _:
                return node

    heads = Axis(HEADS, "full", rng.choice((2, 3, 4)))
    at = next(n for n, a in enumerate(program.axes) if a.name == name)
    axes = (*program.axes[:at], heads, *program.axes[at:])
    return fitted(replace(program, axes=axes, body=mapped(program.body, more)))


def _alone(program: Program, name: str) -> set[str]:
    """What is loaded where nothing has these columns."""
    values = (p.value for p in parts(program.body) if isinstance(p, Let | Update | Store))
    loads = ([p for p in parts(v) if isinstance(p, Load)] for v in values)
    alone = (each for each in loads if not any(Pick(name) in load.index for load in each))
    return {load.tensor for each in alone for load in each}


def _before(entries: tuple, entry: object, new: object) -> tuple:
    at = entries.index(entry)
    return (*entries[:at], new, *entries[at:])
