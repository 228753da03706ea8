"""Clear the rest: what a fill is for where ranges store all the rows that they cover.

    y = full(fill)                              y = empty
    for g: for t in tile(o[g], o[g + 1]):       for g: for t in tile(o[g], o[g + 1]):
        y[t, :] = ...                   ->          y[t, :] = ...
                                                for r in tile(M):
                                                    outside = r.begin < o[0] or r.end > o[G]
                                                    seen = False
                                                    for t in tile(G if outside else 0):
                                                        seen |= any(o[t] <= r.index < o[t + 1])
                                                    for c in tile(N if outside else 0):
                                                        y[r, c] = fill where not seen

A fill is a launch of its own that writes every element, of which the kernel then writes nearly all
again.  The second loop looks at where the ranges are, and writes rows that are in none; the
programs of the launch that stores the others share it, before another launch reads any.  A row from
o[0] on and before o[G] is in a range, also where the ranges are in no order: offsets that begin at
or below it and end above it pass it upwards once.  Rows outside of that are looked for in every
range: a fill stays where there may be many of them and of ranges, and little to write of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from tilelang import ir
from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import axis_of, every_expr, every_store, integers, part_of, statements
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import definitions
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.dtypes import itemsize
from tilelang.language.shapes import expand_dims

Place = tuple[ir.Index, ...]
both = partial(binary, loc=None)  # of two operands, which nobody wrote
# Blocks of the second loop: what the registers of one warp hold, in as many columns as 8 warps
# store without spills beside products with gates, as ptxas sees them for sm_80 and sm_89.  The loop
# over columns is innermost: around those over other dimensions it has gradients of jagged attention
# spill 8 bytes on sm_90 (Triton 3.6.0).
ROWS, COLUMNS, GROUPS = 16, 64, 32
# How many comparisons of rows with ranges, and of ranges for each byte of a row, a fill is better
# than, if most rows are in none.  Reckoned, not measured: 2,000 programs at a time compare 512
# pairs in 60 ns, and 3 TB/s are written.  Of 800,000 edges in none of 100,000 rows, 5 ms, not 3 us.
COMPARED, BYTE = 2**28, 64


def clear_rest(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with such a loop for the outputs of the same rows that it is made for."""
    found: dict[tuple[str, int, str], list[tuple[ir.Tensor, int]]] = {}
    for tensor in kernel.tensors:
        if tensor.role == "output" and tensor.fill is not None:
            offsets = _offsets(kernel, tensor)
            if offsets is not None and not _searches_long(kernel, tensor, *offsets[:2]):
                name, dim, launch = offsets
                found.setdefault((name, tensor.shape[dim], launch), []).append((tensor, dim))
    for (offsets, rows, _), outputs in found.items():
        kernel = _cleared(kernel, outputs, offsets, rows)
    return kernel


# ---------------------------------------------------------------- where it may be done


def _offsets(kernel: ir.KernelIR, tensor: ir.Tensor) -> tuple[str, int, str] | None:
    """The offsets whose ranges are stored whole, the dimension that they cut, the loop around."""
    views = {t.name for t in kernel.tensors if t.view is not None and t.view.source == tensor.name}
    stores = [s for s in every_store(kernel.body) if s.tensor in {tensor.name, *views}]
    if any(s.tensor in views or s.mask is not None or s.combine is not None for s in stores):
        return None
    index = _together([s.index for s in stores], tensor.shape)
    if index is None or len({tuple(_around(kernel.body, s)) for s in stores}) != 1:
        return None
    launch = next(
        (n for n, s in enumerate(kernel.body) if any(e is stores[0] for e in statements((s,))))
    )
    before = every_expr(kernel.body[: launch + 1])
    if any(isinstance(e, ir.Load) and e.tensor in {tensor.name, *views} for e in before):
        return None
    return _ranges(kernel, tensor, index, _around(kernel.body, stores[0]))


def _together(indices: Sequence[tuple[ir.Index, ...]], shape: tuple[int, ...]) -> Place | None:
    """The index of several stores as one, if they differ in parts of one dimension alone.

    All of it is stored where the parts follow one another, as those of joined values do.
    """
    if len(set(indices)) < 2:
        return indices[0] if len(indices) == 1 else None
    apart = [dim for dim in range(len(shape)) if len({index[dim] for index in indices}) > 1]
    parts = sorted(filter(None, (part_of(index[apart[0]]) for index in indices)))
    ends = [0, *(stop for _, stop in parts)]
    follow = len(parts) == len(indices) and [start for start, _ in parts] == ends[:-1]
    if len(apart) != 1 or not follow or ends[-1] != shape[apart[0]]:
        return None
    (dim,) = apart
    return (*indices[0][:dim], ir.Span(0, shape[dim]), *indices[0][dim + 1 :])


def _ranges(
    kernel: ir.KernelIR, tensor: ir.Tensor, index: Place, around: list[str]
) -> tuple[str, int, str] | None:
    """The offsets of the one dimension that is cut, if all else is stored whole."""
    found = list[tuple[str, int]]()
    used: list[str] = []
    for dim, (entry, size) in enumerate(zip(index, tensor.shape, strict=True)):
        axis = axis_of(entry)
        if axis is not None and kernel.axis(axis).static == (0, size):
            used.append(axis)
        elif axis is not None and (cut := _cut(kernel, axis)) is not None:
            used += [axis, cut[1]]
            found.append((cut[0], dim))
        elif entry != ir.Span(0, size):
            return None
    if len(found) != 1 or sorted(used) != sorted(around):
        return None  # another loop, which may run no iteration
    return (*found[0], around[0])


def _around(body: tuple[ir.Stmt, ...], store: ir.Store) -> list[str]:
    """The axes of the loops around a statement."""
    for stmt in body:
        if isinstance(stmt, ir.Loop) and any(s is store for s in statements(stmt.body)):
            return [stmt.axis, *_around(stmt.body, store)]
    return []


def _cut(kernel: ir.KernelIR, name: str) -> tuple[str, str] | None:
    """The offsets and the grid axis of a range between neighbours, over all of them."""
    axis, known = kernel.axis(name), definitions(kernel.body)
    begin, end = (
        known.get(b.name, b) if isinstance(b, ir.Var) else b for b in (axis.begin, axis.end)
    )
    match begin, end:
        case ir.Load(first, (ir.At(ir.GridIndex(group)),)), ir.Load(last, (ir.At(after),)):
            whole = kernel.axis(group).static == (0, kernel.tensor(first).shape[0] - 1) != (0, 0)
            next_one = integers.linear(after) == ({ir.GridIndex(group): 1}, 1)
            source = kernel.tensor(first)
            given = source.role == "input" and not source.mutated
            if first == last and whole and next_one and given:
                return first, group
        case _:
            pass  # a range of no table
    return None


def _searches_long(kernel: ir.KernelIR, tensor: ir.Tensor, offsets: str, dim: int) -> bool:
    """Whether rows that are in no range may take long to find, and no time to fill."""
    rows, ranges = tensor.shape[dim], kernel.tensor(offsets).shape[0] - 1
    row = prod(tensor.shape) // max(rows, 1) * itemsize(tensor.dtype)
    return rows * ranges > COMPARED and ranges > BYTE * row


# ---------------------------------------------------------------- the second loop


def _cleared(
    kernel: ir.KernelIR, outputs: Sequence[tuple[ir.Tensor, int]], offsets: str, rows: int
) -> ir.KernelIR:
    """The kernel with arrays that nothing fills, and the loop that does so for their rest."""
    nest = _Nest(kernel, outputs, offsets, rows)
    body, axes = nest.loop()
    names = {tensor.name for tensor, _ in outputs}
    tensors = tuple(replace(t, fill=None) if t.name in names else t for t in kernel.tensors)
    return replace(kernel, tensors=tensors, axes=(*kernel.axes, *axes), body=(*kernel.body, body))


class _Nest:
    """The second loop of arrays with the same rows, with names that nothing has."""

    def __init__(
        self, kernel: ir.KernelIR, outputs: Sequence[tuple[ir.Tensor, int]], offsets: str, rows: int
    ) -> None:
        self.outputs, self.offsets, self.rows = outputs, offsets, rows
        self.loc = outputs[0][0].loc
        self.taken = names_in(kernel) | {kernel.name}
        self.count = kernel.tensor(offsets).shape[0] - 1
        self.axes: list[ir.Axis] = []
        # how many are written of an outermost dimension, by what they are and how many there are
        self.counts: dict[tuple[str, int], ir.Var] = {}

    def axis(self, wish: str, end: ir.Expr, block: int | None, most: int | None = None) -> str:
        name, kind = take(wish, self.taken), "grid" if block is None else "tile"
        zero, loc = integers.const(0), self.loc
        self.axes.append(ir.Axis(name, kind, zero, end, most, block, loc, name))
        return name

    def assigned(self, wish: str, value: ir.Expr) -> tuple[ir.Assign, ir.Var]:
        name = take(wish, self.taken)
        return ir.Assign(name, value, self.loc, name), ir.Var(name, value.type)

    def loop(self) -> tuple[ir.Loop, list[ir.Axis]]:
        loc = self.loc
        row = self.axis("row", integers.const(self.rows), ROWS)
        at = ir.TileIndex(row, ir.Type((row,), "int32"))
        first, begin = self.assigned("first", self.offset(ir.At(integers.const(0)), ()))
        last, end = self.assigned("last", self.offset(ir.At(integers.const(self.count)), ()))
        low, high = ir.TileScalar(row, "begin"), ir.TileScalar(row, "end")
        around = both("logical_or", both("lt", low, begin), both("gt", high, end))
        outside, out = self.assigned("outside", around)
        ranges, stop = self.assigned("ranges", _if(out, self.count))
        group = self.axis("group", stop, GROUPS, self.count)
        seen, found = take("seen", self.taken), take("found", self.taken)
        form = ir.Type((row,), "int32")
        start = ir.Apply("full", (), form, (("value", 0),))
        more = both("maximum", ir.Var(seen, form), self.hit(group, at))
        search = ir.Loop(group, (), (ir.Carry(seen, start, more, found, seen, loc),), loc)
        free = both("eq", ir.Var(found, form), integers.const(0))
        stores = [s for one, dim in self.outputs for s in self.stores(one, dim, row, free, out)]
        body = (first, last, outside, ranges, search, *stores)
        return ir.Loop(row, body, (), loc), self.axes

    def offset(self, entry: ir.Index, shape: tuple) -> ir.Load:
        return ir.Load(self.offsets, (entry,), ir.Type(shape, "int32"), loc=self.loc)

    def hit(self, group: str, at: ir.Expr) -> ir.Expr:
        """1 for rows that one of a tile of ranges has."""
        begins = expand_dims(self.offset(ir.Along(group), (group,)), 0, None)
        ends = expand_dims(self.offset(ir.Along(group, integers.const(1)), (group,)), 0, None)
        place = expand_dims(at, 1, None)
        inside = both("logical_and", both("le", begins, place), both("lt", place, ends))
        return reduce("max", cast(inside, "int32", None), 1, False, None)

    def count_of(self, wish: str, size: int, some: ir.Expr, before: list[ir.Stmt]) -> ir.Var:
        """How many run of an outermost loop: all if there are some rows; `before` joins it."""
        if (wish, size) not in self.counts:
            stop, self.counts[wish, size] = self.assigned(f"{wish}s", _if(some, size))
            before.append(stop)
        return self.counts[wish, size]

    def stores(
        self, tensor: ir.Tensor, rows: int, row: str, free: ir.Expr, some: ir.Expr
    ) -> list[ir.Stmt]:
        """The fill in the rows that are free, over all other dimensions, if there may be some."""
        index: list[ir.Index] = []
        inner: list[str] = []
        before: list[ir.Stmt] = []
        minor = max((d for d in range(len(tensor.shape)) if d != rows), default=None)
        for dim, size in enumerate(tensor.shape):
            if dim == rows:
                index.append(ir.Along(row))
                continue
            wish, block = "outer", None
            if dim == minor:
                wish, block = "column", min(power_of_two(size), COLUMNS)
            # nothing runs where no row is outside: the outermost has no iteration
            end = self.count_of(wish, size, some, before)
            name = self.axis(wish, end, block, size)
            index.append(ir.Along(name) if dim == minor else ir.At(ir.GridIndex(name)))
            inner.append(name)
        shape = tuple(e.axis for e in index if isinstance(e, ir.Along))
        mask = both("logical_and", free, some) if minor is None else free
        for dim, name in enumerate(shape):
            mask = mask if name == row else expand_dims(mask, dim, None)
        fill = ir.Apply("full", (), ir.Type(shape, tensor.dtype), (("value", tensor.fill),))
        made: ir.Stmt = ir.Store(tensor.name, tuple(index), fill, tensor.loc, mask)
        for name in reversed(inner):
            made = ir.Loop(name, (made,), (), tensor.loc)
        return [*before, made]


def _if(some: ir.Expr, count: int) -> ir.Expr:
    return where(some, integers.const(count), integers.const(0), None)
