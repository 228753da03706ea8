"""derived(program, rng): where an index array says what is loaded or stored, vectors say it.

    x[ids[t], :]   ->   x[(ids[t][:, None] + hl.arange(2)[None, :]).amin(1), :]
    y[ids[g]] = v  ->   y[(ids[g] + hl.arange(2)).amin(0)] = v
    hl.tile(offsets[g], offsets[g + 1])   ->   ... (offsets[g + 1] + hl.arange(2)).amin(0))

The places are the same ones, and no scalar unit knows them.  Where no index array says any, one
says what is loaded along a loop.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import _loads, sites, swapped
from tests.fuzzing.program import Pick, Program, Tensor, fitted

AGAIN = 0.3  # more places, each time
MEASURED = 0.35  # of the programs with ranges that memory has, of which one is measured
TABLE = "derived1"


def derived(program: Program, rng: random.Random) -> Program | None:
    """The program with some places so computed; None if it has no loop along which it loads."""
    made, places = program, _places(program)
    ragged = [n for n, a in enumerate(program.axes) if a.offsets or a.length]
    if ragged and rng.random() < MEASURED:
        return _measured(program, rng.choice(ragged))
    if not places:
        made = _looked_up(program, rng)
        places = [] if made is None else _places(made)
    if made is None or not places:
        return None
    for pick in rng.sample(places, len(places)):
        made = replace(made, body=swapped(made.body, pick, replace(pick, derived=True)))
        if rng.random() > AGAIN:
            break
    return made


def _measured(program: Program, place: int) -> Program:
    """The program in which the end of one range is the least of a vector."""
    axes = (replace(a, measured=True) if n == place else a for n, a in enumerate(program.axes))
    return replace(program, axes=tuple(axes))


def _places(program: Program) -> list[Pick]:
    """The positions that index arrays say as they are, along loops."""
    found = [s.node for s in sites(program.body) if isinstance(s.node, Pick)]
    return [p for p in found if p.through and not (p.derived or p.number) and p.share == 1]


def _looked_up(program: Program, rng: random.Random) -> Program | None:
    """The program with one load that an index array says the positions of."""
    able = [
        (site.node, pick)
        for site in _loads(program)
        for pick in site.node.index
        if pick == Pick(pick.axis)
        and pick.axis
        and program.axis(pick.axis).kind in ("grid", "tile")
    ]
    able = [(load, pick) for load, pick in able if not load.view]
    if not able:
        return None
    load, pick = rng.choice(able)
    size = program.axis(pick.axis).size
    table = Tensor(TABLE, (size,), "int32", "index", limit=rng.randint(1, 20))
    index = tuple(replace(p, through=TABLE) if p is pick else p for p in load.index)
    body = swapped(program.body, load, replace(load, index=index))
    return fitted(replace(program, tensors=(*program.tensors, table), body=body))
