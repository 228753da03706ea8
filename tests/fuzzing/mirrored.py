"""mirrored(program, rng): a loop over single positions that begins at the last one.

    for i in hl.grid(offsets[g], offsets[g + 1], max_extent=40):
        ->  for i_turn in hl.grid(offsets[g + 1] - offsets[g]):
                i = offsets[g + 1] - 1 - i_turn

How long such a range can be, an array says that is read at i: nobody says max_extent.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import Loop, Pick, Program, parts


def mirrored(program: Program, rng: random.Random) -> Program | None:
    """The program with one such loop; None where it has no loop over single positions."""
    looped = {p.axis for p in parts(program.body) if isinstance(p, Loop)}
    able = [a for a in program.axes if a.kind == "grid" and a.name in looped]
    able = [a for a in able if not (a.order or a.until or a.inside or a.measured)]
    if not able:
        return None
    axis = rng.choice([a for a in able if a.offsets or a.length] or able)
    own = [p for p in parts(program.body) if isinstance(p, Loop) and p.axis == axis.name]
    bounded = axis.bounded and not all(Pick(axis.name) in parts(loop.body) for loop in own)
    turned = replace(axis, mirrored=True, bounded=bounded)
    return replace(program, axes=tuple(turned if a == axis else a for a in program.axes))
