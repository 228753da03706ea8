"""biased(program, rng): a number of a table, looked up by positions, that a value has besides.

    x[tq, tk]   ->   x[tq, tk] + bias[h, tq.index[:, None] - tk.index[None, :] + 9]
    x[t, :]     ->   x[t, :] * table[t.index // 4][:, None]

What is farther apart than the table says is as far as it says.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from tests.fuzzing.changes import _grids, _loads, sites, swapped
from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
    Load,
    Looked,
    Pick,
    Program,
    Tensor,
    parts,
)

DTYPES = ("float32", "float32", "bfloat16", "int32")
LENGTHS = (1, 2, 5, 9, 16, 33)  # a table of many numbers is a comparison for each
BLOCKS = (2, 4, 7, 16)  # of positions that share a number


def biased(program: Program, rng: random.Random) -> Program | None:
    """The program with such a table for one value; None where no value has positions."""
    dots = [s for s in sites(program.body) if isinstance(s.node, Dot)]
    found = [(s, _tiles(program, s.node)) for s in (*_loads(program), *dots)]
    found = [(s, axes) for s, axes in found if any(a.kind == "tile" for a in axes)]
    if not found:
        return None
    site, axes = rng.choice([f for f in found if len(f[1]) > 1] or found)
    heads = [a for a in _grids(program, site) if not a.offsets and rng.random() < 0.5][:1]
    how: Literal["distance", "apart", "share"] = rng.choice(("distance", "distance", "apart"))
    if len(axes) > 1 and rng.random() < 0.9:
        rows, columns = rng.sample(axes, 2)
        length = rng.choice(LENGTHS)
        shift = rng.choice((0, length // 2)) if how == "distance" else 0
    else:
        rows, how, shift = rng.choice([a for a in axes if a.kind == "tile"]), "share", 4
        shift, columns = rng.choice(BLOCKS), None
        length = (rows.size - 1) // shift + 1
    name = f"bias{len(program.tensors)}"
    shape = (*(a.size for a in heads), length)
    table = Tensor(name, shape, rng.choice(DTYPES), "input")
    index = tuple(Pick(a.name) for a in heads)
    number = Looked(name, index, rows.name, columns.name if columns else "", shift, how)
    value = Binary(rng.choice(("+", "+", "*", "max")), site.node, number)
    body = swapped(program.body, site.node, value)
    return replace(program, body=body, tensors=(*program.tensors, table))


def _tiles(program: Program, value: Load | Dot) -> list[Axis]:
    """The tiles and whole dimensions that a value has."""
    names = {p.axis for p in parts(value) if isinstance(p, Pick) and not p.number} - {""}
    names -= {value.axis} if isinstance(value, Dot) else set()
    return [a for a in program.axes if a.name in names and a.kind in ("tile", "full")]
