"""sliced(program, rng), permuted(program, rng): groups that memory puts in another order.

    hl.tile(offsets[g], offsets[g + 1])   ->   hl.tile(begins[g], begins[g] + counts[g])

    for g in hl.grid(5): ...              ->   for g_turn in hl.grid(4):
                                                   g = order[g_turn]

Ranges that have a length of their own may lie anywhere, and one on the other; an order may leave
out positions, or come to one twice.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import Loop, Pick, Program, Tensor, Term, parts


def sliced(program: Program, rng: random.Random) -> Program | None:
    """The program with such ranges where nothing else reads their ends; None without any."""
    read = {p.tensor for p in parts(program.body) if isinstance(p, Term)}
    read |= {a.offsets for a in program.axes if a.page != 1 or (a.local and a.until)}
    able = sorted({a.offsets for a in program.axes if a.offsets} - read)
    if not able:
        return None
    old = program.tensor(rng.choice(able))
    begins, counts = (
        Tensor(name, (old.shape[0] - 1,), "int32", "index", limit=old.limit + 1)
        for name in (f"begins_{old.name}", f"counts_{old.name}")
    )
    axes = (
        replace(a, offsets=begins.name, counts=counts.name) if a.offsets == old.name else a
        for a in program.axes
    )
    tensors = (new for t in program.tensors for new in ((begins, counts) if t == old else (t,)))
    return replace(program, axes=tuple(axes), tensors=tuple(tensors))


def permuted(program: Program, rng: random.Random) -> Program | None:
    """The program with one such loop over a static range of single positions; None without any."""
    looped = {p.axis for p in parts(program.body) if isinstance(p, Loop)}
    through = {p.axis for p in parts(program.body) if isinstance(p, Pick) and p.through}
    able = [a for a in program.axes if a.kind == "grid" and a.name in looped - through]
    able = [a for a in able if not (a.offsets or a.length or a.until or a.order)]
    if not able:
        return None
    axis = rng.choice([a for a in able if any(a.name == b.of for b in program.axes)] or able)
    name = f"order_{axis.name}"
    turns = rng.choice((axis.size, axis.size, axis.size, max(axis.size - 1, 1), axis.size + 2))
    table = Tensor(name, (turns,), "int32", "index", limit=axis.size)
    axes = tuple(replace(a, order=name) if a == axis else a for a in program.axes)
    return replace(program, axes=axes, tensors=(table, *program.tensors))
