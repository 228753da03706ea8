"""layered(program, rng) -> Program: one store becomes several, to planes of one array."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import sites, swapped
from tests.fuzzing.program import Binary, Load, Number, Pick, Program, Store, fitted, parts

MOST_RANK = 4
PLANES = 5


def layered(program: Program, rng: random.Random) -> Program | None:
    """Two or three constant positions of a dimension more, each of which holds something else."""
    used = [p.tensor for p in parts(program.body) if isinstance(p, Load | Store)]
    found = [s.node for s in sites(program.body) if isinstance(s.node, Store)]
    found = [s for s in found if len(s.index) < MOST_RANK and used.count(s.tensor) == 1]
    if not found:
        return None
    store = rng.choice(found)
    place = rng.choice((0, 0, rng.randint(0, len(store.index))))
    before, after = store.index[:place], store.index[place:]
    new = tuple(
        replace(
            store,
            index=(*before, Pick("", plane), *after),
            value=Binary("*", store.value, Number(0.5)) if count else store.value,
        )
        for count, plane in enumerate(rng.sample(range(PLANES), rng.choice((2, 2, 3))))
    )
    return fitted(replace(program, body=swapped(program.body, store, new)))
