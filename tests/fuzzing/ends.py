"""ends(program, rng): the numbers that ranges are made of are read as a block, too.

for t in hl.tile(offsets[g], offsets[g + 1]):
    x[t]   ->   x[t] + offsets[:].sum(0) * 0.125
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import _loads, swapped
from tests.fuzzing.program import Axis, Binary, Load, Number, Pick, Program, Reduce


def ends(program: Program, rng: random.Random) -> Program | None:
    """The program with such a sum besides a load; None where no range is read from a vector."""
    found = [(s.node, n) for s in _loads(program) for a in s.open for n in _said(program, a)]
    if not found:
        return None
    load, name = rng.choice(found)
    every = Axis(f"all{len(program.axes)}", "full", program.tensor(name).shape[0])
    total = Reduce("sum", every.name, Load(name, (Pick(every.name),)))
    value = Binary("+", load, Binary("*", total, Number(0.125)))
    body = swapped(program.body, load, value)
    return replace(program, axes=(*program.axes, every), body=body)


def _said(program: Program, name: str) -> list[str]:
    """The vectors that say where a loop begins and stops."""
    axis = program.axis(name)
    told = (axis.offsets, axis.length, axis.counts)
    return [n for n in told if n and len(program.tensor(n).shape) == 1]
