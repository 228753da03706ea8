"""Loops: what a loop computes itself, whether it copies ahead what it loads, and which is none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tilelang.ir import (
    Along,
    Apply,
    Assign,
    Body,
    Expr,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Stmt,
    TileIndex,
    TileScalar,
    every_expr,
    reached,
    statement_exprs,
    walk,
)
from tilelang.ir.traversal import dots, index_exprs, map_body


def own_exprs(loop: Loop) -> Iterator[Expr]:
    """What the loop computes itself, and not in one inside of it."""
    own = [x for s in loop.body if not isinstance(s, Loop) for x in statement_exprs(s)]
    return (e for x in (*own, *(c.next for c in loop.carries)) for e in walk(x))


def own_dots(loop: Loop) -> dict[Apply, None]:
    """Every product that the loop computes itself."""
    return dict.fromkeys(dots(own_exprs(loop)))


def dots_in(loop: Loop) -> Iterator[Apply]:
    """Every product of a loop and of the loops inside."""
    return dots(every_expr((loop,)))


def copies_ahead(ir: KernelIR, loop: Loop, stored: Collection[str]) -> bool:
    """Whether a loop of a kernel without products copies ahead what it loads.

    Not around another loop, and nothing ahead of a store that may change it.
    """
    loads = [e for e in own_exprs(loop) if isinstance(e, Load) and e.type.shape]
    innermost = not any(isinstance(s, Loop) for s in loop.body)
    free = all(ir.root(load.tensor) not in stored for load in loads)
    return innermost and bool(loads) and free


def moves_along(load: Load, axis: str, made: Mapping[str, Expr]) -> bool:
    """Whether iterations of a loop load different elements."""
    parts = [e for i in load.index for x in index_exprs(i) for e in reached(x, made)]
    along = any(isinstance(i, Along) and i.axis == axis for i in load.index)
    return along or any(
        (isinstance(e, GridIndex | TileIndex | TileScalar) and e.axis == axis)
        or (isinstance(e, Load) and moves_along(e, axis, made))
        for e in parts
    )


def without(loop: Loop, once: Collection[str]) -> Loop:
    """The loop with those inside that run once as parts of its body, as the compiler has them."""

    def change(stmt: Stmt) -> Body:
        if not isinstance(stmt, Loop) or stmt.axis not in once:
            return (stmt,)
        before = (Assign(c.name, c.init, c.loc, c.user) for c in stmt.carries)
        after = (Assign(c.out, c.next, c.loc, c.user) for c in stmt.carries)
        return (*before, *stmt.body, *after)

    return replace(loop, body=map_body(loop.body, change))
