"""Split: which loop of a kernel is cut into parts, into how many, and why one is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tilelang.analysis.carries import Definitions, combination, definitions
from tilelang.analysis.facts import Facts
from tilelang.codegen.triton.passes.split_reductions import NEUTRAL, Reduction
from tilelang.codegen.triton.target import Target
from tilelang.errors import Loc
from tilelang.ir import (
    Assign,
    KernelIR,
    Loop,
    Store,
    TileScalar,
    statement_exprs,
    statements,
    walk,
)
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

FEW = 8  # times as many processors as programs: then most of a GPU would have nothing to do
TWICE = 2  # programs per processor that a split aims at
TILES = 8  # that a part has at least, so that it does more than it costs to add it
MOST = 256  # parts

Reason = tuple[str, Loc]


def reduction_of(
    problem: Problem, blocks: Mapping[str, int], target: Target, split: int | None
) -> tuple[Reduction, int] | None:
    """The loop that is split and into how many parts; None if there is none.

    Of several loops it is the one with the most tiles.  Refused where the config asks for parts
    and no loop can have any.
    """
    if split == 1:
        return None
    found, reasons = list[Reduction](), list[Reason]()
    for top in problem.ir.body:
        made = _reduction(problem.ir, problem.facts, top, blocks)
        if isinstance(made, Reduction):
            found.append(made)
        else:
            reasons.append(made)
    if not found and split is not None:
        what, loc = reasons[0]
        raise Refused(Rule.CONFIG, f"split={split}, but {what}", loc, "leave split out")
    if not found:
        return None
    longest = max(found, key=lambda r: r.trips(r.loop.axis))
    parts = split or _parts(longest, target)
    return (longest, parts) if parts > 1 else None


def _parts(found: Reduction, target: Target) -> int:
    """Parts that keep a GPU busy, 1 where it is or where there is little to do."""
    programs = max(prod(found.trips(o.axis) for o in found.around), 1)
    if programs * FEW > target.processors:
        return 1
    wanted = min(TWICE * target.processors // programs, found.trips(found.loop.axis) // TILES, MOST)
    return 1 << max(wanted.bit_length() - 1, 0)


# ---------------------------------------------------------------- legality


def _reduction(
    ir: KernelIR, facts: Facts, top: Loop, blocks: Mapping[str, int]
) -> Reduction | Reason:
    """The reduction of one nest, or why it is none that can be split."""
    around, loop = list[Loop](), top
    while not loop.carries:
        axis = ir.axis(loop.axis)
        inner = [s for s in loop.body if isinstance(s, Loop)]
        if len(inner) != 1:
            return f"{axis.user} holds {len(inner) or 'no'} loops, not one that is summed", loop.loc
        if facts.axis(axis.name).kind != "parallel":
            return f"{axis.user} is ordered: {facts.axis(axis.name).why}", loop.loc
        if axis.static is None:
            return f"the range of {axis.user} is read from memory", loop.loc
        around.append(loop)
        loop = inner[0]
    if around and any(isinstance(s, Store) for s in _before(around)):
        return f"something is stored before {ir.axis(loop.axis).user}", loop.loc
    ops = _ops(loop, definitions(ir))
    reason = _inside(ir, facts, loop, ops)
    return reason or Reduction(ir, tuple(around), loop, tuple(op or "" for op in ops), blocks)


def _before(around: list[Loop]) -> Iterator[object]:
    """The statements before the next loop, and after it where that is not the innermost."""
    for number, outer in enumerate(around):
        place = next(n for n, s in enumerate(outer.body) if isinstance(s, Loop))
        yield from outer.body[:place]
        if number + 1 < len(around):
            yield from outer.body[place + 1 :]


def _ops(loop: Loop, known: Definitions) -> list[str | None]:
    """The op of each carry, None if there is no single one that parts can be combined by."""
    carried = frozenset(c.name for c in loop.carries)
    found = (combination(c.next, c.name, carried, known) for c in loop.carries)
    return [op if op in NEUTRAL else None for op in found]


def _inside(ir: KernelIR, facts: Facts, loop: Loop, ops: list[str | None]) -> Reason | None:
    """What stands in the way in the loop itself."""
    user = ir.axis(loop.axis).user
    for carry, op in zip(loop.carries, ops, strict=True):
        if op is None:
            return f"{user} carries {carry.user}, which is no sum, maximum or minimum", carry.loc
    for stmt in statements(loop.body):
        if isinstance(stmt, Store):
            return f"{user} stores to {stmt.tensor}", stmt.loc
    for stmt in statements((loop,)):
        for expr in (e for x in statement_exprs(stmt) for e in walk(x)):
            numbered = isinstance(expr, TileScalar) and expr.what in ("id", "count")
            if numbered and expr.axis == loop.axis:
                loc = stmt.loc if isinstance(stmt, Assign | Store) else loop.loc
                return f"{user}.{expr.what} counts the tiles of the whole range", loc
    return None
