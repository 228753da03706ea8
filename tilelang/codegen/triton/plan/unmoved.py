"""unmoved(loop): what a loop reads that is the same in all of its iterations."""

from __future__ import annotations

from tilelang import ir
from tilelang.ir import children, every_expr, every_loop, statements, walk


def unmoved(loop: ir.Loop) -> tuple[ir.Load, ...]:
    """The loads, in their order, whose elements are known before the loop."""
    axes, names = _bound(loop)
    found = (e for e in every_expr(loop.body) if isinstance(e, ir.Load))
    return tuple(dict.fromkeys(e for e in found if not _moves(e, axes, names)))


def depends(value: ir.Expr, loop: ir.Loop) -> bool:
    """Whether iterations of a loop have different values of an expression."""
    axes, names = _bound(loop)
    return any(_depends(e, axes, names) for e in walk(value))


def _bound(loop: ir.Loop) -> tuple[set[str], set[str]]:
    """Axes of a loop and of those inside, and the names that they give to values."""
    loops = list(every_loop((loop,)))
    names = {s.name for s in statements((loop,)) if isinstance(s, ir.Assign)}
    names |= {n for s in loops for c in s.carries for n in (c.name, c.out)}
    return {s.axis for s in loops}, names


def _moves(load: ir.Load, axes: set[str], names: set[str]) -> bool:
    return any(_along(i, axes) for i in load.index) or any(
        _depends(e, axes, names) for part in children(load) for e in walk(part)
    )


def _along(entry: ir.Index, axes: set[str]) -> bool:
    return isinstance(entry, ir.Along) and entry.axis in axes


def _depends(expr: ir.Expr, axes: set[str], names: set[str]) -> bool:
    match expr:
        case ir.Var(name):
            return name in names
        case ir.GridIndex(axis) | ir.TileIndex(axis) | ir.TileScalar(axis):
            return axis in axes
        case ir.Load():
            return any(_along(i, axes) for i in expr.index)
        case ir.Apply("in_range"):
            return expr.attr("axis") in axes
        case _:
            return not axes.isdisjoint(expr.type.shape)
