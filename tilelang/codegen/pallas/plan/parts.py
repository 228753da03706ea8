"""Parts as data: which rows of a step table are those of each core.

b  0 0 0 1 1 1 1 2 2      a core's part begins at the first row, from its share of them on,
   core 0 | core 1        where a block of every output does
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.ir import Expr

from .windows.types import Number


@dataclass(frozen=True)
class Parts:
    """How cores share the rows of a table.

    turns  the block of every output -> those of its numbers of which one differs in a row that
           begins a part from the row before
    share  the row from which on such a one is looked for: over CORE and COUNT
    later  what LATER is: row STEP, or one that exists where that has none before it
    on     whether row STEP is none, so that the next one is looked at: over STEP, COUNT and LATER
    """

    turns: tuple[tuple[str, tuple[Number, ...]], ...]
    share: Expr
    later: Expr
    on: Expr
