"""clipped(program, rng): of a sum or a maximum over a tile only what is positive, or its size.

    acc = acc + x[t, :].sum(0)   ->   acc = acc + hl.maximum(x[t, :].sum(0), 0)

It goes by how the loop is cut, by numbers of both signs alone: in tiles of an open block it must be
refused, where nothing takes it out again, and those of a fixed block are the author's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.fuzzing.changes import swapped
from tests.fuzzing.program import Dot, Program, Reduce, Unary, parts

OPS = ("relu", "abs", "tanh")
SUMS = ("sum", "mean")


def clipped(program: Program, rng: random.Random) -> Program | None:
    """The program with one reduction so changed; None if no tile is reduced in floats."""
    if any(t.whole for t in program.tensors):
        return None
    tiles = {a.name for a in program.axes if a.kind == "tile"}
    every = list(parts(program.body))
    # what is below a maximum may have powers, and what is below its size may not
    powers = any(isinstance(p, Unary) and p.op == "exp" for p in every)
    found = [p for p in every if _is_reduced(p, tiles, SUMS if powers else (*SUMS, "max"))]
    if not found:
        return None
    old = rng.choice(found)
    return replace(program, body=swapped(program.body, old, Unary(rng.choice(OPS), old)))


def _is_reduced(part: object, tiles: set[str], ops: Sequence[str]) -> bool:
    folds = isinstance(part, Dot) or (isinstance(part, Reduce) and part.op in ops)
    return folds and part.axis in tiles
