"""Diagonals: numbers that selects pick from a table by the distance of two positions.

    at = where(rel >= 1, bias[h, 1], bias[h, 0])        line = bias[h, ::-1], its ends going on
    at = where(rel >= 2, bias[h, 2], at) ...       ->   at[i, j] = line[first + j - i]
    where rel = tq.index[:, None] - tk.index[None, :] + 127

A select for every entry is more than most kernels do besides: of 255 entries, attention took seven
times as long.  Each row of such a block is the one above it, one lane further on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilelang.codegen.looked_up import LookedUp, with_tables
from tilelang.ir import (
    Apply,
    At,
    Expr,
    KernelIR,
    Load,
    Tensor,
    TileIndex,
    Var,
    View,
    definitions,
    integers,
    meant,
)
from tilelang.ir.names import unique
from tilelang.ir.traversal import every_expr, reached

OP = "diagonals"  # (line [n], first) -> [rows, columns]: line[first + columns.index - rows.index]
LEAST = 24  # entries: about as many selects take as long, by schedules of v6e

# Rows and lanes that are made at once, of a part of the line that is as long as both: there are
# so many copies of either end that all of it can lie there.
ROWS, LANES = 128, 512
SIDE = ROWS + LANES + 8


@dataclass(frozen=True)
class TilePosition:
    """The position of the tile of `axis` along dimension `dim` of a value."""

    axis: str
    dim: int


def diagonals(kernel: KernelIR) -> KernelIR:
    """The kernel with such values."""
    values, stored = definitions(kernel.body), kernel.stored()
    loaded = (e for e in every_expr(kernel.body, kernel.axes) if isinstance(e, Load))
    blocks = {e.tensor for e in loaded if not all(isinstance(i, At) for i in e.index)}
    views: dict[View, Tensor] = {}

    def turned(picked: LookedUp) -> Expr | None:
        far = _distance(picked.place, values)
        if far is None or not _is_number(far[1], values, blocks | stored):
            return None
        return _diagonal(kernel, picked, far, views)

    made = with_tables(kernel, turned)
    return replace(made, tensors=(*kernel.tensors, *views.values()))


def _diagonal(
    kernel: KernelIR, picked: LookedUp, far: tuple[bool, Expr], views: dict[View, Tensor]
) -> Expr | None:
    """The numbers at that distance, of all of a table that is long enough."""
    table = kernel.tensor(picked.load.tensor)
    size = table.shape[picked.dim]
    if size < LEAST or not picked.is_whole(kernel):
        return None
    back, apart = far  # the table is turned round where rows count up
    first = integers.sub(integers.const(size - 1), apart) if back else apart
    line = _line(kernel, table, View(table.name, "ends", (picked.dim, int(back), SIDE)), views)
    row = picked.row(line.name, line.shape[picked.dim])
    return picked.applied(OP, row, integers.add(integers.const(SIDE), first))


def _line(kernel: KernelIR, table: Tensor, view: View, views: dict[View, Tensor]) -> Tensor:
    """The table as such lines, whole registers long."""
    if view not in views:
        dim, _, side = view.arg
        length = -(-(table.shape[dim] + 2 * side) // 128) * 128
        shape = (*table.shape[:dim], length, *table.shape[dim + 1 :])
        known = replace(kernel, tensors=(*kernel.tensors, *views.values()))
        views[view] = table.seen(unique(known, table.name, "line"), view, shape)
    return views[view]


def _is_number(expr: Expr, values: Mapping[str, Expr], held: Collection[str]) -> bool:
    """Whether scalar units know it: lanes are turned by no number that vectors were made to.

    held  tensors that do not lie in scalar memory
    """
    return not any(
        e.type.shape or isinstance(e, Var) or (isinstance(e, Load) and e.tensor in held)
        for e in reached(expr, values)  # a name that is left is carried
    )


def _distance(place: Expr, values: Mapping[str, Expr]) -> tuple[bool, Expr] | None:
    """Whether rows count up and columns down, or the other way, and what is added to that."""

    def along(dim: int) -> Callable[[Expr], integers.Linear | None]:
        """What positions that run along a dimension are made of."""

        def part(expr: Expr) -> integers.Linear | None:
            if not expr.type.shape:
                return integers.anything(expr)
            match meant(expr, values):
                case TileIndex(axis):
                    return integers.anything(TilePosition(axis, dim))
                case Apply("expand_dims", (inner,)) as column if column.attr("axis") == 1:
                    return integers.linear(inner, along(0))
                case Apply("expand_dims" | "broadcast" | "detach" | "cast", (inner,)) if (
                    inner.type.dtype == "int32"
                ):
                    return integers.linear(inner, part)
                case known if known is not expr:
                    return integers.linear(known, part)
                case _:
                    return None

        return part

    found = integers.linear(meant(place, values), along(1)) if place.type.rank == 2 else None
    if found is None:
        return None
    terms: dict[Any, int] = found[0]
    lanes = {lane: times for lane, times in terms.items() if isinstance(lane, TilePosition)}
    wanted = [TilePosition(str(axis), dim) for dim, axis in enumerate(place.type.shape)]
    signs = [lanes.pop(lane, 0) for lane in wanted]
    if lanes or signs not in ([1, -1], [-1, 1]):
        return None
    apart = integers.total({e: n for e, n in terms.items() if e not in wanted}, found[1])
    return signs == [1, -1], apart
