"""Lane gathers: numbers that selects pick from a table at any positions, of many lanes at once.

    at = where(near >= 1, bias[h, 1], bias[h, 0])
    at = where(near >= 2, bias[h, 2], at) ...       ->   at = lane_gather(bias[h, 0:64], near)

In TPUs each lane of a register reads any lane of another one.  So 128 numbers of a table cost what
a few comparisons and selects do: of 64, attention took twice as long.  What `diagonals` takes costs
less still.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.codegen.looked_up import LookedUp, looked_up
from tilelang.ir import Apply, Assign, Expr, KernelIR, Span, Stmt, Type
from tilelang.ir.traversal import map_body
from tilelang.passes.drop_unused import drop_unused

OP = "lane_gather"  # (table [n], place [rows, columns]): table[clamp(place, 0, n - 1)]
LEAST = 13  # entries: as many selects take as long, by schedules of v6e and v5e


def lane_gathers(kernel: KernelIR) -> KernelIR:
    """The kernel with such values; tables that it stores to are read when the selects are."""
    stored = kernel.stored()
    found: dict[str, LookedUp] = {}

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, Assign):
            return (stmt,)
        picked = looked_up(stmt.value, found)
        if picked is None or kernel.root(picked.load.tensor) in stored:
            return (stmt,)
        found[stmt.name] = picked
        size = kernel.tensor(picked.load.tensor).shape[picked.dim]
        whole = size >= LEAST and (picked.first, picked.last) == (0, size - 1)
        return (replace(stmt, value=_gathered(picked)) if whole else stmt,)

    body = map_body(kernel.body, change)
    return kernel if body == kernel.body else replace(kernel, body=drop_unused(body, kernel.axes))


def _gathered(picked: LookedUp) -> Expr:
    row = row_of(picked, picked.load.tensor, picked.last + 1)
    kind = replace(picked.number.type, shape=picked.place.type.shape)
    return Apply(OP, (row, picked.place), kind, (), picked.load.loc)


def row_of(picked: LookedUp, tensor: str, length: int) -> Expr:
    """Numbers 0 ... length - 1 along the dimension of a tensor like the table, cast as one is."""
    load, dim = picked.load, picked.dim
    index = (*load.index[:dim], Span(0, length), *load.index[dim + 1 :])
    row = replace(load, tensor=tensor, index=index, type=Type((length,), load.type.dtype))
    if picked.number is load:
        return row
    return Apply("cast", (row,), Type((length,), picked.number.type.dtype))
