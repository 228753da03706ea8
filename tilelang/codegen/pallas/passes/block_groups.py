"""Block groups: a loop over groups, of which each has rows of its own, -> one over blocks of them.

    for g in grid(G):                                   for g in tile(G):
        for tm in tile(offsets[g], offsets[g + 1]): ->      for tm in tile(first row, end of all):
            acc += sum(x[tm, tf])                               acc += group_sum(member, x[tm, tf])
        y[g, tf] = acc                                      y[g, tf] = acc

What a group has one of gets a dimension of groups in front; member[g, tm] says which row is whose.
A step has the rows of all groups of its block, where a short group took a step of its own.  Loops
in a row go through the rows of all groups of a block one after another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NoReturn

from tilelang import ir
from tilelang.analysis.facts import AxisFact, Facts, PositionFact
from tilelang.analysis.placed import root
from tilelang.errors import Loc
from tilelang.ir import Expr, integers
from tilelang.ir.names import names_in
from tilelang.ir.traversal import definitions, inlined
from tilelang.passes.drop_unused import drop_unused
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .lifted_groups import Lifted, moved

WHY = "a step has the rows of all in its block"
HELPERS = frozenset({"group_sums", "spans_of"})  # functions of the generated source
BLOCKS, SHORT = (128, 256), 64  # groups of a block: the second where they have fewer rows than that
LOOSE = 16_384  # rows of a table of steps that take an eighth of the scalar memory


def block_groups(problem: Problem, name: str, block: int) -> Problem:
    """The kernel with blocks of so many iterations of an `hl.grid` loop, and what is true of it.

    Raises Refused where that loop does more than to sum rows of its own, and to look at them again.
    """
    kernel, axis = problem.ir, problem.axis(name)
    _check_loop(problem, axis)
    loops, table = _ranges(problem, axis)
    groups = axis.static[1] if axis.static is not None else 0
    rows = frozenset(a.name for a in loops)
    run = Lifted(problem, axis, groups, rows, table, partial(_refuse, axis))
    body = tuple(
        replace(loop, body=run.body(loop.body)) if loop.axis == name else loop
        for loop in kernel.body
    )
    view = ir.View(table, "spans", (block, groups))
    spans = run.viewed(table, view, "spans", 2 * -(-groups // block))
    first: Expr = ir.TileScalar(name, "id")
    stop = integers.add(first, integers.const(spans.shape[0] // 2))
    begin, end = (ir.Load(spans.name, (ir.At(at),), integers.INT) for at in (first, stop))
    changed = {name: replace(axis, kind="tile", block=block, max_extent=groups)}
    for each in loops:
        changed[each.name] = replace(
            each, begin=begin, end=end, max_extent=_most(problem, each, block)
        )
    axes = tuple(changed.get(a.name, a) for a in kernel.axes)
    bounds = [b for a in axes for b in (a.begin, a.end)]
    tensors = (*kernel.tensors, *run.views.values())
    made = replace(kernel, tensors=tensors, axes=axes, body=drop_unused(body, bounds))
    most = max(problem.extent(each.name) for each in loops)
    loose = -(-groups // block) * -(-most // 128) <= LOOSE and not _stored(kernel, rows)
    return Problem(made, _facts(problem.facts, name, rows, (first, stop), spans, loose))


def of_groups(problem: Problem, name: str) -> Problem:
    """The same with a block that suits groups of this length in the mean."""
    (rows, *_), _ = _ranges(problem, problem.axis(name))
    count = (problem.axis(name).static or (0, 1))[1]
    short = problem.extent(rows.name) < SHORT * count
    return block_groups(problem, name, BLOCKS[short])


def _facts(
    facts: Facts,
    name: str,
    rows: Iterable[str],
    positions: tuple[Expr, ...],
    spans: ir.Tensor,
    loose: bool,
) -> Facts:
    """What was proved of every group holds of blocks: their rows are as disjoint as the groups'.

    `loose`: nobody is told so.  Then the table of steps has room for blocks that all span
    everything, as wild offsets make them.
    """

    def changed(fact: AxisFact) -> AxisFact:
        if fact.name == name:
            return replace(fact, why=f"{fact.why}; {WHY}", limit=None)
        if fact.name in rows:
            rises = () if loose else fact.rises
            return replace(fact, depends=(name,), rises=rises, nonempty=False)
        return fact

    size = spans.shape[0]
    proved = (PositionFact(e, size, "proved", "as many blocks", "", spans.loc) for e in positions)
    axes = tuple(map(changed, facts.axes))
    return replace(facts, axes=axes, positions=(*facts.positions, *proved))


def _most(problem: Problem, rows: ir.Axis, block: int) -> int:
    """How many rows a block of groups has at most: those of an array, if all lie in it."""
    most = (rows.max_extent or 1) * block
    leaves = any(fact.index.axis == rows.name for fact in problem.facts.leaving)
    return most if leaves else min(most, problem.extent(rows.name))


def _stored(kernel: ir.KernelIR, rows: frozenset[str]) -> bool:
    """Whether rows are stored, block after block: then no range may go back to a block."""
    stores = (s for s in ir.statements(kernel.body) if isinstance(s, ir.Store))
    return any(isinstance(e, ir.Along) and e.axis in rows for s in stores for e in s.index)


# ---------------------------------------------------------------- legality


def _refuse(axis: ir.Axis, why: str, loc: Loc | None) -> NoReturn:
    raise Refused(
        Rule.CONFIG,
        f"{axis.user} cannot have a block: {why}",
        loc,
        f"leave the block of {axis.name} out; only an hl.grid loop whose ragged loops sum rows "
        "[offsets[g], offsets[g + 1]), or store to them, can have one",
    )


def _check_loop(problem: Problem, axis: ir.Axis) -> None:
    fact, taken = problem.fact(axis.name), names_in(problem.ir) | {problem.ir.name}
    if all(loop.axis != axis.name for loop in problem.ir.body):
        _refuse(axis, "its loop stands inside of another one", axis.loc)
    if axis.static is None or axis.static[0] != 0 or axis.static[1] < 1:
        _refuse(axis, "its indices do not go from 0 to a number that shapes give", axis.loc)
    if fact.kind != "parallel":
        _refuse(axis, f"it is ordered, because {fact.why}", axis.loc)
    if clash := HELPERS & taken:
        _refuse(axis, f"the generated source has a function {min(clash)} of its own", axis.loc)


def _ranges(problem: Problem, axis: ir.Axis) -> tuple[tuple[ir.Axis, ...], str]:
    """The loops over the rows of a group, and the tensor that holds where they begin."""
    loops = tuple(a for a in problem.ir.axes if axis.name in problem.fact(a.name).depends)
    if not loops:
        _refuse(axis, "no loop has a range of its own for each", axis.loc)
    tables = [_table(problem, axis, rows) for rows in loops]
    if len(set(tables)) > 1:
        _refuse(axis, f"{loops[0].user} and {loops[-1].user} go over others' rows", loops[-1].loc)
    return loops, tables[0]


def _table(problem: Problem, axis: ir.Axis, rows: ir.Axis) -> str:
    """The tensor that says which rows of a loop are a group's."""
    kernel, name = problem.ir, axis.name
    defined = definitions(kernel.body)
    match inlined(rows.begin, defined), inlined(rows.end, defined):
        case (
            ir.Load(table, (ir.At(ir.GridIndex(at)),), mask=None),
            ir.Load(other, (ir.At(after),), mask=None),
        ) if table == other and at == name and moved(after, name) == 1:
            pass
        case _:
            _refuse(axis, f"{rows.user} does not go from T[{name}] to T[{name} + 1]", rows.loc)
    written = {
        root(kernel, s.tensor) for s in ir.statements(kernel.body) if isinstance(s, ir.Store)
    }
    if root(kernel, table) in written:
        _refuse(axis, f"the kernel changes {table}, which says where rows are", rows.loc)
    if rows.kind != "tile" or name not in problem.fact(rows.name).rises:
        _refuse(axis, f"the ranges of {rows.user} were not proved to be disjoint", rows.loc)
    return table
