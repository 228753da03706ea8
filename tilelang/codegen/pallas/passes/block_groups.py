"""Block groups: a loop over groups, of which each has rows of its own, -> one over blocks of them.

    for g in grid(G):                                   for g in tile(G):
        for tm in tile(offsets[g], offsets[g + 1]): ->      for tm in tile(first row, end of all):
            acc += sum(x[tm, tf])                               acc += group_sum(member, x[tm, tf])
        y[g, tf] = acc                                      y[g, tf] = acc

What a group has one of gets a dimension of groups in front; member[g, tm] says which row is whose.
A step has the rows of all groups of its block, where a short group took a step of its own.  Loops
in a row go through the rows of all groups of a block one after another.  Rows of several dimensions
have one, of columns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.ir.traversal import definitions, inlined
from tilelang.passes.drop_unused import drop_unused
from tilelang.schedule.problem import Problem

from .blocked_groups import Refuse, check_kept, check_loop, count_of, facts_of_blocks, refuse, span
from .flat_columns import flat_columns
from .lifted_groups import Lifted, moved

WHY = "a step has the rows of all in its block"
WHICH = (
    "only an hl.grid loop whose ragged loops sum rows [offsets[g], offsets[g + 1]), take the "
    "largest of numbers, or store to them, can have one"
)
HELPERS = frozenset({"group_sums", "spans_of"})  # functions of the generated source
BLOCKS, SHORT = (128, 256), 64  # groups of a block: the second where they have fewer rows than that
LOOSE = 16_384  # rows of a table of steps that take an eighth of the scalar memory


def block_groups(problem: Problem, name: str, block: int) -> Problem:
    """The kernel with blocks of so many iterations of an `hl.grid` loop, and what is true of it.

    Raises Refused where that loop does more than to sum rows of its own, and to look at them again.
    """
    problem = replace(problem, ir=flat_columns(problem.ir))
    kernel, axis = problem.ir, problem.axis(name)
    no = partial(refuse, axis, WHICH)
    check_loop(problem, axis, HELPERS, no)
    loops, table = _ranges(problem, axis, no)
    groups = count_of(axis)
    rows = frozenset(a.name for a in loops)
    run = Lifted(problem, axis, groups, rows, table, no)
    body = tuple(
        replace(loop, body=run.body(loop.body)) if loop.axis == name else loop
        for loop in kernel.body
    )
    view = ir.View(table, "spans", (block, groups))
    spans = run.viewed(view, "spans", 2 * -(-groups // block))
    edges = begin, end = span(axis, spans)
    changed = {name: replace(axis, kind="tile", block=block, max_extent=groups)}
    for each in loops:
        changed[each.name] = replace(
            each, begin=begin, end=end, max_extent=_most(problem, each, block)
        )
    axes = tuple(changed.get(a.name, a) for a in kernel.axes)
    tensors = (*kernel.tensors, *run.views.values())
    made = replace(kernel, tensors=tensors, axes=axes, body=drop_unused(body, axes))
    most = max(problem.extent(each.name) for each in loops)
    loose = -(-groups // block) * -(-most // 128) <= LOOSE and not _stored(kernel, rows)
    # Nobody is told that rows of blocks are disjoint where the table of steps has room for blocks
    # that all span everything, as wild offsets make them.
    facts = facts_of_blocks(problem.facts, name, WHY, rows, spans, edges, apart=not loose)
    return Problem(made, facts)


def of_groups(problem: Problem, name: str) -> Problem:
    """The same with a block that suits groups of this length in the mean."""
    axis = problem.axis(name)
    (rows, *_), _ = _ranges(problem, axis, partial(refuse, axis, WHICH))
    count = count_of(axis)
    short = problem.extent(rows.name) < SHORT * count
    return block_groups(problem, name, BLOCKS[short])


def _most(problem: Problem, rows: ir.Axis, block: int) -> int:
    """How many rows a block of groups has at most: those of an array, if all lie in it."""
    most = (rows.max_extent or 1) * block
    leaves = any(fact.index.axis == rows.name for fact in problem.facts.leaving)
    return most if leaves else min(most, problem.extent(rows.name))


def _stored(kernel: ir.KernelIR, rows: frozenset[str]) -> bool:
    """Whether rows are stored, block after block: then no range may go back to a block."""
    entries = (e for s in ir.every_store(kernel.body) for e in s.index)
    return any(isinstance(e, ir.Along) and e.axis in rows for e in entries)


# ---------------------------------------------------------------- legality


def _ranges(problem: Problem, axis: ir.Axis, no: Refuse) -> tuple[tuple[ir.Axis, ...], str]:
    """The loops over the rows of a group, and the tensor that holds where they begin."""
    loops = tuple(a for a in problem.ir.axes if axis.name in problem.fact(a.name).depends)
    if not loops:
        no("no loop has a range of its own for each", axis.loc)
    tables = [_table(problem, axis, rows, no) for rows in loops]
    if len(set(tables)) > 1:
        no(f"{loops[0].user} and {loops[-1].user} go over others' rows", loops[-1].loc)
    return loops, tables[0]


def _table(problem: Problem, axis: ir.Axis, rows: ir.Axis, no: Refuse) -> str:
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
            no(f"{rows.user} does not go from T[{name}] to T[{name} + 1]", rows.loc)
    check_kept(kernel, table, rows, no)
    if rows.kind != "tile" or name not in problem.fact(rows.name).rises:
        no(f"the ranges of {rows.user} were not proved to be disjoint", rows.loc)
    return table
