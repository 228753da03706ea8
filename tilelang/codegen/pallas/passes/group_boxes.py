"""Group boxes: a loop over groups, of which each copies rows from or to a box of its own, -> one
over blocks of them.

    for b in grid(B):                              for b in tile(B):
        for t in tile(min(end - begin, L)):  ->        for t in tile(first row, end of all):
            out[b, t, :] = x[begin + t, :]                 out[b, :, :] = moved_rows(x[t, :], ...)

Rows of neighbours follow each other in one of the arrays, and its tiles are those of the array now:
no row of it lies in two blocks.  A step moves the rows of all groups of its block that are in its
tile, where a short group took a step of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from tilelang import ir
from tilelang.codegen.pallas.moves import MOVED
from tilelang.errors import Loc
from tilelang.ir import Along, Apply, At, Expr, GridIndex, Load, Span, Type, integers
from tilelang.ir.traversal import definitions, inlined, map_index
from tilelang.language.dtypes import itemsize
from tilelang.language.op import ELEMENTWISE
from tilelang.schedule.problem import Problem

from .blocked_groups import check_kept, check_loop, count_of, facts_of_blocks, refuse, span, view_of

WHY = "a step moves the rows of all in its block"
WHICH = (
    "only an hl.grid loop that copies rows [offsets[g], offsets[g + 1]) from or to a box can have "
    "one"
)
HELPERS = frozenset({"move_rows", "spans_of"})  # functions of the generated source


@dataclass(frozen=True)
class RowCopy:
    """What the loop does: rows `begin` to `end` of each group go to its box, or come from there.

    rows    the loop over the rows of a group
    store   the statement
    load    what it stores
    table   the tensor that holds where groups begin
    end     of a group's rows: over that tensor
    to_box  whether they go there
    """

    rows: ir.Axis
    store: ir.Store
    load: ir.Load
    table: str
    end: Expr
    to_box: bool


def group_boxes(problem: Problem, name: str, block: int) -> Problem:
    """The kernel with blocks of so many iterations of an `hl.grid` loop, and what is true of it.

    Raises Refused where that loop does more than to copy rows from or to a box.
    """
    copy, kernel, axis = copies_rows(problem, name), problem.ir, problem.axis(name)
    count, rows, table = count_of(axis), copy.rows.name, copy.table
    length = kernel.tensor((copy.load if copy.to_box else copy.store).tensor).shape[0]
    if not copy.to_box and name not in problem.fact(rows).rises:
        _refuse(axis, f"the ranges of {copy.rows.user} were not proved to be disjoint", axis.loc)
    begins = view_of(kernel, ir.View(table, "slice", (0, count)), "begin", count)
    ends = view_of(kernel, ir.View(table, "slice", (1, count + 1)), "end", count)
    spans = view_of(
        kernel, ir.View(table, "spans", (block, count)), "spans", 2 * -(-count // block)
    )
    edges = lowest, highest = span(axis, spans)
    changed = {
        name: replace(axis, kind="tile", block=block, max_extent=count),
        rows: replace(copy.rows, begin=lowest, end=highest, max_extent=length),
    }
    value = _moved(problem, axis, copy, (begins, ends))
    body = tuple(
        ir.Loop(name, (ir.Loop(rows, (value,), (), copy.rows.loc),), (), loop.loc)
        if loop.axis == name
        else loop
        for loop in kernel.body
    )
    axes = tuple(changed.get(a.name, a) for a in kernel.axes)
    tensors = (*kernel.tensors, begins, ends, spans)
    whole = replace(kernel, tensors=tensors, axes=axes, body=body)
    # that tiles of one group may leave its box says nothing of these, which the array cuts
    left = tuple(fact for fact in problem.facts.leaving if fact.index.axis != rows)
    apart = not copy.to_box  # of rows that go to boxes nobody needs that
    known = replace(problem.facts, leaving=left)
    facts = facts_of_blocks(known, name, WHY, {rows}, spans, edges, apart)
    return Problem(whole, facts)


def copies_rows(problem: Problem, name: str) -> RowCopy:
    """What a loop over groups copies; raises Refused where it does more, or something else."""
    axis = problem.axis(name)
    check_loop(problem, axis, HELPERS, partial(_refuse, axis))
    return _copy(problem, axis)


def boxed(problem: Problem, name: str) -> bool:
    """Whether a loop has rows of its own in boxes, so that no sum is meant of it."""

    def own(index: tuple[ir.Index, ...]) -> bool:
        match index:
            case (At(GridIndex(at)), Along(rows), _):
                return at == name and name in problem.fact(rows).depends
            case _:
                return False

    return any(own(reference.index) for reference in problem.references)


# ---------------------------------------------------------------- legality


def _refuse(axis: ir.Axis, why: str, loc: Loc | None) -> NoReturn:
    refuse(axis, WHICH, why, loc)


def _copy(problem: Problem, axis: ir.Axis) -> RowCopy:
    """The loop over rows, and the one statement in it."""
    loop = next(loop for loop in problem.ir.body if loop.axis == axis.name)
    defined, inner = definitions((loop,)), [s for s in loop.body if isinstance(s, ir.Loop)]
    if len(inner) != 1 or any(isinstance(s, ir.Store) for s in loop.body) or inner[0].carries:
        _refuse(axis, "it does more than to copy rows", loop.loc)
    rows = problem.axis(inner[0].axis)
    if rows.kind != "tile" or problem.fact(rows.name).depends != (axis.name,):
        _refuse(axis, f"{rows.user} is no loop over rows of its own", rows.loc)
    match [s for s in inner[0].body if not isinstance(s, ir.Assign)]:
        case [ir.Store(mask=None, combine=None) as store]:
            pass
        case _:
            _refuse(axis, f"the loop over {rows.user} does more than to copy rows", inner[0].loc)
    load = inlined(store.value, defined)
    if not isinstance(load, Load) or load.mask is not None:
        _refuse(axis, f"what {rows.user} stores is more than rows of another array", store.loc)
    to_box = len(store.index) > len(load.index)
    flat, box = (load.index, store.index) if to_box else (store.index, load.index)
    _check_arrays(problem, axis, rows, store, load, flat, box)
    table, end = _range(problem, axis, rows, _inlined(flat, defined), _inlined(box, defined))
    return RowCopy(rows, store, load, table, end, to_box)


def _inlined(index: tuple[ir.Index, ...], defined: dict[str, Expr]) -> tuple[ir.Index, ...]:
    """An index without the names of scalars."""
    return tuple(map_index(e, lambda part: inlined(part, defined)) for e in index)


def _check_arrays(
    problem: Problem,
    axis: ir.Axis,
    rows: ir.Axis,
    store: ir.Store,
    load: ir.Load,
    flat: tuple[ir.Index, ...],
    box: tuple[ir.Index, ...],
) -> None:
    """Refused unless rows [rows, columns] go from or to [box, rows, columns], as they are."""
    kernel = problem.ir
    into, source = kernel.tensor(store.tensor), kernel.tensor(load.tensor)
    if kernel.root(into.name) == kernel.root(source.name):
        _refuse(axis, f"rows of {into.name} change places in it", store.loc)
    if into.dtype != source.dtype or into.dtype == "bool" or itemsize(into.dtype) > 4:
        _refuse(axis, f"rows of {source.dtype} become {into.dtype}", store.loc)
    match flat, box:
        case ((Along(a), Span(0, width)), (At(GridIndex(at)), Along(b), Span(0, other))) if (
            a == b == rows.name and at == axis.name
        ):
            boxes, lines = (into, source) if len(into.shape) > 2 else (source, into)
            whole = boxes.shape[0] == count_of(axis) and boxes.shape[2] == lines.shape[1]
            if whole and width == other == lines.shape[1]:
                return
        case _:
            pass
    what = f"not whole rows of an array of rows and of a box for each {axis.user}"
    _refuse(axis, f"{load.tensor} and {store.tensor} are {what}", store.loc)


def _range(
    problem: Problem,
    axis: ir.Axis,
    rows: ir.Axis,
    flat: tuple[ir.Index, ...],
    box: tuple[ir.Index, ...],
) -> tuple[str, Expr]:
    """The tensor that says where groups begin, and where their rows end."""
    loop = next(loop for loop in problem.ir.body if loop.axis == axis.name)
    defined = definitions((loop,))
    zero, (there, here) = integers.const(0), (_along(flat), _along(box))
    begin, end = (inlined(e, defined) for e in (rows.begin, rows.end))
    low, high = (_sum(e, there or zero) for e in (begin, end))
    match low:
        case Load(table, (At(GridIndex(name)),), mask=None) if name == axis.name:
            pass
        case _:
            _refuse(axis, f"the rows of {rows.user} do not begin at T[{axis.name}]", rows.loc)
    if _sum(begin, here or zero) != zero:
        _refuse(axis, f"the rows of {rows.user} are not the first of a box", rows.loc)
    after = integers.add(GridIndex(axis.name), integers.const(1))
    if not any(_is(term, table, after) for term in integers.least_of(high)):
        _refuse(axis, f"the rows of {rows.user} may go on behind T[{axis.name} + 1]", rows.loc)
    check_kept(problem.ir, table, rows, partial(_refuse, axis))
    return table, high


def _along(index: tuple[ir.Index, ...]) -> Expr | None:
    return next((e.offset for e in index if isinstance(e, Along)), None)


def _is(expr: Expr, table: str, at: Expr) -> bool:
    match expr:
        case Load(name, (At(place),), mask=None):
            return name == table and integers.linear(place) == integers.linear(at)
        case _:
            return False


def _sum(a: Expr, b: Expr) -> Expr:
    """a + b, the least of several sums where `a` is the least of several."""
    if isinstance(a, Apply) and a.op == "minimum":
        return replace(a, args=tuple(_sum(part, b) for part in a.args))
    return _cancelled([*_addends(a), *_addends(b)])


def _addends(expr: Expr, sign: int = 1) -> list[tuple[int, Expr]]:
    match expr:
        case Apply("add", (a, b)):
            return [*_addends(a, sign), *_addends(b, sign)]
        case Apply("sub", (a, b)):
            return [*_addends(a, sign), *_addends(b, -sign)]
        case Apply("neg", (a,)):
            return _addends(a, -sign)
        case _:
            return [(sign, expr)]


def _cancelled(terms: list[tuple[int, Expr]]) -> Expr:
    """The sum of terms, without those that are there with both signs."""
    kept: list[tuple[int, Expr]] = []
    for sign, term in terms:
        other = next((k for k in kept if k[0] == -sign and _same(k[1], term)), None)
        if other is None:
            kept.append((sign, term))
        else:
            kept.remove(other)
    found: Expr = integers.const(0)
    for sign, term in sorted(kept, key=lambda k: (-k[0], isinstance(k[1], ir.Const))):
        found = integers.add(found, term) if sign > 0 else integers.sub(found, term)
    return found


def _same(a: Expr, b: Expr) -> bool:
    """Whether two scalars are one number, wherever they were written."""
    match a, b:
        case Load(table, (At(p),), mask=None), Load(other, (At(q),), mask=None):
            return table == other and _same(p, q)
        case _:
            return integers.linear(a) == integers.linear(b) if integers.linear(a) else a == b


# ---------------------------------------------------------------- what becomes of it


def _moved(
    problem: Problem, axis: ir.Axis, copy: RowCopy, edges: tuple[ir.Tensor, ir.Tensor]
) -> ir.Store:
    """The store of all groups of a block at once."""

    def entry(index: tuple[ir.Index, ...], tensor: str) -> tuple[ir.Index, ...]:
        shape = problem.ir.tensor(tensor).shape
        if len(index) == 2:
            return (Along(copy.rows.name), index[1])
        return (Along(axis.name), Span(0, shape[1]), index[2])

    def sized(index: tuple[ir.Index, ...], dtype: str) -> Type:
        return Type(tuple(map(_extent, index)), dtype)

    begin, end = (_edge(axis, tensor) for tensor in edges)
    stop = _each(axis, copy.end, {0: begin, 1: end}, copy.store.loc)
    source = entry(copy.load.index, copy.load.tensor)
    rows = replace(copy.load, index=source, type=sized(source, copy.load.type.dtype))
    target = entry(copy.store.index, copy.store.tensor)
    value = Apply(MOVED, (rows, begin, stop), sized(target, rows.type.dtype), (), copy.store.loc)
    return replace(copy.store, index=target, value=value)


def _extent(entry: ir.Index) -> ir.Dim:
    match entry:
        case Along(name):
            return name
        case Span(first, stop):
            return stop - first
        case _:
            raise AssertionError(entry)


def _edge(axis: ir.Axis, tensor: ir.Tensor) -> Load:
    dtype = "int32" if tensor.dtype == "int64" else tensor.dtype
    return Load(tensor.name, (Along(axis.name),), Type((axis.name,), dtype))


def _each(axis: ir.Axis, expr: Expr, edges: dict[int, Load], loc: Loc) -> Expr:
    """A number that every group has one of, for all groups of a block."""
    match expr:
        case ir.Const():
            return expr
        case Load(_, (At(place),)) if (at := integers.linear(place)) is not None:
            if at[0] == {GridIndex(axis.name): 1} and at[1] in edges:
                return replace(edges[at[1]])  # what is shared would be named, and made a vector
        case Apply(op) if op in ELEMENTWISE:
            args = tuple(_each(axis, a, edges, loc) for a in expr.args)
            return replace(expr, args=args, type=replace(expr.type, shape=(axis.name,)))
        case _:
            pass
    _refuse(axis, "where its rows end is not computed from where they begin", loc)
