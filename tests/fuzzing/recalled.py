"""recalled(program, rng): a store that goes by what the loop stored one turn before, which is read.

    for i in hl.grid(n): y[i, t] = v   ->   y[i + 1, t] = v + y[i, t] * 0.5

As recurrences and dynamic programming are written by who carries nothing.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import sites, swapped
from tests.fuzzing.program import Binary, Load, Number, Pick, Program, Store, fitted, parts

BEHIND = (1, 1, 2, 3)  # turns between the store and the load
MAXIMUM = 0.4  # of the programs of floats, and all others


def recalled(program: Program, rng: random.Random) -> Program | None:
    """The program with one such store; None where no loop of single positions stores to its own."""
    able = [
        (site.node, pick)
        for site in sites(program.body)
        if isinstance(site.node, Store) and _alone(program, site.node)
        for pick in site.node.index
        if pick == Pick(pick.axis) and pick.axis and program.axis(pick.axis).kind == "grid"
    ]
    if not able:
        return None
    store, pick = rng.choice(able)
    load = Load(store.tensor, store.index)
    floats = program.tensor(store.tensor).dtype == "float32"
    largest = not floats or rng.random() < MAXIMUM
    value = Binary("max", store.value, load)
    if not largest:
        value = Binary("+", store.value, Binary("*", load, Number(0.5)))
    later = replace(pick, shift=rng.choice(BEHIND))
    index = tuple(later if p is pick else p for p in store.index)
    new = replace(store, index=index, value=value)
    return fitted(replace(program, body=swapped(program.body, store, new)))


def _alone(program: Program, store: Store) -> bool:
    """Whether nothing else uses what it stores, which is something before it does."""
    tensor = program.tensor(store.tensor)
    used = [p for p in parts(program.body) if isinstance(p, Load | Store)]
    once = sum(p.tensor == tensor.name for p in used) == 1
    known = tensor.role == "changed" or tensor.fill is not None
    return once and known and tensor.dtype != "bool" and not (store.atomic or store.combine)
