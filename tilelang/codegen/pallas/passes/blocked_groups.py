"""Blocked groups: what all loops over groups have in common that become loops over blocks of them.

    for g in grid(G): for tm in tile(offsets[g], offsets[g + 1])
 -> for g in tile(G): for tm in tile(first row, end of all)

Where the rows of a block begin and end stands in `spans`, first where all blocks begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NoReturn

from tilelang import ir
from tilelang.analysis.facts import AxisFact, Facts, PositionFact
from tilelang.errors import Loc
from tilelang.ir import At, Expr, Load, integers
from tilelang.ir.names import names_in, unique
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

Refuse = Callable[[str, Loc | None], NoReturn]


def refuse(axis: ir.Axis, hint: str, why: str, loc: Loc | None) -> NoReturn:
    """Says why a loop has no blocks; `hint` says which loops do."""
    raise Refused(
        Rule.CONFIG,
        f"{axis.user} cannot have a block: {why}",
        loc,
        f"leave the block of {axis.name} out; {hint}",
    )


def check_range(problem: Problem, axis: ir.Axis, no: Refuse) -> None:
    """Refused unless the iterations of a loop are independent, and their number is known."""
    fact = problem.fact(axis.name)
    if axis.static is None or axis.static[0] != 0 or axis.static[1] < 1:
        no("its indices do not go from 0 to a number that shapes give", axis.loc)
    if fact.kind != "parallel":
        no(f"it is ordered, because {fact.why}", axis.loc)


def check_loop(problem: Problem, axis: ir.Axis, helpers: frozenset[str], no: Refuse) -> None:
    """Refused unless groups are independent, and their number is known.

    `helpers` are functions that the generated source would have.
    """
    taken = names_in(problem.ir) | {problem.ir.name}
    if all(loop.axis != axis.name for loop in problem.ir.body):
        no("its loop stands inside of another one", axis.loc)
    check_range(problem, axis, no)
    if clash := helpers & taken:
        no(f"the generated source has a function {min(clash)} of its own", axis.loc)


def check_kept(kernel: ir.KernelIR, table: str, rows: ir.Axis, no: Refuse) -> None:
    """Refused where the kernel changes the tensor that says where rows are."""
    if kernel.root(table) in kernel.stored():
        no(f"the kernel changes {table}, which says where rows are", rows.loc)


def count_of(axis: ir.Axis) -> int:
    """How many groups there are."""
    return axis.static[1] if axis.static is not None else 0


def view_of(kernel: ir.KernelIR, view: ir.View, suffix: str, length: int) -> ir.Tensor:
    """What is made of a tensor of offsets, as a tensor that the new kernel reads."""
    return kernel.tensor(view.source).seen(unique(kernel, view.source, suffix), view, (length,))


def span(axis: ir.Axis, spans: ir.Tensor) -> tuple[Load, Load]:
    """Where the rows of a block of groups begin and end."""
    first: Expr = ir.TileScalar(axis.name, "id")
    stop = integers.add(first, integers.const(spans.shape[0] // 2))
    begin, end = (Load(spans.name, (At(at),), integers.INT) for at in (first, stop))
    return begin, end


def facts_of_blocks(
    facts: Facts,
    name: str,
    why: str,
    rows: Collection[str],
    spans: ir.Tensor,
    edges: tuple[Load, Load],
    apart: bool,
) -> Facts:
    """What was proved of every group holds of blocks: their rows are as disjoint as the groups'.

    why    the sentence that says what a step does
    rows   the loops over rows of groups
    apart  whether anybody needs to know that those of blocks are disjoint
    """

    def changed(fact: AxisFact) -> AxisFact:
        if fact.name == name:
            return replace(fact, why=f"{fact.why}; {why}", limit=None)
        if fact.name in rows:
            rises = fact.rises if apart else ()
            return replace(fact, depends=(name,), rises=rises, nonempty=False, independent=False)
        return fact

    size = spans.shape[0]
    places = (at.expr for edge in edges for at in edge.index if isinstance(at, At))
    proved = (PositionFact(e, size, "proved", "as many blocks", "", spans.loc) for e in places)
    axes = tuple(map(changed, facts.axes))
    return replace(facts, axes=axes, positions=(*facts.positions, *proved))
