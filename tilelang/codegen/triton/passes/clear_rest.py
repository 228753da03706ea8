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
range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Carry,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Loop,
    Span,
    Stmt,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Type,
    Var,
    axis_of,
    every_expr,
    every_store,
    integers,
    statements,
)
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import definitions
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.shapes import expand_dims

both = partial(binary, loc=None)  # of two operands, which nobody wrote
# Blocks of the second loop: what the registers of one warp hold, in as many columns as 8 warps
# store without spills beside products with gates, as ptxas sees them for sm_80 and sm_89.
ROWS, COLUMNS, GROUPS = 16, 64, 32


def clear_rest(ir: KernelIR) -> KernelIR:
    """The kernel with such a loop for the outputs of the same rows that it is made for."""
    found: dict[tuple[str, int, str], list[tuple[Tensor, int]]] = {}
    for tensor in ir.tensors:
        if tensor.role == "output" and tensor.fill is not None:
            offsets = _offsets(ir, tensor)
            if offsets is not None:
                name, dim, launch = offsets
                found.setdefault((name, tensor.shape[dim], launch), []).append((tensor, dim))
    for (offsets, rows, _), outputs in found.items():
        ir = _cleared(ir, outputs, offsets, rows)
    return ir


# ---------------------------------------------------------------- where it may be done


def _offsets(ir: KernelIR, tensor: Tensor) -> tuple[str, int, str] | None:
    """The offsets whose ranges are stored whole, the dimension that they cut, the loop around."""
    views = {t.name for t in ir.tensors if t.view is not None and t.view.source == tensor.name}
    stores = [s for s in every_store(ir.body) if s.tensor in {tensor.name, *views}]
    if len(stores) != 1:
        return None
    (store,) = stores
    if store.tensor in views or store.mask is not None or store.combine is not None:
        return None
    launch = next((n for n, s in enumerate(ir.body) if any(e is store for e in statements((s,)))))
    before = every_expr(ir.body[: launch + 1])
    if any(isinstance(e, Load) and e.tensor in {tensor.name, *views} for e in before):
        return None
    return _ranges(ir, tensor, store)


def _ranges(ir: KernelIR, tensor: Tensor, store: Store) -> tuple[str, int, str] | None:
    """The offsets of the one dimension that is cut, if all else is stored whole."""
    around, found = _around(ir.body, store), list[tuple[str, int]]()
    used: list[str] = []
    for dim, (entry, size) in enumerate(zip(store.index, tensor.shape, strict=True)):
        axis = axis_of(entry)
        if axis is not None and ir.axis(axis).static == (0, size):
            used.append(axis)
        elif isinstance(entry, Along) and (cut := _cut(ir, entry)) is not None:
            used += [entry.axis, cut[1]]
            found.append((cut[0], dim))
        elif entry != Span(0, size):
            return None
    if len(found) != 1 or sorted(used) != sorted(around):
        return None  # another loop, which may run no iteration
    return (*found[0], around[0])


def _around(body: tuple[Stmt, ...], store: Store) -> list[str]:
    """The axes of the loops around a statement."""
    for stmt in body:
        if isinstance(stmt, Loop) and any(s is store for s in statements(stmt.body)):
            return [stmt.axis, *_around(stmt.body, store)]
    return []


def _cut(ir: KernelIR, entry: Along) -> tuple[str, str] | None:
    """The offsets and the grid axis of a range between neighbours, over all of them."""
    if entry.offset is not None:
        return None
    axis, known = ir.axis(entry.axis), definitions(ir.body)
    begin, end = (known.get(b.name, b) if isinstance(b, Var) else b for b in (axis.begin, axis.end))
    match begin, end:
        case Load(first, (At(GridIndex(group)),)), Load(last, (At(after),)):
            whole = ir.axis(group).static == (0, ir.tensor(first).shape[0] - 1) != (0, 0)
            next_one = integers.linear(after) == ({GridIndex(group): 1}, 1)
            source = ir.tensor(first)
            given = source.role == "input" and not source.mutated
            if first == last and whole and next_one and given:
                return first, group
        case _:
            pass  # a range of no table
    return None


# ---------------------------------------------------------------- the second loop


def _cleared(
    ir: KernelIR, outputs: Sequence[tuple[Tensor, int]], offsets: str, rows: int
) -> KernelIR:
    """The kernel with arrays that nothing fills, and the loop that does so for their rest."""
    nest = _Nest(ir, outputs, offsets, rows)
    body, axes = nest.loop()
    names = {tensor.name for tensor, _ in outputs}
    tensors = tuple(replace(t, fill=None) if t.name in names else t for t in ir.tensors)
    return replace(ir, tensors=tensors, axes=(*ir.axes, *axes), body=(*ir.body, body))


class _Nest:
    """The second loop of arrays with the same rows, with names that nothing has."""

    def __init__(
        self, ir: KernelIR, outputs: Sequence[tuple[Tensor, int]], offsets: str, rows: int
    ) -> None:
        self.outputs, self.offsets, self.rows = outputs, offsets, rows
        self.loc = outputs[0][0].loc
        self.taken = names_in(ir) | {ir.name}
        self.count = ir.tensor(offsets).shape[0] - 1
        self.axes: list[Axis] = []

    def axis(self, wish: str, end: Expr, block: int | None, most: int | None = None) -> str:
        name, kind = take(wish, self.taken), "grid" if block is None else "tile"
        zero, loc = integers.const(0), self.loc
        self.axes.append(Axis(name, kind, zero, end, most, block, loc, name))
        return name

    def assigned(self, wish: str, value: Expr) -> tuple[Assign, Var]:
        name = take(wish, self.taken)
        return Assign(name, value, self.loc, name), Var(name, value.type)

    def loop(self) -> tuple[Loop, list[Axis]]:
        loc = self.loc
        row = self.axis("row", integers.const(self.rows), ROWS)
        at = TileIndex(row, Type((row,), "int32"))
        first, begin = self.assigned("first", self.offset(At(integers.const(0)), ()))
        last, end = self.assigned("last", self.offset(At(integers.const(self.count)), ()))
        low, high = TileScalar(row, "begin"), TileScalar(row, "end")
        around = both("logical_or", both("lt", low, begin), both("gt", high, end))
        outside, out = self.assigned("outside", around)
        ranges, stop = self.assigned("ranges", _if(out, self.count))
        group = self.axis("group", stop, GROUPS, self.count)
        seen, found = take("seen", self.taken), take("found", self.taken)
        form = Type((row,), "int32")
        start = Apply("full", (), form, (("value", 0),))
        more = both("maximum", Var(seen, form), self.hit(group, at))
        search = Loop(group, (), (Carry(seen, start, more, found, seen, loc),), loc)
        free = both("eq", Var(found, form), integers.const(0))
        stores = [s for one, dim in self.outputs for s in self.stores(one, dim, row, free, out)]
        body = (first, last, outside, ranges, search, *stores)
        return Loop(row, body, (), loc), self.axes

    def offset(self, entry: Index, shape: tuple) -> Load:
        return Load(self.offsets, (entry,), Type(shape, "int32"), loc=self.loc)

    def hit(self, group: str, at: Expr) -> Expr:
        """1 for rows that one of a tile of ranges has."""
        begins = expand_dims(self.offset(Along(group), (group,)), 0, None)
        ends = expand_dims(self.offset(Along(group, integers.const(1)), (group,)), 0, None)
        place = expand_dims(at, 1, None)
        inside = both("logical_and", both("le", begins, place), both("lt", place, ends))
        return reduce("max", cast(inside, "int32", None), 1, False, None)

    def stores(self, tensor: Tensor, rows: int, row: str, free: Expr, some: Expr) -> list[Stmt]:
        """The fill in the rows that are free, over all other dimensions, if there may be some."""
        index: list[Index] = []
        inner: list[str] = []
        ends: list[Stmt] = []
        minor = max((d for d in range(len(tensor.shape)) if d != rows), default=None)
        for dim, size in enumerate(tensor.shape):
            if dim == rows:
                index.append(Along(row))
            elif dim == minor:
                block = min(power_of_two(size), COLUMNS)
                stop, end = self.assigned("columns", _if(some, size))
                ends.append(stop)
                index.append(Along(self.axis("column", end, block, size)))
                inner.append(self.axes[-1].name)
            else:
                name = self.axis("outer", integers.const(size), None)
                index.append(At(GridIndex(name)))
                inner.append(name)
        shape = tuple(e.axis for e in index if isinstance(e, Along))
        mask = both("logical_and", free, some) if minor is None else free
        for dim, name in enumerate(shape):
            mask = mask if name == row else expand_dims(mask, dim, None)
        fill = Apply("full", (), Type(shape, tensor.dtype), (("value", tensor.fill),))
        made: Stmt = Store(tensor.name, tuple(index), fill, tensor.loc, mask)
        for name in reversed(inner):
            made = Loop(name, (made,), (), tensor.loc)
        return [*ends, made]


def _if(some: Expr, count: int) -> Expr:
    return where(some, integers.const(count), integers.const(0), None)
