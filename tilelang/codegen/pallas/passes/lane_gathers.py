"""Lane gathers: numbers that selects pick from a table at any positions, of many lanes at once.

    at = where(near >= 1, bias[h, 1], bias[h, 0])
    at = where(near >= 2, bias[h, 2], at) ...       ->   at = lane_gather(bias[h, 0:64], near)

In TPUs each lane of a register reads any lane of another one.  So 128 numbers of a table cost what
a few comparisons and selects do: of 64, attention took twice as long.  What `diagonals` takes costs
less still.
"""

from __future__ import annotations

from tilelang.codegen.looked_up import LookedUp, with_tables
from tilelang.ir import Expr, KernelIR

OP = "lane_gather"  # (table [n], place [rows, columns]): table[clamp(place, 0, n - 1)]
LEAST = 13  # entries: as many selects take as long, by schedules of v6e and v5e


def lane_gathers(kernel: KernelIR) -> KernelIR:
    """The kernel with such values."""

    def gathered(picked: LookedUp) -> Expr | None:
        size = picked.last + 1
        if size < LEAST or not picked.is_whole(kernel):
            return None
        return picked.applied(OP, picked.row(picked.load.tensor, size), picked.place)

    return with_tables(kernel, gathered)
