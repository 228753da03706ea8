"""record(program, ...) -> bytes: what jaxlib's launcher of Triton programs is told of one launch.

It is a message of jaxlib/gpu/triton.proto (jax-ml/jax), `TritonAnyKernelCall`, which is written
here, because the package that has a writer, jax-cuda12-plugin, is not installed where there is no
GPU:

    1 kernel_call   1 kernel    1 kernel_name, 2 num_warps, 3 shared_mem_bytes, 4 ptx,
                                6 compute_capability, 10 num_ctas
                    2 grid_0, 3 grid_1, 4 grid_2
                    5 parameters, one for each argument:  1 array  2 ptr_divisibility
    4 name
"""

from __future__ import annotations

from typing import Protocol

from ...errors import CallError

ALIGNMENT = 16  # bytes; the launcher looks at every pointer
VARINT, BYTES = 0, 2  # how a field is written


class CompiledFunction(Protocol):
    """One @triton.jit function, compiled: what `aot` makes of a launch.

    shared, scratch   bytes of shared and of device memory that a program needs beside its arguments
    """

    @property
    def name(self) -> str: ...
    @property
    def ptx(self) -> str: ...
    @property
    def warps(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def scratch(self) -> int: ...


def record(program: CompiledFunction, arch: int, programs: int, arguments: int) -> bytes:
    """The launch of `programs` programs with so many pointers; arch is 90 for sm_90.

    Raises CallError for a program that needs what the launcher does not give.
    """
    if program.scratch:
        raise CallError(
            f"{program.name} needs {program.scratch} bytes of scratch memory per program, "
            "which JAX's launcher does not give",
            hint="call the kernel with torch tensors",
        )
    kernel = (
        _text(1, program.name)
        + _number(2, program.warps)
        + _number(3, program.shared)
        + _text(4, program.ptx)
        + _number(6, arch)
        + _number(10, 1)
    )
    grid = _number(2, programs) + _number(3, 1) + _number(4, 1)
    pointer = _message(5, _message(1, _number(2, ALIGNMENT)))
    return _message(1, _message(1, kernel) + grid + pointer * arguments) + _text(4, program.name)


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _number(field: int, value: int) -> bytes:
    """A field that is an integer; zero is what is read where nothing is written."""
    return _varint(field << 3 | VARINT) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
