"""headed(program, rng) -> Program: heads that lie in the columns of inputs, seen by views.

x[h, t, c]   ->   v = x.reshape(x.shape[0], x.shape[1] // 8, 8)      the head of an open loop
                  v[t, h, c], v[t, h // 2, c], v[t, 3 - h, c]        shared ones, in other orders
x[t, c]      ->   v[t, 1, c], v[t, heads[g], c], v[t, h, c]          one, or one that memory says

for g in ...: for t in ...: y[t, c] = ...   ->   for g in ...: for h in ...: y[t, h, c] = ...
return y     ->   return y.reshape(y.shape[0], y.shape[1] * y.shape[2])
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import Site, mapped, sites
from tests.fuzzing.program import (
    Axis,
    Load,
    Loop,
    Pick,
    Program,
    Statement,
    Store,
    Tensor,
    Term,
    fitted,
    parts,
)
from tests.fuzzing.view import Step, View

MOST_RANK = 4
WRAPPED = 0.6  # of the programs without a loop that heads could be
SEEN, RETURNED = 0.7, 0.5  # of the inputs with columns; of the results
TURNED = 0.25  # of the views have heads in front


def headed(program: Program, rng: random.Random) -> Program | None:
    """The program with such inputs; None if it has none."""
    if not _heads(program) and rng.random() < WRAPPED:
        program = _around(program, rng)
    made = program
    for tensor in program.tensors:
        if tensor.role == "input" and not tensor.short and rng.random() < SEEN:
            made = _seen(made, tensor, rng)
    if made is program:
        return None
    for tensor in program.tensors:
        if tensor.role == "output" and rng.random() < RETURNED:
            made = _returned(made, tensor)
    return made


def _heads(program: Program) -> list[str]:
    """Loops over single positions that pick no ranges."""
    picking = {a.of for a in program.axes}
    return [a.name for a in program.axes if a.kind == "grid" and a.name not in picking]


def _around(program: Program, rng: random.Random) -> Program:
    """Everything is done for several heads, which are a dimension more of all that is stored to."""
    stored = {t.name for t in program.tensors if t.role in ("output", "changed")}
    uses = [p for p in parts(program.body) if isinstance(p, Load | Store) and p.tensor in stored]
    if any(len(use.index) >= MOST_RANK or use.view for use in uses) or program.views:
        return program
    head = Axis("hd", "grid", rng.randint(2, 4))

    def more(node: object) -> object:
        if not isinstance(node, Load | Store) or node.tensor not in stored:
            return node
        return replace(node, index=(Pick(head.name), *node.index))

    body = tuple(_wrapped(s, head, rng) for s in mapped(program.body, more))
    return fitted(replace(program, axes=(*program.axes, head), body=body))


def _wrapped(statement: Statement, head: Axis, rng: random.Random) -> Statement:
    """The loop of heads inside of an outermost loop over single positions, or around a nest."""
    inside = isinstance(statement, Loop) and rng.random() < 0.7
    if inside and not statement.axis.startswith("t"):
        return replace(statement, body=(Loop(head.name, statement.body),), joint=False)
    return Loop(head.name, (statement,))


def _seen(program: Program, tensor: Tensor, rng: random.Random) -> Program:
    """Every load of an input is of one of the heads that its columns are."""
    every = [s for s in sites(program.body) if isinstance(s.node, Load)]
    loads = [s for s in every if s.node.tensor == tensor.name]
    places = {_columns(program, s.node) for s in loads}
    if len(places) != 1 or None in places or any(s.node.view for s in loads):
        return program
    (place,) = places
    size = program.axis(loads[0].node.index[place].axis).size
    front, name = rng.random() < TURNED, f"h{len(program.views) + 1}_view"
    alone = len(loads) == 1 and rng.random() < 0.7
    made, found = program, list[Load]()
    for site in loads:
        made, new = _of_head(made, site, place, size, alone, rng)
        found.append(Load(tensor.name, new, name))
    rank, left = len(found[0].index), iter(found)
    place_in = rank - (len(loads[0].node.index) - place)

    def headed_one(node: object) -> object:
        return next(left) if isinstance(node, Load) and node.tensor == tensor.name else node

    made = replace(made, body=mapped(made.body, headed_one))
    steps = [Step("split", (place_in, size))]
    if front and rank > 1:
        order = [n for n in range(rank + 1) if n != place_in]
        steps.append(Step("permute", (place_in, *order)))
    view = View(name, tensor.name, tuple(steps))
    return fitted(replace(made, views=(*made.views, view)))


def _columns(program: Program, load: Load) -> int | None:
    """The dimension that is taken whole, or by tiles of fixed ranges, if one is."""
    for place, pick in enumerate(load.index):
        axis = program.axis(pick.axis) if pick.axis else None
        if axis is not None and axis.kind == "full" and pick == Pick(axis.name) and axis.size > 1:
            return place
    return None


def _of_head(
    program: Program, site: Site, place: int, size: int, alone: bool, rng: random.Random
) -> tuple[Program, tuple[Pick, ...]]:
    """The index of one head: of a loop that was a dimension, an open one, of memory, or fixed."""
    index = site.node.index
    grids = [n for n in site.open if program.axis(n).kind == "grid"]
    own = [n for n, p in enumerate(index) if p == Pick(p.axis, share=p.share) and p.axis in grids]
    how = rng.choice(("open", "open", "open", "memory", "fixed"))
    if own and alone:
        gone = rng.choice(own)
        pick, rest = index[gone], (*index[:gone], *index[gone + 1 :])
        head = _term(program, pick.axis, size, pick.share, rng)
        return program, _placed(rest, place - (gone < place), head)
    if how == "memory" and grids:
        axis, name = rng.choice(grids), f"heads{len(program.tensors)}"
        table = Tensor(name, (program.axis(axis).size,), "int32", "index", limit=rng.randint(1, 4))
        program = replace(program, tensors=(*program.tensors, table))
        return program, _placed(index, place, Pick("", terms=(Term(axis, name, size),)))
    if how == "open" and grids:
        axis = rng.choice(grids)
        return program, _placed(
            index, place, _term(program, axis, size, rng.choice((1, 1, 2)), rng)
        )
    return program, _placed(index, place, Pick("", size * rng.randint(1, 2)))


def _term(program: Program, axis: str, size: int, share: int, rng: random.Random) -> Pick:
    """Where the head of an open loop begins; perhaps that of the last one first."""
    last = (program.axis(axis).size - 1) // share
    if rng.random() < 0.15:
        return Pick("", size * last, terms=(Term(axis, "", -size, share=share),))
    return Pick("", terms=(Term(axis, "", size, share=share),))


def _placed(index: tuple[Pick, ...], place: int, head: Pick) -> tuple[Pick, ...]:
    columns = replace(index[place], shift=head.shift, terms=head.terms)
    return (*index[:place], columns, *index[place + 1 :])


def _returned(program: Program, tensor: Tensor) -> Program:
    """Heads of a result stand before its columns, and are returned as columns."""
    uses = [p for p in parts(program.body) if isinstance(p, Load | Store)]
    uses = [p for p in uses if p.tensor == tensor.name]
    kinds = {a.name: a.kind for a in program.axes}
    found = {tuple(kinds.get(p.axis, "") for p in use.index) for use in uses}
    seen = any(v.tensor == tensor.name for v in program.views)
    if len(found) != 1 or seen:
        return program
    (own,) = found
    if own[-1] != "full" or "grid" not in own:
        return program
    head, rank = own.index("grid"), len(own)
    order = [n for n in range(rank) if n not in (head, rank - 1)] + [head, rank - 1]

    def turned(node: object) -> object:
        if not isinstance(node, Load | Store) or node.tensor != tensor.name:
            return node
        return replace(node, index=tuple(node.index[n] for n in order))

    view = View(
        f"r{len(program.views) + 1}_view", tensor.name, (Step("join", (rank - 2,)),), "alone"
    )
    body = mapped(program.body, turned)
    return fitted(replace(program, body=body, views=(*program.views, view)))
