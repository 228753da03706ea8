"""compile_for_cuda(lowered) -> CudaCompiled: Triton and ptxas, on a machine without a GPU.

They run in a worker, as libtpu does: a compilation may take minutes, and Triton's interpreter and
its compiler cannot share a process.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from ..codegen.triton.plan.types import Plan
from ..codegen.triton.target import Target
from ..errors import CompileError
from ..runtime.cuda.signature import signature_of
from ..runtime.lowering import Lowered
from ..schedule.config import Config
from .process import Gone, Worker
from .translate import gone, refused

COMMAND = (sys.executable, "-P", "-m", "tilelang.aot.cuda_worker")


@dataclass(frozen=True)
class Assembled:
    """What one @triton.jit function became.

    registers     32-bit registers per thread
    stack         bytes per thread: what registers did not hold; 0 is what to aim for
    shared        bytes of shared memory per program
    columns       of tensor memory, where sm_100 keeps what products add up
    warps         of one program
    instructions  how often the code has an instruction, loops count once: HGMMA (matrix products of
                  sm_90), UTCHMMA (of sm_100), HMMA, IMMA ... (of warps), LDGSTS and UTMALDG (copies
                  that do not wait), LDL and STL (spilled registers)
    scratch       bytes of device memory per program that who launches must give
    ptx           what ptxas was given
    """

    name: str
    registers: int
    stack: int
    shared: int
    warps: int
    instructions: Mapping[str, int]
    columns: int = 0
    scratch: int = 0
    ptx: str = field(default="", repr=False)

    @property
    def spills(self) -> int:
        """Instructions that read or write what registers did not hold."""
        return self.instructions.get("LDL", 0) + self.instructions.get("STL", 0)

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {n}" for name, n in self.instructions.items() if n)
        return (
            f"{self.name}: {self.registers} registers, stack {self.stack}, "
            f"shared memory {self.shared:,}, {self.warps} warps{'; ' if shown else ''}{shown}"
        )


@dataclass(frozen=True)
class CudaCompiled:
    """One kernel, compiled for one GPU architecture; nothing was run.

    source    the generated module that was compiled
    programs  one for each launch
    seconds   of Triton and ptxas, without the start of the worker; little if Triton's cache knew it
    warnings  what Python warned of meanwhile
    """

    target: Target
    config: Config
    source: str = field(repr=False)
    programs: tuple[Assembled, ...]
    seconds: float
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A line, and one for each launch."""
        blocks = ", ".join(f"{name}={size}" for name, size in self.config.blocks)
        head = f"{self.target}, blocks {blocks or 'none'}: compiled in {self.seconds:.2f} s"
        warned = (f"warning: {text}" for text in self.warnings)
        return "\n".join([head, *map(str, self.programs), *warned])


def compile_for_cuda(
    lowered: Lowered, *, timeout: float = 120.0, worker: Worker | None = None
) -> CudaCompiled:
    """Compiles every launch of a kernel, in `worker` or else in a worker of its own.

    Raises CompileError where Triton or ptxas refuses, dies, or needs more than `timeout` seconds
    (the start of an own worker included), and where a program needs more memory than the
    architecture has, which would only be told when it is launched.
    """
    plan, target = lowered.plan, lowered.target
    assert isinstance(plan, Plan) and isinstance(target, Target), "the target is a GPU"
    with Worker(COMMAND) if worker is None else nullcontext(worker) as using:
        try:
            reply = using.ask(request_of(lowered, plan, target), timeout)
        except Gone as ended:
            raise gone(lowered, ended, timeout) from None
    if "error" in reply:
        raise refused(lowered, reply["error"], reply["line"])
    programs = tuple(Assembled(**made) for made in reply["programs"])
    for program in programs:
        _check_memory(lowered, target, program)
    return CudaCompiled(
        target,
        lowered.config,
        lowered.source.text,
        programs,
        reply["seconds"],
        tuple(reply["warnings"]),
    )


def request_of(lowered: Lowered, plan: Plan, target: Target) -> dict[str, Any]:
    """What a worker is sent: text, names and numbers."""
    return {
        "text": lowered.source.text,
        "entry": lowered.source.entry,
        "arch": target.arch,
        "serialize": True,
        "launches": [
            {
                "name": launch.name,
                "signature": signature_of(plan, launch),
                "warps": launch.warps,
                "stages": launch.stages,
                "max_registers": launch.max_registers,
            }
            for launch in plan.launches
        ],
    }


def _check_memory(lowered: Lowered, target: Target, program: Assembled) -> None:
    """CompileError for what would only be told when the program is launched."""
    for needs, may, what in (
        (program.shared, target.shared, "bytes of shared memory"),
        (program.columns, target.columns, "columns of tensor memory"),
    ):
        if needs > may:
            raise CompileError(
                f"{lowered.ir.name} for {target} does not compile: {program.name} needs "
                f"{needs:,} {what}, a program may have {may:,}",
                lowered.ir.loc,
                "use smaller blocks or fewer stages: config=tile.Config(blocks={...}, stages=2)",
            )
