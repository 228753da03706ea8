"""Loops: what a loop computes itself, whether it copies ahead what it loads, and which is none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tilelang import ir
from tilelang.ir import every_expr, reached, statement_exprs, walk
from tilelang.ir.traversal import dots, index_exprs, map_body


def own_exprs(loop: ir.Loop) -> Iterator[ir.Expr]:
    """What the loop computes itself, and not in one inside of it."""
    own = [x for s in loop.body if not isinstance(s, ir.Loop) for x in statement_exprs(s)]
    return (e for x in (*own, *(c.next for c in loop.carries)) for e in walk(x))


def own_dots(loop: ir.Loop) -> dict[ir.Apply, None]:
    """Every product that the loop computes itself."""
    return dict.fromkeys(dots(own_exprs(loop)))


def dots_in(loop: ir.Loop) -> Iterator[ir.Apply]:
    """Every product of a loop and of the loops inside."""
    return dots(every_expr((loop,)))


def copies_ahead(kernel: ir.KernelIR, loop: ir.Loop, stored: Collection[str]) -> bool:
    """Whether a loop of a kernel without products copies ahead what it loads.

    Not around another loop, and nothing ahead of a store that may change it.
    """
    loads = [e for e in own_exprs(loop) if isinstance(e, ir.Load) and e.type.shape]
    innermost = not any(isinstance(s, ir.Loop) for s in loop.body)
    free = all(kernel.root(load.tensor) not in stored for load in loads)
    return innermost and bool(loads) and free


def moves_along(load: ir.Load, axis: str, made: Mapping[str, ir.Expr]) -> bool:
    """Whether iterations of a loop load different elements."""
    parts = [e for i in load.index for x in index_exprs(i) for e in reached(x, made)]
    along = any(isinstance(i, ir.Along) and i.axis == axis for i in load.index)
    return along or any(
        (isinstance(e, ir.GridIndex | ir.TileIndex | ir.TileScalar) and e.axis == axis)
        or (isinstance(e, ir.Load) and moves_along(e, axis, made))
        for e in parts
    )


def without(loop: ir.Loop, once: Collection[str]) -> ir.Loop:
    """The loop with those inside that run once as parts of its body, as the compiler has them."""

    def change(stmt: ir.Stmt) -> ir.Body:
        if not isinstance(stmt, ir.Loop) or stmt.axis not in once:
            return (stmt,)
        before = (ir.Assign(c.name, c.init, c.loc, c.user) for c in stmt.carries)
        after = (ir.Assign(c.out, c.next, c.loc, c.user) for c in stmt.carries)
        return (*before, *stmt.body, *after)

    return replace(loop, body=map_body(loop.body, change))
