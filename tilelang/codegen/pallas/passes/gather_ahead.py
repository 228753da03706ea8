"""Gather ahead: rows that an index array picks are put together by XLA, before the launch.

    x[token[ts], td]   ->   x_picked = take(x, token);  x_picked[ts, td]

A step copies rows one by one, and waits: some fifty cycles each, for every tile of other loops
again; numbers it reads from scalar memory, some twenty cycles each.  XLA reads and writes each row
once, and the pipeline reads it like any other block.  What lanes outside of a loop's range see are
other rows of the array in either form, and it is masked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import dropwhile

from tilelang import ir
from tilelang.codegen.pallas.row_loads import no_room
from tilelang.codegen.pallas.target import Target
from tilelang.ir.names import unique
from tilelang.ir.traversal import loads, map_body, map_stmt, rewrite
from tilelang.language.dtypes import itemsize

# Rows that are put together without being asked for: fewer take less time in the step than a launch
# of XLA's, and more bytes may not fit beside everything else.  Guesses, from predictions of moe.
LEAST, MOST = 512, 1 << 30


@dataclass(frozen=True)
class Ahead:
    """A load of picked rows: which dimension they are picked along, and how the index is read.

    order  the dimensions of the index array, those of single positions first
    """

    at: int
    index: str
    order: tuple[int, ...]
    entries: tuple[ir.Index, ...]


def gather_ahead(kernel: ir.KernelIR, asked: str | None, target: Target) -> ir.KernelIR:
    """The kernel with such loads as those of views; by default where rows or numbers are many, and
    where those of the array have no room in scalar memory.

    `asked` is "ahead" or "inside", or None.
    """
    views: dict[ir.View, ir.Tensor] = {}
    body = tuple(_nest(kernel, loop, asked, target, views) for loop in kernel.body)
    return (
        replace(kernel, tensors=(*kernel.tensors, *views.values()), body=body) if views else kernel
    )


def ahead_of(
    kernel: ir.KernelIR, nest: ir.Loop, load: ir.Load, asked: str | None, target: Target,
    copied: bool,
) -> Ahead | None:  # fmt: skip
    """How XLA puts together what a load in a nest picks; `copied` if nothing else is done."""
    found = None if asked == "inside" else _ahead(kernel, load, kernel.stored((nest,)))
    if found is None or not _is_there(kernel, nest, found.index):
        return None
    return found if asked or _worth(kernel, load, found, target, copied) else None


def copies(stmt: ir.Stmt) -> bool:
    """Whether rows go to where they are stored and nowhere else: that reads and writes them once,
    too."""
    return isinstance(stmt, ir.Store) and _is_copy(stmt.value)


def _nest(
    kernel: ir.KernelIR, loop: ir.Loop, asked: str | None, target: Target,
    views: dict[ir.View, ir.Tensor],
) -> ir.Loop:  # fmt: skip
    """One nest; the views that it reads are added."""

    def read(expr: ir.Expr, copied: bool) -> ir.Expr | None:
        if not isinstance(expr, ir.Load):
            return None
        ahead = ahead_of(kernel, loop, expr, asked, target, copied)
        if ahead is None:
            return None
        view = ir.View(expr.tensor, "take", (ahead.at, *ahead.order), ahead.index)
        if view not in views:
            views[view] = _viewed(kernel, view, views)
        index = (*expr.index[: ahead.at], *ahead.entries, *expr.index[ahead.at + 1 :])
        mask = None if expr.mask is None else rewrite(expr.mask, lambda part: read(part, False))
        return replace(expr, tensor=views[view].name, index=index, mask=mask)

    def changed(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        copied = copies(stmt)
        return (map_stmt(stmt, lambda e: rewrite(e, lambda part: read(part, copied))),)

    (found,) = map_body((loop,), changed)
    assert isinstance(found, ir.Loop)
    return found


def _ahead(kernel: ir.KernelIR, load: ir.Load, own: Collection[str]) -> Ahead | None:
    """How rows are picked, if what is picked from and by stays as it is while the nest runs."""
    picked = [d for d, entry in enumerate(load.index) if isinstance(entry, ir.Gather)]
    if len(picked) != 1:
        return None
    entry = load.index[picked[0]]
    source = kernel.tensor(kernel.root(load.tensor))
    assert isinstance(entry, ir.Gather)
    index = entry.expr
    if source.mutated or source.name in own or not isinstance(index, ir.Load) or index.mask:
        return None
    vectors = [d for d, e in enumerate(index.index) if not isinstance(e, ir.At)]
    if len(vectors) != 1 or not _plain(index.index):
        return None
    if 0 in (*kernel.tensor(load.tensor).shape, *kernel.tensor(index.tensor).shape):
        return None
    order = (*(d for d in range(len(index.index)) if d not in vectors), *vectors)
    return Ahead(picked[0], index.tensor, order, tuple(index.index[d] for d in order))


def _is_there(kernel: ir.KernelIR, nest: ir.Loop, index: str) -> bool:
    """Whether an index array is as it stays when the nest begins: given, or made by those before.

    What is stored to in place may be a step's own.
    """
    root = kernel.root(index)
    later = dropwhile(lambda each: each is not nest, kernel.body)
    made = kernel.tensor(root).role == "output" and root not in kernel.stored(tuple(later))
    return made or root not in kernel.stored()


def _plain(index: tuple[ir.Index, ...]) -> bool:
    """Whether an index array is read a tile at a time, at positions that are not looked up."""
    return all(
        entry.offset is None
        if isinstance(entry, ir.Along)
        else isinstance(entry, ir.At) and next(loads(entry.expr), None) is None
        for entry in index
    )


def _worth(kernel: ir.KernelIR, load: ir.Load, ahead: Ahead, target: Target, copied: bool) -> bool:
    """Whether they are so many that they pay for a launch of XLA's, and not too many; of numbers,
    too, whether the step has no room for what they are picked from.
    """
    table = kernel.tensor(load.tensor)
    numbers = ahead.at == len(table.shape) - 1
    if numbers and no_room(kernel, load.tensor, target):
        return True
    row = math.prod(table.shape[ahead.at + 1 :]) * itemsize(table.dtype)
    rows = math.prod(kernel.tensor(ahead.index).shape)
    return (numbers or not copied) and rows >= LEAST and rows * row <= MOST


def _is_copy(value: ir.Expr) -> bool:
    while isinstance(value, ir.Apply) and value.op == "cast":
        value = value.args[0]
    return isinstance(value, ir.Load)


def _viewed(kernel: ir.KernelIR, view: ir.View, others: Mapping[ir.View, ir.Tensor]) -> ir.Tensor:
    table, index = kernel.tensor(view.source), kernel.tensor(view.index)
    at, order = view.arg[0], view.arg[1:]
    picked = tuple(index.shape[d] for d in order)
    shape = (*table.shape[:at], *picked, *table.shape[at + 1 :])
    known = replace(kernel, tensors=(*kernel.tensors, *others.values()))
    name = unique(known, view.source, "picked")
    return table.seen(name, view, shape)
