"""tailed(program, rng) -> Program: rows with numbers of their own before or behind their columns.

y[t, :] = v   ->   y[t, 1:9] = v
                   y[t, 0] = v.sum(1)
                   y[t, 9] = y[t, 0] + 0.5
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import _uses, swapped
from tests.fuzzing.program import (
    Binary,
    Load,
    Number,
    Pick,
    Program,
    Reduce,
    Store,
    fitted,
    parts,
)


def tailed(program: Program, rng: random.Random) -> Program | None:
    """The program with one such store; None where nothing is stored by whole columns once."""
    alone = {t.name for t in program.outputs if _uses(program, t.name) == 1}
    alone -= {v.tensor for v in program.views}
    stores = [p for p in parts(program.body) if isinstance(p, Store) and p.tensor in alone]
    able = [(s, dim) for s in stores if (dim := _columns(program, s)) is not None]
    if not able:
        return None
    (store, dim), first = rng.choice(able), rng.choice((1, 1, 2))
    name = store.index[dim].axis

    def place(pick: Pick) -> tuple[Pick, ...]:
        return (*store.index[:dim], pick, *store.index[dim + 1 :])

    one, last = Pick("", shift=0), Pick("", shift=first + program.axis(name).size)
    reduced = Reduce(rng.choice(("sum", "max")), name, store.value)
    made = [replace(store, index=place(one), value=reduced)]
    if rng.random() < 0.5:
        again = rng.random() < 0.5 and not (store.masks or store.combine)
        value = Binary("+", Load(store.tensor, place(one)), Number(0.5)) if again else reduced
        made.append(replace(made[0], index=place(last), value=value))
    made.insert(rng.randint(0, 1), replace(store, index=place(Pick(name, shift=first))))
    return fitted(replace(program, body=swapped(program.body, store, tuple(made))))


def _columns(program: Program, store: Store) -> int | None:
    """Which dimension of a store is a whole one."""
    kinds = {a.name: a.kind for a in program.axes}
    whole = [p == Pick(p.axis) and kinds.get(p.axis) == "full" for p in store.index]
    return whole.index(True) if any(whole) else None
