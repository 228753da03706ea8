"""chip_of(generation) -> Chip: what the time of a compiled program depends on, for each TPU.

Sources.  HBM bandwidth and peak: jax/_src/pallas/mosaic/tpu_info.py, less what published runs of
streaming kernels reach (tokamax's tables; 0.737 of 0.819 TB/s on v5e).  Clock: the peak, divided by
the work of a saturated matrix unit in one bundle; it agrees with the published 1.05, 1.5 and 1.75
GHz, and is a guess on 7x.  Latency of copies: of v5e fitted to the blocks of 128 x 128 x 128 in
JAX's guide to matrix products, of the others libtpu's own static profile.  Delay slots, granule and
the units' cycles: read off libtpu's final programs and its static profile of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Units:
    """Cycles of what stands behind a queue: the hardware waits for it, no bundle shows that.

    multiply     of a matrix unit for 8 rows
    product      from a multiplication to its first result
    results      registers of results for 8 rows: 2 where the unit is 256 lanes wide
    spacing      between those registers
    push         to store a register of weights
    reduce       from a reduction over lanes to its result
    permute      from a rotation or permutation of lanes to its result
    transpose    from the last row that goes in to the first that comes out
    crosslane    that a unit takes before it begins the next one of these three
    special      of exp, reciprocal, ... from its issue to its result
    matrix       matrix units
    """

    multiply: float
    product: float
    results: int
    spacing: float
    push: float
    reduce: float
    permute: float
    transpose: float
    special: float
    matrix: int
    crosslane: float = 4


@dataclass(frozen=True)
class Chip:
    """One generation.

    clock        Hz
    bandwidth    bytes per second between HBM and one core, as streaming kernels reach it
    read, write  seconds from the start of an empty copy from or to HBM to its end
    delay_slots  bundles after a branch that run all the same
    granule      bytes in which copies count sizes and addresses
    unit         bytes in which kernels count addresses of HBM; those of vector memory count 512
    cores        that share the work of one program
    """

    clock: float
    bandwidth: float
    read: float
    write: float
    delay_slots: int
    granule: int
    unit: int
    cores: int
    units: Units

    @property
    def implicit_delays(self) -> bool:
        """Whether an empty bundle may stand for all delay slots that are left, as on 7x."""
        return self.delay_slots > 4


_NARROW = Units(8, 127, 1, 8, 3, 116, 116, 99, 8, matrix=4)

CHIPS = MappingProxyType(
    {
        "v4": Chip(1.05e9, 0.55e12, 450e-9, 350e-9, 1, 512, 512, 2, _NARROW),
        "v5e": Chip(
            1.5e9, 0.737e12, 445e-9, 290e-9, 4, 32, 512, 1,
            Units(8, 127, 1, 8, 3, 116, 116, 99, 7, matrix=4),
        ),
        "v5p": Chip(1.75e9, 1.25e12, 380e-9, 350e-9, 4, 32, 32, 2, _NARROW),
        "v6e": Chip(
            1.75e9, 1.45e12, 313e-9, 260e-9, 4, 32, 32, 1,
            Units(4, 190, 2, 2, 2, 138, 138, 65, 13, matrix=2),
        ),
        "7x": Chip(
            1.74e9, 2.62e12, 350e-9, 300e-9, 6, 32, 32, 1,
            Units(4, 208, 2, 2, 2, 142, 142, 69, 10, matrix=2),
        ),
    }
)  # fmt: skip
