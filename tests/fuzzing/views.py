"""viewed(program, rng) -> Program: arrays are read and returned in other forms than as they lie.

v = x.T; w = y.reshape(y.shape[0] * y.shape[1])      before the loops, of any array
... v[c, t] ... x[t, 2:10]                           some loads of it, or all; parts of dimensions
v[c, t] = ...                                        or stores, of an output all of them
return w                                             or y and w

rewritten(rng) -> Program: an array is read, stored to, and read again, in loops that follow.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.fuzzing.changes import mapped
from tests.fuzzing.program import (
    Axis,
    Binary,
    Load,
    Number,
    Pick,
    Program,
    Statement,
    Store,
    Tensor,
    Value,
    fitted,
    parts,
    pruned,
)
from tests.fuzzing.small import COLUMNS, SIZES, nest
from tests.fuzzing.text import source
from tests.fuzzing.view import Step, View

SEEN, RETURNED = 0.6, 0.4  # of the arrays that are loaded; of the results
EACH = 0.8  # of the loads of such an array
STORED = 0.35  # of the arrays that are stored to
SLICED = 0.25  # of the programs with a dimension that is taken whole


def viewed(program: Program, rng: random.Random) -> Program | None:
    """The program with views; None if it has none then."""
    program = replace(program, views=())
    if rng.random() < SLICED:
        program = _sliced(program, rng)
    for tensor in program.tensors:
        if rng.random() < SEEN and _loads(program, tensor):
            program = _read(program, tensor, rng)
        if tensor.role in ("output", "changed") and rng.random() < RETURNED:
            program = _returned(program, tensor, rng)
    for tensor in program.tensors:
        if tensor.role in ("output", "changed") and rng.random() < STORED:
            program = _kept(program, tensor, rng)
    return program if program.views else None


def _loads(program: Program, tensor: Tensor) -> list[Load]:
    loads = (p for p in parts(program.body) if isinstance(p, Load))
    return [p for p in loads if p.tensor == tensor.name]


def _read(program: Program, tensor: Tensor, rng: random.Random) -> Program:
    """Some loads of an array are by a view, where they can be."""
    view = View(_name(program, "v"), tensor.name, _steps(tensor, rng))
    whole = program
    for place in range(len(_loads(program, tensor))):
        if rng.random() < EACH:
            body = _seen(whole, tensor.name, place, view.name)
            made = replace(whole, body=body, views=(*program.views, view))
            whole = made if _printable(made) else whole
    return whole


def _kept(program: Program, tensor: Tensor, rng: random.Random) -> Program:
    """Some stores to an array, and loads of it, are by a view that has its dimensions.

    Or all stores to an output by one that joins or splits some.
    """
    steps = _steps(tensor, rng)
    other = any(step.how not in ("permute", "new") for step in steps)
    if other and (tensor.role != "output" or steps[0].how == "permute"):
        return program
    view = View(_name(program, "s"), tensor.name, steps)
    likely = {Store: 1.0 if other else EACH, Load: rng.choice((0.0, 0.5, 1.0))}

    def change(node: Any) -> Any:
        if not isinstance(node, Load | Store) or node.tensor != tensor.name or node.view:
            return node
        return replace(node, view=view.name) if rng.random() < likely[type(node)] else node

    body = mapped(program.body, change)
    made = replace(program, body=body, views=(*program.views, view))
    return pruned(made) if _printable(made) else program


def _seen(program: Program, name: str, place: int, view: str) -> Any:
    """One of the loads of an array is by a view."""
    left = place

    def change(node: Any) -> Any:
        nonlocal left
        if not isinstance(node, Load) or node.tensor != name:
            return node
        left -= 1
        return replace(node, view=view) if left == -1 else node

    return mapped(program.body, change)


def _returned(program: Program, tensor: Tensor, rng: random.Random) -> Program:
    how = rng.choice(("alone", "alone", "beside"))
    view = View(_name(program, "r"), tensor.name, _steps(tensor, rng), how)
    made = replace(program, views=(*program.views, view))
    return made if _printable(made) else program


def _name(program: Program, letter: str) -> str:
    return f"{letter}{len(program.views) + 1}_view"


def _printable(program: Program) -> bool:
    try:
        source(program)
    except (ValueError, KeyError, IndexError):
        return False
    return True


def _steps(tensor: Tensor, rng: random.Random) -> tuple[Step, ...]:
    """One step, or two."""
    shape, found = tensor.shape, list[Step]()
    for _ in range(rng.choice((1, 1, 1, 2))):
        step = rng.choice(list(_able(shape, tensor, rng)))
        shape, found = View("", "", (step,)).shape(shape), [*found, step]
    return tuple(found)


def _able(shape: Sequence[int], tensor: Tensor, rng: random.Random) -> Iterator[Step]:
    """Steps that an array of this shape can take: what is short is not joined, or nothing is."""
    rank = len(shape)
    yield Step("new", (rng.randint(0, rank),))
    if rank > 1:
        order = tuple(rng.sample(range(rank), rank))
        swap = rng.sample(range(rank), 2)
        turned = tuple(swap[1 - swap.index(n)] if n in swap else n for n in range(rank))
        yield from [Step("permute", turned)] * 2
        yield Step("permute", order)
    if rank > 1 and not tensor.short:
        yield from [Step("join", (rng.randint(0, rank - 2),))] * 2
    for place, size in enumerate(shape):
        rows = [n for n in (2, 3, 4, 8) if size % n == 0]
        yield from (Step("split", (place, rng.choice(rows))) for _ in rows[:1])


def _sliced(program: Program, rng: random.Random) -> Program:
    """Of some array a part of a whole dimension is used, which begins behind its first position."""
    whole = {a.name for a in program.axes if a.kind == "full"}
    uses = [p for p in parts(program.body) if isinstance(p, Load | Store)]
    able = {p.tensor for p in uses if any(pick.axis in whole for pick in p.index)}
    if not able:
        return program
    name, shift = rng.choice(sorted(able)), rng.choice((1, 2, 8))

    def behind(pick: Pick) -> Pick:
        return replace(pick, shift=shift) if pick.axis in whole else pick

    def change(node: Any) -> Any:
        if not isinstance(node, Load | Store) or node.tensor != name:
            return node
        return replace(node, index=tuple(map(behind, node.index)))

    made = fitted(replace(program, body=mapped(program.body, change)))
    return made if _printable(made) else program


# ---------------------------------------------------------------- read, stored to, read again


def rewritten(rng: random.Random) -> Program:
    """Loops in a row, some of which read an array and the others store to it."""
    group, rows = Axis("g", "grid", rng.randint(1, 4)), rng.choice(SIZES)
    columns = rng.choice((COLUMNS, replace(COLUMNS, kind="tile", size=rng.choice(SIZES))))
    ragged = Axis("t", "tile", rows, "o", "g")
    tensors = [
        Tensor("o", (group.size + 1,), "int32", "offsets", limit=rows),
        Tensor("y", (), "float32", "changed"),  # what is read again was not rounded
        Tensor("x", (), "float32", "input"),
    ]
    if rng.random() < 0.25:
        tensors[1] = replace(tensors[1], role="output", fill=1.5)
    plain = Axis("s", "tile", rows)
    singles = Axis("i", "grid", rows)
    planes = (Pick(group.name),) if rng.random() < 0.4 else ()
    found, body = list[Tensor](), list[Statement]()
    for place, kind in enumerate(rng.choice(("rsr", "sr", "srsr", "rssr", "rs"))):
        own = rng.choice((ragged, plain, singles))
        axes = (group, own) if planes or own == ragged else (own,)
        axes = (*axes, *((columns,) if columns.kind == "tile" else ()))
        index = (*planes, Pick(own.name), Pick("c"))
        if kind == "s":
            body += nest(axes, (_changing(index, rng),))
            continue
        name = f"z{place}"
        body += nest(axes, (Store(name, index, _reading(index, rng)),))
        found.append(Tensor(name, (), "float32", "output", 0.0))
    every = (group, ragged, plain, singles, columns)
    return fitted(pruned(Program(every, (*tensors, *found), tuple(body))))


def _changing(index: tuple[Pick, ...], rng: random.Random) -> Statement:
    """x replaces what is there, or is added; or it is twice what it was."""
    there, other = Load("y", index), Load("x", index)
    combine = rng.choice(("sum", "max", ""))
    if combine:
        return Store("y", index, other, combine)
    twice, apart = Binary("*", there, Number(2.0)), Binary("-", other, there)
    return Store("y", index, rng.choice((other, Binary("+", there, other), twice, apart)))


def _reading(index: tuple[Pick, ...], rng: random.Random) -> Value:
    """What is there, or more."""
    there, other = Load("y", index), Load("x", index)
    values: list[Value] = [there, Binary("+", there, other), Binary("*", there, Number(0.5))]
    return rng.choice(values)
