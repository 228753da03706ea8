"""compile_lowered(lowered): the real compilers, on a machine without a TPU and without a GPU.

libtpu compiles ahead of time for any generation, Triton and ptxas for any architecture.  They may
abort the process that they run in or take minutes, so they run in workers; what happens there
arrives here as a value or as a CompileError.
"""

from __future__ import annotations

from .compile import GENERATIONS, compile_lowered, compile_standing, generation_of, worker_for
from .cuda import Assembled, CudaCompiled
from .process import Gone, Worker
from .report import Bundles, Compiled, CompiledMemory, Copy, Schedule

__all__ = [
    "GENERATIONS",
    "Assembled",
    "Bundles",
    "Compiled",
    "CompiledMemory",
    "Copy",
    "CudaCompiled",
    "Gone",
    "Schedule",
    "Worker",
    "compile_lowered",
    "compile_standing",
    "generation_of",
    "worker_for",
]
