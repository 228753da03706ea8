"""COSTS: cycles of the units of each generation, for a unit of Work.

Fitted to schedules that libtpu 0.0.42.1 made and `autotune.model` executed, of examples at
production shapes (benchmarks/schedules.json): `make calibrate` does it again.  What is not
fitted (clock, bandwidth, latency, matrix units) is the chip's (`codegen/pallas/chips.py`).  The ALU
has four slots in a bundle and the special unit two results in four cycles; v5p and v4 have the
units of v5e, 7x those of v6e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Costs:
    """Cycles.

    grid, pipeline  of a step besides its work: of a grid, of a pipeline over a table of steps
    window          of every window that moves, in every step
    sums ... spills  for one of each, as in Work
    reduced, numbers  lanes and columns of launches without products, and without loops that carry
    others          share of what the units but the slowest one take that is not hidden behind it
    """

    grid: float
    pipeline: float
    sums: float
    alu: float
    special: float
    memory: float
    lanes: float
    rotated: float
    columns: float
    reduced: float
    numbers: float
    turns: float
    chain: float
    rows: float
    spills: float
    window: float
    others: float


_NARROW = Costs(
    grid=70, pipeline=182, sums=1.475, alu=0.25, special=0.5, memory=0.699, lanes=5.54,
    rotated=3.55, columns=0.2, reduced=3.65, numbers=0.1, turns=0, chain=136, rows=25,
    spills=0.696, window=0.5, others=0.03,
)  # fmt: skip
_WIDE = Costs(
    grid=123, pipeline=161, sums=0.836, alu=0.25, special=0.5, memory=0.219, lanes=5.28,
    rotated=2.4, columns=0.2, reduced=2.05, numbers=0, turns=0, chain=117, rows=25, spills=0.59,
    window=17.7, others=0.055,
)  # fmt: skip

COSTS: Mapping[str, Costs] = MappingProxyType(
    {"v4": _NARROW, "v5e": _NARROW, "v5p": _NARROW, "v6e": _WIDE, "7x": _WIDE}
)
# A register of a row that is folded waits for the one before, where no product stands beside it:
# 128 x 32768 numbers take 5 % more cycles than 512 x 8192 in cross_entropy's schedules, on v5e and
# v6e.
DEEP = 1.4  # cycles
# The table of steps is made before the first one, by scalar loops.
GROUP, ROW = 30, 10  # cycles
# An iteration asks how often its loops turn, of several in a step: by v6e's schedules of softmax.
ASKED = 15  # cycles
# A step of a rectangle, whether anything is there or not, finds out for each of its blocks where it
# is: 650 to 700 cycles in schedules of v6e for four and five windows, of which 123 are a step's.
RECTANGLE = 550  # cycles
