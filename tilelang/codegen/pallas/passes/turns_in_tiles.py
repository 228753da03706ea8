"""Turns in tiles: a loop over single rows -> one over tiles of them, and in each over its rows.

    for t in grid(b, e):                     for t in tile(b, e):
        h = a[t, :] * h + x[t, :]     ->         for t_row in grid(t.begin, t.end):
        y[t, :] = h                                  h = a[t_row, :] * h + x[t_row, :]
                                                     y[t_row, :] = h

The order stays what it was.  A step then has a block of rows, and what goes on from one row to the
next stays in it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.analysis import again
from tilelang.ir import Expr
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import map_range, rewrite, rewrite_body
from tilelang.schedule.problem import Problem
from tilelang.schedule.rows import rows_of_tiles

from .blocked_groups import refuse

WHICH = (
    "only an hl.grid loop that uses arrays in the rows of its own index, and is in no tile of "
    "theirs, can have tiles of turns"
)


def turns_in_tiles(problem: Problem, name: str, block: int | None = None) -> Problem:
    """The kernel with tiles around an `hl.grid` loop, of so many indices or as many as a plan
    chooses.

    Raises Refused where its arrays would not be cut into blocks of those.
    """
    axis, kernel = problem.axis(name), problem.ir
    no = partial(refuse, axis, WHICH)
    if name in rows_of_tiles(kernel):
        no("it goes through the rows of a tile already", axis.loc)
    taken = names_in(kernel)
    row = take(f"{name}_row", taken)
    inner = ir.GridIndex(row)

    def change(expr: Expr) -> Expr | None:
        return inner if isinstance(expr, ir.GridIndex) and expr.axis == name else None

    def around(stmt: ir.Stmt) -> ir.Body:
        if not isinstance(stmt, ir.Loop) or stmt.axis != name:
            return (stmt,)
        pairs = [_nested(replace(c, next=rewrite(c.next, change)), taken) for c in stmt.carries]
        outer, inside = (tuple(pair[i] for pair in pairs) for i in (0, 1))
        turns = replace(stmt, axis=row, body=rewrite_body(stmt.body, change), carries=inside)
        return (replace(stmt, body=(turns,), carries=outer),)

    edges = ir.TileScalar(name, "begin"), ir.TileScalar(name, "end")
    tile = replace(axis, kind="tile", block=name if block is None else block)
    rows = replace(axis, name=row, begin=edges[0], end=edges[1])
    others = (map_range(a, lambda e: rewrite(e, change)) for a in kernel.axes if a.name != name)
    place = next(i for i, a in enumerate(kernel.axes) if a.name == name)
    axes = [*others]
    axes[place:place] = [tile, rows]
    whole = replace(kernel, axes=tuple(axes), body=ir.map_body(kernel.body, around))
    if row not in rows_of_tiles(whole):
        no("it indexes arrays in another way too", axis.loc)
    return Problem(whole, again(whole, problem.facts))


def _nested(carry: ir.Carry, taken: set[str]) -> tuple[ir.Carry, ir.Carry]:
    """What is carried from tile to tile, and in each from row to row."""
    name, out = take(carry.user, taken), take(carry.user, taken)
    kind = carry.init.type
    return replace(carry, name=name, next=ir.Var(out, kind)), replace(
        carry, init=ir.Var(name, kind), out=out
    )
