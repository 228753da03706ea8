"""stepped(program, rng): ranges that count pages, which a step may divide and a page may not.

    for t in hl.tile(offsets[g], offsets[g + 1])
        ->  for t in hl.tile(offsets[g] * 16, offsets[g + 1] * 16, block_size=16)

Where a step divides both ends and the array is as long as so many steps, no lane is masked.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import Program, Term, parts
from tests.fuzzing.shrink import sized

PAGES = (8, 16, 16, 32, 12)
BLOCKS = (0, 8, 16, 16, 32, 12)


def stepped(program: Program, rng: random.Random) -> Program | None:
    """The program with such ranges where nothing else reads their ends; None without any."""
    read = {p.tensor for p in parts(program.body) if isinstance(p, Term)}
    able = {a.offsets for a in program.axes if a.offsets and a.kind == "tile"} - read
    able -= {a.offsets for a in program.axes if a.kind != "tile"}
    if not able:
        return None
    name, page = rng.choice(sorted(able)), rng.choice(PAGES)
    pages = -(-program.tensor(name).limit // page)
    rows = pages * page + rng.choice((0, 0, 0, 3))  # the array may be longer
    axes = tuple(
        replace(a, size=rows, page=page, block=rng.choice(BLOCKS)) if a.offsets == name else a
        for a in program.axes
    )
    tensors = tuple(replace(t, limit=pages) if t.name == name else t for t in program.tensors)
    return sized(replace(program, axes=axes, tensors=tensors))
