"""Split: which loop of a kernel is cut into parts, into how many, and why one is not."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilelang import ir
from tilelang.analysis.carries import Definitions, combination, definitions
from tilelang.analysis.facts import Facts
from tilelang.codegen.triton.passes.split_reductions import FLOATS, OPS, Reduction
from tilelang.codegen.triton.target import Target
from tilelang.errors import Loc
from tilelang.ir import every_expr, statement_exprs, statements, walk
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .roles import products

# So many times as many processors as programs: then most of a GPU would have nothing to do.  What
# has products is fed ahead, and 64 programs of it were not quicker in parts on an H100.
FEW, FEW_OF_PRODUCTS = 2, 8
TWICE, WARPS = 2, 4  # programs per processor that a split aims at, of so many warps or more
TILES = 8  # that a part has at least, so that it does more than it costs to add it
MOST = 256  # parts

Reason = tuple[str, Loc]


def reduction_of(
    problem: Problem, blocks: Mapping[str, int], split: int | None
) -> Reduction | None:
    """The loop that may be split; None if there is none.

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
        none = f"{problem.ir.name} has no loops", problem.ir.loc
        what, loc = next(iter(reasons), none)
        raise Refused(Rule.CONFIG, f"split={split}, but {what}", loc, "leave split out")
    if not found:
        return None
    return max(found, key=lambda r: r.trips(r.loop.axis))


def parts_of(found: Reduction, target: Target, warps: int) -> int:
    """Parts that keep a GPU busy, 1 where it is or where there is little to do."""
    count = prod(found.trips(o.axis) for o in found.around)
    programs = max(count * min(warps, WARPS) // WARPS, 1)
    if programs * (FEW_OF_PRODUCTS if products(found.kernel) else FEW) > target.processors:
        return 1
    wanted = min(TWICE * target.processors // programs, found.trips(found.loop.axis) // TILES, MOST)
    return 1 << max(wanted.bit_length() - 1, 0)


# ---------------------------------------------------------------- legality


def _reduction(
    kernel: ir.KernelIR, facts: Facts, top: ir.Loop, blocks: Mapping[str, int]
) -> Reduction | Reason:
    """The reduction of one nest, or why it is none that can be split."""
    around, loop = list[ir.Loop](), top
    while not loop.carries:
        axis = kernel.axis(loop.axis)
        inner = [s for s in loop.body if isinstance(s, ir.Loop)]
        if not inner:
            return f"no loop inside of {axis.user} adds anything up", loop.loc
        if len(inner) > 1:
            return f"{axis.user} holds {len(inner)} loops, and one alone can be split", loop.loc
        if facts.axis(axis.name).kind != "parallel":
            return f"{axis.user} is ordered: {facts.axis(axis.name).why}", loop.loc
        if axis.static is None:
            return f"the range of {axis.user} is read from memory", loop.loc
        if axis.static[0] < 0:
            return f"{axis.user} begins before 0", loop.loc
        if any(isinstance(s, ir.Store) for s in loop.body[: loop.body.index(inner[0])]):
            return f"{axis.user} stores before {kernel.axis(inner[0].axis).user}", loop.loc
        around.append(loop)
        loop = inner[0]
    ops = _ops(loop, definitions(kernel))
    reason = _inside(kernel, loop, ops) if around else ("nothing uses what it sums up", loop.loc)
    known, free = tuple(op or "" for op in ops), _free(kernel, facts, top, loop)
    return reason or Reduction(kernel, tuple(around), loop, known, blocks, free)


def _ops(loop: ir.Loop, known: Definitions) -> list[str | None]:
    """The op of each carry, None if there is no single one that parts can be combined by."""
    carried = frozenset(c.name for c in loop.carries)
    found = ((combination(c.next, c.name, carried, known), c.init.type.dtype) for c in loop.carries)
    return [op if op in OPS and ("int" in d or d in FLOATS) else None for op, d in found]


def _free(kernel: ir.KernelIR, facts: Facts, top: ir.Loop, loop: ir.Loop) -> frozenset[str]:
    """Axes of the result of which nobody sees where one tile ends and the next begins."""
    seen = {e.axis for e in every_expr((top,)) if isinstance(e, ir.TileScalar)}
    seen |= {axis for store in facts.stores for axis in store.varies}
    seen |= {a.name for a in kernel.axes if a.fixed is not None}
    dims = {d for c in loop.carries for d in c.init.type.shape if isinstance(d, str)}
    return frozenset(dims - seen)


def _inside(kernel: ir.KernelIR, loop: ir.Loop, ops: list[str | None]) -> Reason | None:
    """What stands in the way in the loop itself."""
    user = kernel.axis(loop.axis).user
    for carry, op in zip(loop.carries, ops, strict=True):
        if op is None:
            return f"{user} carries {carry.called}, which is no sum, maximum or minimum", carry.loc
    for stmt in statements((loop,)):
        if isinstance(stmt, ir.Store):
            return f"{user} stores to {stmt.tensor}", stmt.loc
        for expr in (e for x in statement_exprs(stmt) for e in walk(x)):
            match expr:
                case ir.TileScalar(axis, "id" | "count" as what) if axis == loop.axis:
                    return f"{user}.{what} counts the tiles of the whole range", stmt.loc
                case _:
                    pass
    return None
