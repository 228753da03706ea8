"""Uses: which dimensions of which arrays every axis indexes, in program order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..errors import PlanError
from ..ir import (
    Along,
    At,
    Axis,
    Expr,
    Gather,
    Index,
    KernelIR,
    Loop,
    Stmt,
    Store,
    integers,
    statements,
)
from ..ir.traversal import loads
from ..language.dtypes import itemsize


@dataclass(frozen=True)
class Use:
    """A tensor dimension that a tile axis moves along; `place` counts dimensions from the last."""

    tensor: str
    dim: int
    size: int
    place: int
    itemsize: int
    offset: Expr | None
    written: bool
    loose: bool = False


def references(body: Iterable[Stmt]) -> Iterator[tuple[str, tuple[Index, ...], bool]]:
    """(tensor, index, written) of every load and store, in program order."""
    for stmt in statements(tuple(body)):
        for expr in _own(stmt):
            for load in loads(expr):
                yield load.tensor, load.index, False
        if isinstance(stmt, Store):
            yield stmt.tensor, stmt.index, True


def _own(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Store():
            masks = () if stmt.mask is None else (stmt.mask,)
            return (*_inside(stmt.index), stmt.value, *masks)
        case Loop():
            return tuple(e for c in stmt.carries for e in (c.init, c.next))
        case _:
            return (stmt.value,)


def _inside(index: tuple[Index, ...]) -> tuple[Expr, ...]:
    found = []
    for entry in index:
        expr = getattr(entry, "offset", None) or getattr(entry, "expr", None)
        if expr is not None:
            found.append(expr)
    return tuple(found)


def uses(ir: KernelIR, axis: str) -> tuple[Use, ...]:
    """The dimensions that an axis cuts into tiles, in program order, without repeats.

    Those are the ones that it indexes at one offset: where it is stored to, else where it begins.
    What it may leave has no say.
    """
    found = tuple(u for u in all_uses(ir, axis) if not u.loose or u.written)
    stored = [u.offset for u in found if u.written]
    plain = [None] if any(u.offset is None for u in found) else [u.offset for u in found]
    return tuple(u for u in found if u.offset == (stored or plain)[0])


def all_uses(ir: KernelIR, axis: str) -> tuple[Use, ...]:
    """The dimensions that an axis indexes, at whatever offset."""
    found: dict[Use, None] = {}
    for name, index, written in references(ir.body):
        tensor = ir.tensor(name)
        for dim, entry in enumerate(index):
            if isinstance(entry, Along) and entry.axis == axis:
                place = _place(index, dim)
                size = itemsize(tensor.dtype)
                use = Use(
                    name, dim, tensor.shape[dim], place, size, entry.offset, written, entry.loose
                )  # fmt: skip
                found[use] = None
    return tuple(found)


def shift_of(ir: KernelIR, axis: Axis) -> Expr | None:
    """The offset at which arrays are cut into tiles of the axis, None if there is none.

    An axis that cuts no array counts from where its range begins, wherever that is.
    """
    stored = {u.offset for u in all_uses(ir, axis.name) if u.written}
    if len(stored) > 1:
        raise PlanError(
            f"{axis.user} says where outputs are stored, at {len(stored)} different offsets",
            axis.loc,
            "tiles of outputs are cut at one place: use a second loop for the others",
        )
    found = uses(ir, axis.name)
    if not found and axis.static is None and integers.value_of(axis.begin) is None:
        return integers.sub(integers.const(0), axis.begin)
    return next((u.offset for u in found), None)


def _place(index: tuple[Index, ...], dim: int) -> int:
    """The dimension counted from the last one, once single positions have moved to the front."""
    picked = [isinstance(entry, At) for entry in index]
    if any(picked[-2:]) and sum(picked) <= len(index) - 2:
        return 1 + picked[dim + 1 :].count(False)
    return len(index) - dim


def extent(ir: KernelIR, axis: Axis) -> int:
    """The length of the dimension that a tile axis moves along."""
    sizes = {u.size for u in uses(ir, axis.name)}
    if sizes:
        return max(sizes)
    if axis.max_extent is not None:
        return axis.max_extent
    if axis.static is not None:
        return axis.static[1]
    raise PlanError(
        f"{axis.user} has no bound", axis.loc, "give hl.tile(..., max_extent=) an upper bound"
    )


def picks_rows(index: tuple[Index, ...]) -> bool:
    """Whether an index array picks positions of a dimension."""
    return any(isinstance(entry, Gather) for entry in index)


def reads_memory(expr: Expr) -> bool:
    """Whether a position is known only when the kernel runs."""
    return next(loads(expr), None) is not None
