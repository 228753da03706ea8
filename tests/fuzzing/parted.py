"""parted(program, rng): a loop over tiles whose body goes through each tile in tiles of its own.

    for t in hl.tile(16):   ->   for t in hl.tile(16):
        y[t] = x[t]                  for t_part in hl.tile(t.begin, t.end):
                                         y[t_part] = x[t_part]

Where its range is that of a group, the group may get a number besides: also one without rows.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

from tests.fuzzing.changes import sites
from tests.fuzzing.program import (
    Loop,
    Mask,
    Pick,
    Program,
    Scalar,
    Statement,
    Store,
    Tensor,
    Term,
    TileNumber,
    Value,
    fitted,
    parts,
)

NUMBERED = 0.5  # of the loops over ranges of groups
NAMED = ("axis", "rows", "columns")  # fields that hold the name of an axis


def parted(program: Program, rng: random.Random) -> Program | None:
    """The program with one such loop; None where no loop over tiles is by itself."""
    numbered = {p.axis for p in parts(program.body) if isinstance(p, TileNumber)}
    numbered |= {p.axis for p in parts(program.body) if isinstance(p, Pick) and p.number}
    numbered |= {a.until for a in program.axes} | {a.inside for a in program.axes}
    able = [
        site.node
        for site in sites(program.body)
        if isinstance(site.node, Loop) and program.axis(site.node.axis).kind == "tile"
    ]
    able = [s for s in able if s.axis not in numbered and _alone(program, s.axis)]
    if not able:
        return None
    loop = rng.choice(able)
    axis, name = program.axis(loop.axis), f"{loop.axis}_part"
    inner = replace(axis, name=name, inside=axis.name, bounded=rng.random() < 0.5, block=0)

    number, tensors = (), program.tensors
    if axis.offsets and rng.random() < NUMBERED:
        number = (Store("number", (Pick(axis.of),), Scalar(Term(axis.of))),)
        tensors = (*tensors, Tensor("number", (), "float32", "output", -1.0))

    def split(node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple(new for e in node for new in _listed(split(e)))
        if node is loop:
            body = _renamed(loop.body, axis.name, name)
            return (Loop(axis.name, (Loop(name, body),)), *number)
        if not isinstance(node, Statement):
            return node
        return replace(node, **{f.name: split(getattr(node, f.name)) for f in fields(node)})

    axes = tuple(
        new
        for a in program.axes
        for new in ((replace(a, bounded=True), inner) if a == axis else (a,))
    )
    return fitted(replace(program, axes=axes, tensors=tensors, body=split(program.body)))


def _listed(node: Any) -> tuple[Any, ...]:
    return node if isinstance(node, tuple) else (node,)


def _alone(program: Program, name: str) -> bool:
    """Whether it is no causal loop, and the only one over its axis."""
    loops = [p for p in parts(program.body) if isinstance(p, Loop) and p.axis == name]
    axis = program.axis(name)
    return len(loops) == 1 and not (axis.until or axis.inside)


def _renamed(node: Any, old: str, new: str) -> Any:
    """The same with another axis, wherever it is named."""
    if isinstance(node, tuple):
        return tuple(_renamed(entry, old, new) for entry in node)
    if isinstance(node, str):
        return node
    if not isinstance(node, Statement | Value | Pick | Mask | Term):
        return node
    made = {f.name: _renamed(getattr(node, f.name), old, new) for f in fields(node)}
    made |= {n: new for n in NAMED if made.get(n) == old}
    if "dims" in made:
        made["dims"] = tuple(new if d == old else d for d in made["dims"])
    return replace(node, **made)
