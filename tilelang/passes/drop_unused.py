"""Drop unused: what no store depends on goes, through assignments and what loops carry.

a = x[i]; for j: n = n + 1; y[i] = 2   ->   y[i] = 2
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import assert_never

from .. import ir
from ..ir import edges_of, every_loop, read_by, statement_exprs, statements
from ..ir.traversal import map_body


def drop_unused(
    body: ir.Body, axes: Iterable[ir.Axis] = (), among: Collection[str] | None = None
) -> ir.Body:
    """Removes assignments, carries and loops that neither a store nor a range needs.

    `among`: the names whose assignments may go, and then nothing else does.
    """
    needed = _needed(body, read_by(edges_of(axes)))

    def keep(stmt: ir.Stmt) -> ir.Body:
        match stmt:
            case ir.Assign():
                stays = among is not None and stmt.name not in among
                return (stmt,) if stays or stmt.name in needed else ()
            case ir.Loop() if among is not None:
                return (stmt,)
            case ir.Store():
                return (stmt,)
            case ir.Loop():
                kept = tuple(c for c in stmt.carries if not needed.isdisjoint({c.name, c.out}))
                return (replace(stmt, carries=kept),) if stmt.body or kept else ()
            case _:
                assert_never(stmt)

    return map_body(body, keep)


def used(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel without values and loops that nothing needs any more, and their axes."""
    body = drop_unused(kernel.body, kernel.axes)
    kept = {loop.axis for loop in every_loop(body)}
    axes = tuple(a for a in kernel.axes if a.name in kept)
    nests = tuple(loop for loop in body if isinstance(loop, ir.Loop))
    return replace(kernel, axes=axes, body=nests)


def _needed(body: ir.Body, wanted: Iterable[str]) -> set[str]:
    """Names that a store depends on, through assignments and carries; `wanted` besides."""
    sources: dict[str, set[str]] = {}
    queue = list(wanted)
    for stmt in statements(body):
        match stmt:
            case ir.Assign():
                sources[stmt.name] = set(read_by((stmt.value,)))
            case ir.Store():
                queue += read_by(statement_exprs(stmt))
            case ir.Loop():
                for carry in stmt.carries:
                    made_of = set(read_by((carry.init, carry.next)))
                    sources[carry.name] = sources[carry.out] = made_of
            case _:
                assert_never(stmt)
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += sources.get(name, ())
    return found
