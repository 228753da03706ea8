"""The vector memory that the TPU compiler needs for a kernel, in its own words.

It says how much only when it refuses: a kernel that is granted too little is refused at the first
allocation that does not fit, with the sum so far.  Granting that sum again and again ends at what
the kernel needs.  Arrays that XLA keeps in vector memory by itself are in the sum and in the limit
that it names, which is then more than was granted: they are none of the kernel's.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tests.compile_cache import CachedWorker
from tilelang.aot import compile_lowered
from tilelang.codegen.pallas.emit import emit
from tilelang.errors import CompileError
from tilelang.runtime.lowering import Lowered

LEAST = 64 * 1024  # bytes that are granted first
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = r"([\d.]+)([KMG]?)"
_NEEDS = re.compile(rf"allocation with size {_SIZE} and limit {_SIZE} exceeded")


def granted(lowered: Lowered, limit: int) -> Lowered:
    """The same kernel, asking the compiler for `limit` bytes of vector memory."""
    launches = tuple(
        replace(launch, memory=replace(launch.memory, limit=limit))
        for launch in lowered.plan.launches
    )
    plan = replace(lowered.plan, launches=launches)
    return replace(lowered, plan=plan, source=emit(plan))


def needed(lowered: Lowered, worker: CachedWorker) -> int:
    """Bytes with which the kernel compiles, at most 2 % more than the least; CompileError where
    something else is wrong."""
    limit = LEAST
    while True:
        try:
            compile_lowered(granted(lowered, limit), worker=worker)
            return limit
        except CompileError as error:
            said = _NEEDS.search(error.raw)
            if said is None:
                raise
            limit = max(_own(said, limit), limit + limit // 64)


def _own(said: re.Match[str], granted: int) -> int:
    """Bytes that the kernel itself needs, of those that the compiler asks for: two of its digits
    are behind the point."""
    size, most = (int(float(said[at]) * UNITS[said[at + 1]]) + 1 for at in (1, 3))
    others = most - granted
    return size - others if others > granted // 64 + UNITS["M"] // 64 else size
