"""copied(dots, ...) -> what a loop loads ahead of its products, and how far each is from them.

    page = table[p]; k = k_pages[page]; s = dot(q, k.T)    k: 0, table[p]: 1, which k waits for

Triton 3.6 divides the stages of a loop among loads that wait for each other: of 5 stages a page is
there 2 iterations before its rows, and these 2 before their product.  It follows what each product
needs, and what is found at several distances is not copied: a position that a mask compares too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tilelang.ir import Along, Apply, Expr, GridIndex, Load, TileIndex, TileScalar, Var
from tilelang.ir.traversal import children


def copied(
    dots: Iterable[Apply],
    made: Mapping[str, Expr],
    moves: Callable[[Load], bool],
    bounds: Mapping[str, tuple[Expr, Expr]],
    most: int,
) -> dict[Load, int]:
    """Of loads that `moves` says are others in each iteration: those less than `most` away.

    bounds   axes whose range is found in the loop itself, with where it begins and ends
    """
    found: dict[Load, int] = {}
    several: set[Load] = set()
    for dot in dots:
        seen: set[Expr] = set()
        stack: list[tuple[Expr, int]] = [(dot, 0)]
        while stack:
            part, distance = stack.pop()
            if part in seen or part in several:
                continue
            seen.add(part)
            if isinstance(part, Load):
                if not moves(part):
                    continue
                if found.setdefault(part, distance) != distance:
                    several.add(part)
                    continue
                distance += 1
            stack += ((e, distance) for e in reversed(_inside(part, made, bounds)))
    return {e: n for e, n in found.items() if e not in several and n < most}


def _inside(
    part: Expr, made: Mapping[str, Expr], bounds: Mapping[str, tuple[Expr, Expr]]
) -> tuple[Expr, ...]:
    """What an expression is computed from at once."""
    match part:
        case Var(name):
            return (made[name],) if name in made else ()
        case GridIndex(axis) | TileIndex(axis) | TileScalar(axis):
            return bounds.get(axis, ())
        case Load():
            along = (i.axis for i in part.index if isinstance(i, Along))
            return (*children(part), *(e for axis in along for e in bounds.get(axis, ())))
        case _:
            return children(part)
