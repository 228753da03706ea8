"""Chain: one top-level loop as the loops that contain one loop each, and the innermost body.

for g: A; for t: B; (for k: C); D       ->   levels (g: A, -), (t: B, D), (k: C)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from .traversal import map_body, map_carries, statement_exprs, statements
from .types import Body, Carry, Expr, Loop, Stmt


@dataclass(frozen=True)
class Level:
    """One loop of the chain: the statements before and after the loop that it contains."""

    axis: str
    carries: tuple[Carry, ...]
    before: Body
    after: Body


Chain = tuple[tuple[Level, ...], Body]  # levels, and what the innermost one contains


def map_chain(
    levels: tuple[Level, ...],
    leaf: Body,
    change: Callable[[Stmt], Body],
    carried: Callable[[Expr], Expr],
) -> Chain:
    """A chain with `map_body(..., change)`, and `carried` applied to what its loops carry."""

    def changed(level: Level) -> Level:
        before, after = map_body(level.before, change), map_body(level.after, change)
        return Level(level.axis, map_carries(level.carries, carried), before, after)

    return tuple(map(changed, levels)), map_body(leaf, change)


def chain(loop: Loop, stop: Callable[[Loop], bool]) -> Chain:
    """The loops that contain exactly one loop each, from the outside in, and the innermost body.

    `stop(inner)` ends the chain early: that loop stays in the body.
    """
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if len(inner) != 1 or stop(inner[0]):
        return (Level(loop.axis, loop.carries, (), ()),), loop.body
    position = loop.body.index(inner[0])
    levels, body = chain(inner[0], stop)
    before, after = loop.body[:position], loop.body[position + 1 :]
    return (Level(loop.axis, loop.carries, before, after), *levels), body


def interchange(levels: tuple[Level, ...], leaf: Body, outward: Collection[str]) -> Chain:
    """Takes the axes in `outward` out of the chain: they become outer grid dimensions.

    What stood before and after an inner loop joins the statements around the next loop further in
    when the loop between them moves out, because both then start and end together.  The first
    level that is returned has no axis: it holds what stands above every remaining loop.
    """
    remaining = [Level("", (), (), ())]
    for level in levels:
        if level.axis not in outward:
            remaining.append(level)
            continue
        host = remaining.pop()
        before, after = host.before + level.before, level.after + host.after
        remaining.append(replace(host, before=before, after=after))
    if levels[-1].axis in outward:
        host = remaining.pop()
        leaf = host.before + leaf + host.after
        remaining.append(replace(host, before=(), after=()))
    return tuple(remaining), leaf


def level_statements(levels: tuple[Level, ...], leaf: Body) -> Body:
    """All statements of a chain, in program order."""
    before = tuple(s for level in levels for s in level.before)
    after = tuple(s for level in reversed(levels) for s in level.after)
    return before + leaf + after


def chain_exprs(levels: tuple[Level, ...], leaf: Body) -> Iterator[Expr]:
    """Everything that a chain computes, and what its loops carry."""
    for stmt in statements(level_statements(levels, leaf)):
        yield from statement_exprs(stmt)
    for level in levels:
        yield from (e for c in level.carries for e in (c.init, c.next))
