"""Life: how long an operand is in shared memory, in parts of a loop: products and loops inside."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Life:
    """Bytes that are in shared memory from one part of a loop to another one.

    `read`: how warps read them into registers, where they stay; None: a product reads the memory.
    `passes`: several products read the same registers, which are filled as soon as they can be.
    `waits`: the part before whose product they are not: its left operand is on its way first.
    """

    size: int
    first: int
    last: int
    read: tuple[int, bool] | None
    passes: bool = False
    waits: int | None = None

    def after(self, before: Life | None) -> Life:
        """The life that goes on with another product."""
        if before is None:
            return self
        if self.read is not None and self.read == before.read:
            return replace(before, passes=True)
        return replace(before, last=self.last, passes=False)

    def beside(self, number: int) -> int:
        """Bytes while one part runs."""
        there = number == self.waits if self.passes else self.first <= number <= self.last
        return self.size if there else 0
