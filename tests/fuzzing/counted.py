"""counted(rng) -> Program: something for each tile, y[t.id], in blocks that nobody fixed.

How many tiles there are is the config's: `cut(program, blocks)` is what the program means in its
blocks.  Arrays hold as many tiles as blocks of USUAL make, or fewer: where a config makes more the
call is refused, whatever conditions and lengths in memory leave out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from tests.fuzzing.program import (
    Axis,
    Binary,
    If,
    Load,
    Mask,
    Pick,
    Program,
    Reduce,
    Statement,
    Store,
    Tensor,
    Term,
    fitted,
    parts,
    pruned,
)
from tests.fuzzing.small import SIZES, nest


def open_numbers(program: Program) -> frozenset[str]:
    """Axes whose tiles are counted, in a block that is the plan's."""
    picks = (p for p in parts(program.body) if isinstance(p, Pick) and p.number)
    return frozenset(p.axis for p in picks if not program.axis(p.axis).block)


def cut(program: Program, blocks: Mapping[str, int]) -> Program:
    """What the program means in these blocks."""
    own = {a: b for a, b in blocks.items() if a in open_numbers(program)}
    axes = tuple(replace(a, block=own.get(a.name, a.block)) for a in program.axes)
    return replace(program, axes=axes) if own else program


def counted(rng: random.Random) -> Program:
    """Sums of tiles, or rows times a number of their tile; some only where memory says so."""
    rows, ragged = rng.choice(SIZES), rng.random() < 0.4
    tensors: list[Tensor] = []
    outer = [Axis("g", "grid", rng.randint(1, 4))] if ragged or rng.random() < 0.5 else []
    over = Axis("t", "tile", rows)
    if ragged:  # whose tiles are counted from 0 in an array of each: moved ones have no numbers
        tensors.append(Tensor("n1", (outer[0].size,), "int32", "index", limit=rows + 1))
        over = replace(over, length="n1", of="g")
    place = Pick("t", number=True, shift=rng.choice((0, 0, 1)), factor=rng.choice((1, 1, 1, 2)))
    some = tuple(Pick(a.name) for a in outer)
    source = Load("x1", (*some, Pick("t")) if rng.random() < 0.5 else (Pick("t"),))
    tensors += [Tensor("x1", (), "float32", "input")]
    if rng.random() < 0.7:
        value = Reduce(rng.choice(("sum", "max")), "t", source)
        store = Store("y1", (*some, place), value, masks=_masks(place, tensors, rng))
        tensors.append(Tensor("y1", (), "float32", "output", rng.choice((0.0, 3.0, None))))
    else:  # another row for each tile: its block is the author's
        over = replace(over, block=rng.choice((4, 8, 16)))
        scale = Load("scale1", (*some, place))
        tensors.append(Tensor("scale1", (), "float32", "input"))
        store = Store("y1", (*some, Pick("t")), Binary("*", source, scale))
        tensors.append(Tensor("y1", (), "float32", "output", 0.0))
    body: tuple[Statement, ...] = (store,)
    if rng.random() < 0.4:
        body = (If(_number(tensors), rng.choice((1, 2)), body),)
    return fitted(pruned(Program((*outer, over), tuple(tensors), nest((*outer, over), body))))


def _masks(place: Pick, tensors: list[Tensor], rng: random.Random) -> tuple[Mask, ...]:
    """None, or by a number in memory, or the author's word which tiles are meant."""
    match rng.choice(("none", "none", "memory", "which")):
        case "memory":
            return (Mask(Pick("", terms=(_number(tensors),)), rng.choice((1, 2))),)
        case "which":
            return (Mask(place, rng.randint(1, 4)),)
        case _:
            return ()


def _number(tensors: list[Tensor]) -> Term:
    """0, 1 or 2, in memory."""
    name = f"s{len(tensors)}"
    tensors.append(Tensor(name, (), "int32", "index", limit=3))
    return Term("", name)
