"""Names: what expressions about steps read besides axes and the lines of ranges."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.axis import line_name
from tilelang.ir import Var
from tilelang.ir.integers import INT

# how many rows there are so far, or in all; of the rectangle, which step it is
COUNT = Var("steps.count", INT)
STEP = Var("steps.step", INT)  # the number of the step
ROW = Var("rows.number", INT)  # of a work list, the number of every row so far
ROWS = Var("rows.shape", INT)  # how many those are, as a shape
PHASE = Var("rows.phase", INT)  # the loop in a row that a row of the list is of
TILE = Var("rows.tile", INT)  # the tile of that loop
AWAY = Var("rows.away", INT)  # where a track is in rows of other loops
CORE = Var("parts.core", INT)  # of several that share the rows, which one it is
LATER = Var("parts.row", INT)  # the row that is compared with the one before it


def seen(axis: str) -> Var:
    """Every tile below it has a row already."""
    return line_name(axis, "seen")
