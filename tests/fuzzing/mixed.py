"""mixed(program, rng): rows of a tile, summed with weights that have the tile twice.

    for t in tiles:          ->   before = 0
        y[t, :] = x[t, :]         for t in tiles:
                                      y[t, :] = before + (t.index[:, None] >= t.index) @ x[t, :]
                                      before = before + x[t, :].sum(0)

Or in tiles of a fixed block, which are then what the kernel means: of the rows up to each, from it
on, by their distance, or a softmax of their products with themselves.  Such a product runs along
the tile, and its result has it, too.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import Site, _loads, sites, swapped
from tests.fuzzing.program import (
    FROM_THE_FIRST,
    Axis,
    Binary,
    Let,
    Load,
    Loop,
    Mixed,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Statement,
    Store,
    Tensor,
    Update,
    fitted,
)
from tests.fuzzing.small import COLUMNS, nest
from tests.fuzzing.text import Scope

BEFORE = "before"  # the sum of the tiles before
ROWS = 0.5  # of the programs are others, of rows of groups
FORMS = ("dot", "dot", "sum")
WHOLE = 0.4  # of those that can carry what was before do


def mixed(program: Program, rng: random.Random) -> Program | None:
    """The program with one load so mixed; None if it has none of a tile that ends by itself.

    Or rows of groups alone, which boxes may bring.
    """
    program = _rows(rng) if rng.random() < ROWS else program
    found = [(s, axis) for s in _loads(program) for axis in _tiles(program, s)]
    if not found:
        return None
    site, axis = rng.choice(found)
    whole = _carried(program, site.node, axis, rng) if rng.random() < WHOLE else None
    if whole is not None:
        return fitted(whole)
    how = rng.choice(("upto", "upto", "after", "distance", *_scores(program, site.node, axis)))
    made = Mixed(axis.name, how, site.node, rng.choice(FORMS), rng.random() < 0.3)
    axes = tuple(_fixed(a, rng) if a == axis else a for a in program.axes)
    return fitted(replace(program, axes=axes, body=swapped(program.body, site.node, made)))


def _rows(rng: random.Random) -> Program:
    """y[t, :] = x[t, :] of the rows of groups, or y[g, :] = their sum."""
    rows, groups = rng.choice((16, 24, 33, 40, 50)), rng.randint(1, 6)
    group, over = Axis("g", "grid", groups), Axis("tm", "tile", rows, "offsets1", "g")
    columns = replace(COLUMNS, size=rng.choice((8, 16, 32)))
    here, value = Pick(columns.name), Load("x1", (Pick(over.name), Pick(columns.name)))
    if rng.random() < 0.6:
        own = nest((group, over), (Store("y1", value.index, value),))
    else:
        added = Update("acc", "sum", Reduce("sum", over.name, value))
        last = Store("y1", (Pick(group.name), here), Ref("acc"))
        acc = Let("acc", (columns.name,), Number(0.0))
        own = nest((group,), (acc, Loop(over.name, (added,)), last))
    tensors = (
        Tensor("offsets1", (groups + 1,), "int32", "offsets", limit=rows),
        Tensor("x1", (), rng.choice(("float32", "float32", "bfloat16")), "input"),
        Tensor("y1", (), "float32", "output", rng.choice((0.0, 3.0))),
    )
    return fitted(Program((group, over, columns), tensors, own))


def _scores(program: Program, load: Load, axis: Axis) -> tuple[str, ...]:
    """Products of rows with themselves, which are whole: those of parts would go by the block."""
    others = (p.axis for p in load.index if _lanes(program, p) and not p.number)
    whole = all(program.axis(d).kind == "full" for d in others if d != axis.name)
    return ("softmax", "softmax") if whole else ()


def _fixed(axis: Axis, rng: random.Random) -> Axis:
    return replace(axis, block=axis.block or rng.choice((8, 16, 16, 32)))


def _tiles(program: Program, site: Site) -> list[Axis]:
    """The open tiles of an input's load whose ends do not go by those of another tile."""
    load: Load = site.node
    tensor = program.tensor(load.tensor)
    if tensor.role != "input" or "float" not in tensor.dtype:
        return []
    along = [p.axis for p in load.index if _lanes(program, p) and not p.number]
    axes = [program.axis(name) for name in site.open if along.count(name) == 1]
    return [a for a in axes if a.kind == "tile" and not (a.until or a.inside)]


def _lanes(program: Program, pick: Pick) -> bool:
    return bool(pick.axis) and program.axis(pick.axis).kind != "grid"


def _carried(program: Program, load: Load, axis: Axis, rng: random.Random) -> Program | None:
    """All rows before each are summed; None where others than the tile's own loop are inside it."""
    loops = [s for s in sites(program.body) if isinstance(s.node, Loop)]
    for site in (s for s in loops if s.node.axis == axis.name):
        for place, statement in enumerate(site.node.body):
            if isinstance(statement, Loop) or all(s.node is not load for s in sites(statement)):
                continue
            lanes = {p.axis for p in load.index if _lanes(program, p) and not p.number}
            dims = Scope(program, site.open).order(lanes - {axis.name})
            made = Mixed(axis.name, rng.choice(FROM_THE_FIRST), load, rng.choice(FORMS))
            both = Binary("+", Ref(BEFORE), made)
            own: tuple[Statement, ...] = (swapped(statement, load, both),)
            own += (Update(BEFORE, "sum", Reduce("sum", axis.name, load)),)
            body = (*site.node.body[:place], *own, *site.node.body[place + 1 :])
            new = (Let(BEFORE, dims, Number(0.0)), replace(site.node, body=body))
            return replace(program, body=swapped(program.body, site.node, new))
    return None
