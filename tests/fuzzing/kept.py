"""kept(program, rng): a sum takes in some positions of a value, and all of it is stored.

    acc = acc + x[t].sum(0)   ->   v = x[t]
                                   acc = acc + hl.where(even, v, 0.0).sum(0)
                                   z[t] = v

What a sum leaves out is somebody else's result: a mask must not move to where the value is made.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import Site, sites, swapped
from tests.fuzzing.program import (
    Dot,
    Even,
    Joined,
    Let,
    Number,
    Pick,
    Position,
    Program,
    Reduce,
    Ref,
    Seen,
    Store,
    Tensor,
    Update,
    Value,
    fitted,
    parts,
)
from tests.fuzzing.text import Scope

VALUE, OUTPUT = "kept1", "kept2"


def kept(program: Program, rng: random.Random) -> Program | None:
    """The program with one sum so changed; None if it has none that this knows."""
    found = [site for site in sites(program.body) if _sums(program, site)]
    return _changed(program, rng.choice(found)) if found else None


def _sums(program: Program, site: Site) -> bool:
    """Whether it adds up, along the tile of a loop around, what has dimensions that are known.

    Names may stand for what goes by the tiles, such as a running maximum.
    """
    match site.node:
        case Update(_, "sum", Reduce("sum", axis, value)):
            known = not any(isinstance(p, Reduce | Dot | Joined | Seen | Ref) for p in parts(value))
            return known and axis in site.open and axis in _along(program, value)
        case _:
            return False


def _along(program: Program, value: Value) -> set[str]:
    """The tiles and whole dimensions that a value runs along."""
    found = {p.axis for p in parts(value) if isinstance(p, Pick | Position) and p.axis}
    return {name for name in found if program.axis(name).kind != "grid"}


def _changed(program: Program, site: Site) -> Program:
    update: Update = site.node
    reduced = update.value
    assert isinstance(reduced, Reduce)
    own = _along(program, reduced.value)
    dims = Scope(program, site.open).order(own)
    around = [n for n in site.open if program.axis(n).kind == "grid"]
    some = Reduce("sum", reduced.axis, Even(reduced.axis, Ref(VALUE), Number(0.0)))
    stored = Store(OUTPUT, tuple(Pick(name) for name in (*around, *dims)), Ref(VALUE))
    body = (Let(VALUE, dims, reduced.value), replace(update, value=some), stored)
    output = Tensor(OUTPUT, (1,) * len(stored.index), "float32", "output", 0.0)
    made = replace(program, tensors=(*program.tensors, output))
    return fitted(replace(made, body=swapped(program.body, update, body)))
