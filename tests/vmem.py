"""The vector memory that the TPU compiler needs for a kernel, in its own words.

It says how much only when it refuses: a kernel that is granted too little is refused at the first
allocation that does not fit, with the sum so far.  Granting that sum again and again ends at what
the kernel needs.
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
_NEEDS = re.compile(r"allocation with size ([\d.]+)([KMG]?) and limit")


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
            limit = max(int(float(said[1]) * UNITS[said[2]]) + 1, limit + limit // 64)
