"""tallied(program, rng): what is stored at a tile is added to numbers that index arrays pick, too.

    y[g, t] = v   ->   y[g, t] = v
                       hl.atomic_add(tally, [ids[t]], v)

Or stored there, where the last one stays; or whole rows of it are, where the value has them.  Some
are left out, by numbers of an array of their own, perhaps narrow ones: mask=keep[t] == 1.
Where they go may be an argument that changes, and the place be computed.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import sites, swapped
from tests.fuzzing.program import Mask, Pick, Program, Store, Tensor, fitted

TALLY, TABLE, KEEP = "tally1", "places1", "keep1"
MASKED, GIVEN, DERIVED, NARROW = 0.4, 0.3, 0.4, ("int32", "int16", "int8")


def tallied(program: Program, rng: random.Random) -> Program | None:
    """The program with one store so doubled; None if it has none at one tile."""
    stores = [s.node for s in sites(program.body) if isinstance(s.node, Store)]
    able = [s for s in stores if not (s.masks or s.combine) and len(_of(program, s, "tile")) == 1]
    if not able:
        return None
    store = rng.choice(able)
    (tile,), size = _of(program, store, "tile"), rng.randint(1, 40)
    how = rng.choice(("", "sum", "sum", "max"))
    rest = _of(program, store, "full")
    kept = (Mask(Pick(tile.axis, through=KEEP), 2, first=1),) if rng.random() < MASKED else ()
    role, fill = ("changed", None) if rng.random() < GIVEN else ("output", 0.0)
    derived = rng.random() < DERIVED
    at = (Pick(tile.axis, through=TABLE, derived=derived), *rest)
    second = Store(TALLY, at, store.value, combine=how, atomic=bool(how), masks=kept)
    rows = (program.axis(tile.axis).size,)
    new = [Tensor(TABLE, rows, "int32", "index", limit=size)]
    new += [Tensor(KEEP, rows, rng.choice(NARROW), "index", limit=3)] if kept else []
    tally = Tensor(TALLY, (1,) * len(at), "float32", role, fill)
    made = replace(program, tensors=(*program.tensors, *new, tally))
    return fitted(replace(made, body=swapped(program.body, store, (store, second))))


def _of(program: Program, store: Store, kind: str) -> list[Pick]:
    """The entries of an index that are axes of a kind."""
    return [p for p in store.index if p.axis and program.axis(p.axis).kind == kind]
