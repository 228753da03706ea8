"""Turns: how many copies of an array a loop has beside tensor memory, as Triton 3.6 schedules it.

    s = dot(q, k.T)            k is copied    2 iterations before the last product runs
    acc = ... + dot(p, v)      v is copied    1 iteration before

What is copied is there `ahead` iterations before its product.  A product whose operands all are
copied runs an iteration before those that need its result, and while the next one begins; so does
one whose result only the next iteration needs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilelang.ir import Expr


@dataclass(frozen=True)
class ProductUse:
    """A product of a loop.

    loads   what it reads as it was copied
    feeds   numbers of later products that need its result in the same iteration
    copied  all of its operands are copied, or there before the loop
    read    the iteration needs its result
    """

    loads: Collection[Expr]
    feeds: Collection[int]
    copied: bool
    read: bool

    @property
    def stays(self) -> bool:
        """Whether it still reads while the next iteration begins."""
        return self.copied or not self.read


def turns(uses: Sequence[ProductUse], ahead: int) -> dict[Expr, int]:
    """What is loaded -> how many copies there are."""
    left: dict[int, int] = {}  # iterations from a product to the last one
    for number, use in reversed(list(enumerate(uses))):
        later = max((left[n] for n in use.feeds), default=0)
        left[number] = later + (use.copied and use.read)
    found: dict[Expr, int] = {}
    for load in {load for use in uses for load in use.loads}:
        own = [(left[n], use.stays) for n, use in enumerate(uses) if load in use.loads]
        first = ahead + max(turn for turn, _ in own)
        found[load] = max(first - turn + stays for turn, stays in own)
    return found
