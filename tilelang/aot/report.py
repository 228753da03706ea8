"""Compiled: what the TPU compiler made of a kernel, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..codegen.pallas.target import Target
from ..errors import CompileError
from ..schedule.config import Config


@dataclass(frozen=True)
class CompiledMemory:
    """Bytes that a compiled kernel needs.

    vmem         vector memory, as the plan predicts it (the largest launch)
    code         machine code
    temporaries  device memory that XLA allocates around the kernel: 0 if nothing is copied
    """

    vmem: int
    code: int
    temporaries: int


@dataclass(frozen=True)
class Copy:
    """A whole array that XLA moves around the kernel, in the optimised program.

    op     "copy", "transpose", "pad", "convert", ...; parts of a fusion are joined with "+"
    name   the instruction
    dtype  XLA's name: "bf16", "f32", "s32"
    shape  of the result
    """

    op: str
    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.op} {self.dtype}{list(self.shape)} ({self.name})"


@dataclass(frozen=True)
class Bundles:
    """Instruction bundles of one kernel of the program, counted as text: loops count once.

    ours     whether it is generated code, and not a kernel that XLA put around it
    step     bundles of one turn of its main loop, that is, of a step of the grid or the pipeline,
             with everything that is guarded; 0 without a loop
    guarded  those of a step that a branch may skip
    """

    kernel: str
    count: int
    ours: bool
    step: int = 0
    guarded: int = 0


@dataclass(frozen=True)
class Schedule:
    """The static size of the program, kernel by kernel."""

    kernels: tuple[Bundles, ...]

    @property
    def bundles(self) -> int:
        """Bundles of the generated kernels."""
        return sum(k.count for k in self.kernels if k.ours)

    @property
    def step(self) -> int:
        """Bundles of one step of the generated kernels, everything guarded included."""
        return sum(k.step for k in self.kernels if k.ours)

    @property
    def around(self) -> int:
        """Bundles of the kernels that XLA put around them."""
        return sum(k.count for k in self.kernels if not k.ours)

    def __str__(self) -> str:
        first = sorted(self.kernels, key=lambda k: not k.ours)
        return ", ".join(f"{k.kernel} {k.count}{'' if k.ours else ' (XLA)'}" for k in first)


@dataclass(frozen=True)
class Compiled:
    """One kernel, compiled for one TPU generation; nothing was run.

    source    the generated module that was compiled
    copies    whole arrays that XLA moves around the kernel; () is what to aim for
    seconds   tracing, lowering and compiling, without the start of the worker
    warnings  what Python warned of meanwhile
    schedule  bundle counts if they were asked for, else None
    """

    target: Target
    config: Config
    source: str = field(repr=False)
    memory: CompiledMemory
    copies: tuple[Copy, ...]
    seconds: float
    warnings: tuple[str, ...] = ()
    schedule: Schedule | None = None
    payload: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        """A few lines: how long it took, memory, what is moved, bundles."""
        blocks = ", ".join(f"{name}={size}" for name, size in self.config.blocks)
        need = self.memory
        lines = [
            f"{self.target}, blocks {blocks or 'none'}: compiled in {self.seconds:.2f} s",
            f"vector memory {need.vmem:,} bytes (by the plan), code {need.code:,}, "
            f"temporaries around the kernel {need.temporaries:,}",
            f"moved: {', '.join(map(str, self.copies)) or 'nothing'}",
        ]
        if self.schedule is not None:
            lines.append(f"bundles: {self.schedule}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    def serialize(self) -> bytes:
        """The executable, as `jax.experimental.serialize_executable.deserialize_and_load` takes it.

        It belongs to this generation and this version of JAX.  Raises CompileError if there is
        none, because this JAX could not serialise it.
        """
        if not self.payload:
            raise CompileError("this version of JAX did not serialise the executable")
        return self.payload


def compiled(
    reply: Mapping[str, Any], target: Target, config: Config, source: str, vmem: int, payload: bytes
) -> Compiled:
    """The worker's reply as a value."""
    bundles = reply["bundles"]
    return Compiled(
        target=target,
        config=config,
        source=source,
        memory=CompiledMemory(vmem, reply["code"], reply["temporaries"]),
        copies=tuple(Copy(op, name, dtype, tuple(s)) for op, name, dtype, s in reply["copies"]),
        seconds=reply["seconds"],
        warnings=tuple(reply["warnings"]),
        schedule=None if bundles is None else Schedule(tuple(Bundles(*b) for b in bundles)),
        payload=payload,
    )
