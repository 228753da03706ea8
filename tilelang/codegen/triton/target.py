"""Target: what an NVIDIA GPU allows, as data.  Nothing here asks a device anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from tilelang.errors import unknown_target

KIB = 1024
WARP = 32  # threads
PRODUCTS = frozenset({"float32", "bfloat16", "float16", "int8", "uint8"})
ASYNCHRONOUS = frozenset({"float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"})
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2"})


@dataclass(frozen=True)
class Target:
    """Limits of one GPU architecture.

    arch         compute capability times ten: what Triton's GPUTarget takes
    processors   streaming multiprocessors of the part that defaults are chosen for
    shared       bytes of shared memory that one program may have
    columns      of tensor memory, which products of sm_100 are added up in
    registers    32-bit registers that one thread may have
    register_file  of a processor: what all threads of one program may have together
    products     dtypes of which it multiplies matrices
    refused      dtypes that it does not compute in at all
    matrix_warps warps that one matrix instruction takes: 4 where products are asynchronous
    most_warps   of a program whose warps multiply together: Triton 3.6 reads results from tensor
                 memory with 4 or 8
    asynchronous dtypes of which Triton multiplies matrices without keeping the warps waiting
    reads_before whether what does not move with a loop must be read before it: Triton, which moves
                 it there by itself for the others, copies it anew in every iteration
    boxes        whether hardware copies boxes of arrays that descriptors tell of
    specializes  whether loops may have specialized warps.  sm_90 has them too, but on an H100
                 (Triton 3.6.0, 2026-11-23) products of two and more steps were wrong with them in
                 every form that was tried, and attention did not end
    scratch      whether whoever launches gives the memory that descriptors are written to

    Source of the figures: CUDA programming guide, "technical specifications per compute
    capability"; the shared memory of sm_80 is what is left of 163 KiB plus the static 3 KiB that
    Triton may use; processors are those of A100, L40S, H100 SXM and B200.
    """

    name: str
    arch: int
    processors: int
    shared: int
    products: frozenset[str]
    refused: frozenset[str] = frozenset()
    matrix_warps: int = 1
    most_warps: int = 32
    registers: int = 255
    register_file: int = 1 << 16
    columns: int = 0
    asynchronous: frozenset[str] = frozenset()
    reads_before: bool = False
    boxes: bool = False
    specializes: bool = False
    scratch: bool = True

    @staticmethod
    def of(target: str | Target) -> Target:
        """The target of that name."""
        if isinstance(target, Target):
            return target
        if target not in TARGETS:
            raise unknown_target(target, TARGETS, CALLED)
        return TARGETS[target]

    def registers_of(self, warps: int) -> int:
        """Registers that each thread of a program may have."""
        return min(self.registers, self.register_file // (warps * WARP))

    def without_scratch(self) -> Target:
        """The same, launched by who gives no memory for descriptors."""
        return replace(self, scratch=False)

    def __str__(self) -> str:
        return self.name


def _targets() -> dict[str, Target]:
    every = PRODUCTS | FLOAT8
    sm90 = Target("cuda:sm90", 90, 132, 227 * KIB, every, matrix_warps=4,
                  asynchronous=ASYNCHRONOUS | {"int8"}, boxes=True)  # fmt: skip
    sm100 = replace(sm90, name="cuda:sm100", arch=100, processors=148, columns=512, most_warps=8,
                    asynchronous=ASYNCHRONOUS, reads_before=True, specializes=True)  # fmt: skip
    return {
        "cuda:sm80": Target("cuda:sm80", 80, 108, 163 * KIB, PRODUCTS, FLOAT8),
        "cuda:sm89": Target("cuda:sm89", 89, 142, 99 * KIB, every),
        "cuda:sm90": sm90,
        "cuda:sm100": sm100,
    }


TARGETS = MappingProxyType(_targets())
# What the parts of these architectures are called.
CALLED = {
    "A100": "cuda:sm80", "L4": "cuda:sm89", "L40S": "cuda:sm89", "RTX 4090": "cuda:sm89",
    "H100": "cuda:sm90", "H200": "cuda:sm90", "B200": "cuda:sm100",
}  # fmt: skip
