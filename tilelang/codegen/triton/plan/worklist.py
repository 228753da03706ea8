"""Worklist: the tiles of ragged ranges, found on the device by whoever runs them.

    groups      0      1     2          items   0 1 2   3   4 5
    tiles       3      1     2          group   0 0 0   1   2 2
    ends        3      4     6          tile    0 1 2   0   0 1

Programs take items in strides of their number, so that ranges that nobody checked may give more
items than there are programs, and no group is left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilelang import ir
from tilelang.codegen.triton.passes.explicit_casts import apply
from tilelang.codegen.triton.passes.pad_dims import Padded, power_of_two
from tilelang.ir import integers, map_children
from tilelang.ir.integers import INT
from tilelang.ir.lanes import arange
from tilelang.ir.traversal import inlined

from .access import compare, in_range
from .problem import Prepared
from .scope import Running, Scope, Shared
from .types import Access, Carried, For, Launch, Read, Step, Worklist, Write

CHUNK = 1024  # groups that the program which makes the table counts at once
GROUPS = "groups."  # no author has this name


def tile_counts(scope: Scope, work: Worklist) -> ir.Expr:
    """How many tiles each of the groups has, whose numbers are in lanes of GROUPS.

    None where a range ends before it begins: how far before is more than int32 holds, where
    memory has its least number behind its greatest.
    """
    begin, end = (
        scope.lower(_over(inlined(b, scope.kernel.defined), work.group))
        for b in scope.kernel.range(work.axis)
    )
    step = scope.kernel.step(work.axis)
    form = ir.Type((GROUPS,), "int32")
    begin = scope.named(begin, f"{work.axis}_begins")
    end = scope.named(end, f"{work.axis}_ends")
    last = apply("maximum", (end, begin), "int32", form.shape)
    zero = integers.value_of(begin) == 0
    length = last if zero else apply("sub", (last, begin), "int32", form.shape)
    up = apply("add", (length, integers.const(step - 1)), "int32", form.shape)
    count: ir.Expr = up if step == 1 else ir.Apply("quotient", (up, integers.const(step)), form)
    if scope.kernel.is_partial(GROUPS):
        inside = scope.lower(in_range(GROUPS))
        count = apply("where", (inside, count, integers.const(0)), "int32", form.shape)
    return scope.let("tile_counts", count)


def _over(expr: ir.Expr, group: str) -> ir.Expr:
    """A scalar expression for all groups at once."""
    form = ir.Type((GROUPS,), "int32")
    if isinstance(expr, ir.GridIndex) and expr.axis == group:
        return ir.TileIndex(GROUPS, form)
    made = map_children(expr, lambda e: _over(e, group))
    parts = made.args if isinstance(made, ir.Apply) else _positions(made)
    if any(p.type.shape for p in parts):
        made = replace(made, type=ir.Type((GROUPS,), made.type.dtype))
    return made


def _positions(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    if not isinstance(expr, ir.Load):
        return ()
    return tuple(i.expr for i in expr.index if isinstance(i, ir.At))


def with_groups(kernel: Prepared, count: int, lanes: int) -> Prepared:
    """The kernel with a dimension of all groups."""
    return replace(kernel, padded={**kernel.padded, GROUPS: Padded(count, lanes)})


def open_search(scope: Scope, work: Worklist) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
    """The lines before the items: tiles per group, where each group's items end, their number."""
    groups = scope.lower(arange(GROUPS))
    inside = scope.lower(in_range(GROUPS)) if scope.kernel.is_partial(GROUPS) else None
    scope.axes[GROUPS] = Running(integers.const(0), integers.const(0), integers.const(work.groups),
                                 groups, inside)  # fmt: skip
    counts = tile_counts(scope, work)
    ends = scope.let("tile_ends", apply("cumsum", (counts,), "int32", (GROUPS,)))
    total = apply("sum", (counts,), "int32", (), axis=0, keepdim=False)
    return counts, ends, scope.let("item_count", total)


def searched(scope: Scope, work: Worklist, found: tuple[ir.Expr, ir.Expr], item: ir.Expr) -> tuple:
    """Group and tile of an item: the groups before are those whose items end at it or earlier."""
    counts, ends = found
    before = scope.let("before", compare("le", ends, item))
    number = apply("cast", (before,), "int32", (GROUPS,))
    group = scope.let(work.group, apply("sum", (number,), "int32", (), axis=0, keepdim=False))
    skipped = apply("where", (before, counts, integers.const(0)), "int32", (GROUPS,))
    past = apply("sum", (skipped,), "int32", (), axis=0, keepdim=False)
    tile = scope.let(f"{work.axis}_id", apply("sub", (item, past), "int32", ()))
    return group, tile


def ends_name(shared: Shared, work: Worklist) -> str:
    """The scratch array that holds where each group's items end."""
    return shared.fresh(f"{work.axis}_item_ends")


def tabled(scope: Scope, work: Worklist, ends: str, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Group and tile of an item, from the table in memory."""
    groups = (("groups", work.groups),)
    group = scope.let(work.group, ir.Apply("find", (ir.Var(ends, INT), item), INT, groups))
    first = integers.sub(group, integers.const(1))
    mask = compare("gt", group, 0)
    name = scope.shared.fresh("items_before")
    scope.steps.append(Read(name, INT, Access(ends, "int32", first, mask)))
    tile = scope.let(f"{work.axis}_id", apply("sub", (item, ir.Var(name, INT)), "int32", ()))
    return group, tile


def table_launch(kernel: Prepared, work: Worklist, ends: str, name: str, taken: set[str]) -> Launch:
    """The launch of one program that writes where the items of every group end."""
    lanes = min(CHUNK, power_of_two(work.groups))
    kernel = with_groups(kernel, work.groups, lanes)
    shared = Shared(kernel, taken, frozenset(), Counter(), frozenset(), False)
    scope, loop = Scope(shared), Scope(shared)
    first = ir.Var(shared.fresh("first"), INT)
    width = ir.Type((GROUPS,), "int32")
    lane = arange(GROUPS)
    groups = loop.let("groups", apply("add", (first, lane), "int32", width.shape))
    inside = loop.let("groups_in", compare("lt", groups, work.groups))
    loop.axes[GROUPS] = Running(first, first, integers.const(work.groups), groups, inside)
    counts = tile_counts(loop, work)
    before = ir.Var(shared.fresh("items_before"), INT)
    sums = apply("cumsum", (counts,), "int32", (GROUPS,))
    found = loop.let("tile_ends", apply("add", (before, sums), "int32", (GROUPS,)))
    loop.steps.append(Write(Access(ends, "int32", groups, inside), found))
    return _table(work, ends, name, scope, loop, first, before, counts, lanes)


def _table(
    work: Worklist, ends: str, name: str, scope: Scope, loop: Scope, first: ir.Var, before: ir.Var,
    counts: ir.Expr, lanes: int,
) -> Launch:  # fmt: skip
    total = apply("sum", (counts,), "int32", (), axis=0, keepdim=False)
    zero = ir.Apply("full", (), INT, (("value", 0),))
    carried = Carried(before.name, zero, integers.add(before, total))
    body: tuple[Step, ...] = (
        *scope.shared.tops,
        For(first.name, integers.const(0), integers.const(work.groups), integers.const(lanes),
            (carried,), tuple(loop.steps)),
    )  # fmt: skip
    reads = {s.access.tensor for s in loop.steps if isinstance(s, Read)}
    arguments = (*(t.name for t in scope.kernel.ir.tensors if t.name in reads), ends)
    return Launch(name, arguments, 1, 4, 1, None, (), None, ((GROUPS, lanes),), body)
