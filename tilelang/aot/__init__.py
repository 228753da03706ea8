"""compile_lowered(lowered) -> Compiled: the real TPU compiler, on a machine without a TPU.

libtpu compiles ahead of time for any generation.  It may abort the process that it runs in, so it
runs in a worker; what happens there arrives here as a value or as a CompileError.
"""

from __future__ import annotations

from .compile import GENERATIONS, compile_lowered, generation_of
from .process import Gone, Worker
from .report import Bundles, Compiled, Copy, Memory, Schedule

__all__ = [
    "GENERATIONS",
    "Bundles",
    "Compiled",
    "Copy",
    "Gone",
    "Memory",
    "Schedule",
    "Worker",
    "compile_lowered",
    "generation_of",
]
