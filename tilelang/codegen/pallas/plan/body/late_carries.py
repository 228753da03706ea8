"""Late carries: constants that loops begin with, in as many registers as what comes of them.

    for t carrying a = 0, b = 0   ->   for t carrying a = where(row + lane >= 0, 0, 1), b = 0
        next a = b                         next a = b
        next b = a + x[t]                  next b = a + x[t]

Mosaic holds a constant once for all positions.  What it becomes in a loop is looked at twice: a
carry that is made of constants alone in the first turn, and of other carries that no longer are in
the second, it would have to hold once again.  The same of what an earlier loop made of constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tilelang.codegen.pallas.plan.physical import (
    Bind,
    Inner,
    InnerCarry,
    Iota,
    PExpr,
    PStmt,
    flat,
    physical_children,
)
from tilelang.ir import Apply, Const, Type, Var
from tilelang.language.dtypes import to_numpy, wide_of
from tilelang.language.evaluate import compute
from tilelang.language.op import ELEMENTWISE, SAME

from .layouts import apply

Values = Mapping[str, PExpr]


def spread_late_carries(body: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """The statements, with the constants spread that carries begin with and come late to others."""
    every = tuple(flat(body))
    loops = [s for s in every if isinstance(s, Inner)]
    made = {s.name: s.value for s in every if isinstance(s, Bind)}
    made |= {c.name: c.init for s in loops for c in s.carries}
    values = made | _left(body, made)
    late = {_origin(c, made) for s in loops for c in _late(s, values)}
    return tuple(_spread(stmt, late) for stmt in body) if late else body


def _left(body: tuple[PStmt, ...], values: Values) -> dict[str, PExpr]:
    """What loops leave of carries that are made of constants in every turn: as what they began."""
    found: dict[str, PExpr] = {}
    for loop in (s for s in body if isinstance(s, Inner)):  # inner ones and earlier ones first
        found |= _left(loop.body, {**values, **found})
        found |= {c.out: c.init for c in _turns(loop, {**values, **found})[1]}
    return found


def _late(loop: Inner, values: Values) -> Iterator[InnerCarry]:
    """Carries that are made of constants in the first turn, and of others in a later one."""
    first, always = _turns(loop, values)
    if loop.form == "fori_loop":
        yield from (c for c in first if c not in always)


def _turns(loop: Inner, values: Values) -> tuple[list[InnerCarry], list[InnerCarry]]:
    """The carries that are made of constants in the first turn, and those that are in every one."""

    def alike(carries: list[InnerCarry]) -> list[InnerCarry]:
        filled = {c.name for c in loop.carries if c not in carries}
        return [c for c in carries if _alike(c.next, values, filled)]

    able = [c for c in loop.carries if not _single(c.init)]
    once = first = alike([c for c in able if _alike(c.init, values, ())])
    while (still := alike(once)) != once:
        once = still
    return first, once


def _alike(expr: PExpr, values: Values, filled: Collection[str]) -> bool:
    """Whether a value is the same at all positions, by how it is made: none of `filled` is."""
    match expr:
        case Var(name) if not _single(expr):
            return name not in filled and name in values and _alike(values[name], values, filled)
        case Const() | Apply():
            return all(_alike(e, values, filled) for e in physical_children(expr))
        case _:
            return _single(expr)


def _single(expr: PExpr) -> bool:
    return all(d == 1 for d in expr.type.shape)


def _origin(carry: InnerCarry, made: Values) -> str:
    """The name that the constant has first: of the carry, or of what it begins as.

    What an earlier loop left is spread behind that loop, which holds it once in every turn.
    """
    name = carry.name
    while isinstance(init := made.get(name), Var) and init.name in made:
        name = init.name
    return name


def _spread(stmt: PStmt, late: Collection[str]) -> PStmt:
    match stmt:
        case Bind(name) if name in late:
            return replace(stmt, value=_everywhere(stmt.value))
        case Inner():
            carries = tuple(
                replace(c, init=_everywhere(c.init)) if c.name in late else c for c in stmt.carries
            )
            return replace(stmt, carries=carries, body=tuple(_spread(s, late) for s in stmt.body))
        case _:
            return stmt


def _everywhere(value: PExpr) -> PExpr:
    """A value that is the same everywhere, chosen position by position, in 32 bits."""
    shape, dtype = value.type.shape, value.type.dtype
    kind, wide = Type(shape, "int32"), wide_of(dtype)
    last = [d for d in range(len(shape))[-2:] if shape[d] != 1]
    row, *lane = (Iota(d, kind) for d in last)
    place: PExpr = apply("add", (row, lane[0]), shape, "int32") if lane else row
    there = apply("ge", (place, Const(0, Type((), "int32"))), shape, "bool")
    other = Const(0 if _number(value) else 1, Type((), wide))
    if wide == dtype:
        return apply("where", (there, value, other), shape, dtype)
    chosen = there, apply("cast", (value,), shape, wide), other
    return apply("cast", (apply("where", chosen, shape, wide),), shape, dtype)


def _number(value: PExpr) -> object:
    """What it is everywhere, as a compiler folds it; 0 where that is read from memory."""
    match value:
        case Const(number):
            return number
        case Apply("full"):
            return value.attr("value")
        case Apply(op, (inner,)) if op in SAME:
            return _number(inner)
        case Apply(op, args) if op in ELEMENTWISE:
            numbers = tuple(np.asarray(_number(a)).astype(to_numpy(a.type.dtype)) for a in args)
            with np.errstate(all="ignore"):  # log(0) is what it is on a device
                return compute(op, numbers, value.type.dtype, (), value.attrs).item()
        case _:
            return 0
