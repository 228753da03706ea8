"""Near: launches whose arrays XLA brings to vector memory before, and takes from there afterwards.

    x [500, 200] bfloat16    in rows     504 x 256 numbers, whole register tiles of 8 x 128
                             in columns  200 x 512: less, so a program is called with these

Kernels have their arrays in rows.  XLA turns such an array before the launch; what that gives stays
in vector memory where there is room, and other arrays are brought there meanwhile.  So no step has
its copies from HBM behind the work of another: the fewest steps are the fastest.
"""

from __future__ import annotations

import math

from tilelang.codegen.pallas.plan.types import Launch, Window
from tilelang.codegen.pallas.target import Target
from tilelang.language.dtypes import itemsize

from .costs import Costs

ROOM = 8  # of vector memory, the part that such arrays may take: a guess


def bytes_near(launch: Launch, target: Target) -> float | None:
    """Bytes that come and go around the launch; None where its steps copy them."""
    moved = [w for w in launch.windows if not w.far]
    if not any(_turned(w) for w in moved if not w.output):
        return None
    arrays = {(w.array, w.output): w for w in moved}
    total = sum(_held(w.shape) * itemsize(w.dtype) for w in arrays.values())
    return total if ROOM * total <= target.vmem_physical else None


def saved(launch: Launch, costs: Costs) -> float:
    """Cycles that the only step of a grid is shorter, which no pipeline has to bring anything."""
    return 0 if launch.form == "pipeline" else costs.grid + costs.window * len(launch.windows)


def _turned(window: Window) -> bool:
    """Whether an array takes less room in columns than in rows."""
    shape = window.shape
    return len(shape) >= 2 and _held((*shape[:-2], shape[-1], shape[-2])) < _held(shape)


def _held(shape: tuple[int, ...]) -> int:
    """Numbers in the register tiles of an array."""
    *lead, rows, lanes = (1, *shape)[-max(len(shape), 2) :]
    return math.prod(lead) * -(-rows // 8) * 8 * -(-lanes // 128) * 128
