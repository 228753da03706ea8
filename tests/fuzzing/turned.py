"""turned(program, rng): a sum whose sign turns with every step, of a loop over numbers or tiles.

    acc = acc + v   ->   acc = v - acc, or 2 - acc, or v, of which the last step's stays

In a loop over tiles it would go by their number, or by how long the last one is: that must be
refused, or the tiles are the author's, of a block that he fixed, from where the range begins.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import sites, swapped
from tests.fuzzing.program import Number, Program, Update

LAST = 0.4  # of the sums


def turned(program: Program, rng: random.Random) -> Program | None:
    """The program with one sum so changed; None if it has none."""
    every = (site.node for site in sites(program.body))
    found = [node for node in every if isinstance(node, Update) and node.op == "sum"]
    if not found:
        return None
    old = rng.choice(found)
    value = Number(2.0) if rng.random() < 0.4 else old.value
    last = random.Random(f"last {rng.random()}").random() < LAST
    new = replace(old, op="set", value=old.value) if last else replace(old, op="turn", value=value)
    return replace(program, body=swapped(program.body, old, new))
