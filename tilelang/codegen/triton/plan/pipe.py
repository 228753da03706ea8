"""Pipe: how operands reach products, and which products run while the program goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilelang.codegen.triton.target import Target
from tilelang.ir import Apply

from .reductions import lanes_of

LEAST = 16  # numbers that products sum over
MATRIX_ROWS = 64  # of a result, that four warps multiply asynchronously
# Numbers of both operands of three products of tf32 that warps read at once, and how many a part
# has of those that have more: by the compiler's figures attention of 16 rows and 32 keys has 197
# registers for rows of 128 numbers, spills 40 bytes for 256, and has 165 for 4 parts of 64.
MOST, PART = 6144, 4096
# The longest part beside a state that decays: of 16 rows of 128 numbers 48 and 56 bytes spilled.
TIGHT = 64


def turns_bytes(dot: Apply) -> bool:
    """Whether bytes of the right operand have what is summed apart, which each warp must turn."""
    contract: tuple[int, int] = dot.attr("contract")
    return "int8" in dot.args[0].type.dtype and contract[1] != dot.args[1].type.rank - 1


@dataclass(frozen=True)
class Pipe:
    """How operands reach products: what the shared memory of a loop depends on besides blocks."""

    target: Target
    warps: int
    stages: int
    precision: str  # of float32
    boxes: bool = False  # whether descriptors copy operands, whatever dimensions of one they have
    repeats: bool = False  # whether a program takes one result after another
    tight: bool = False  # whether long rows are multiplied in parts however few they are

    @property
    def grouped(self) -> bool:
        """Whether there are warps for instructions that take several of them."""
        together = self.target.matrix_warps
        return together > 1 and self.warps % together == 0 and self.warps <= self.target.most_warps

    def together(self, dot: Apply, blocks: Mapping[str, int]) -> bool:
        """Whether instructions of several warps may make the result: one of 64 rows."""
        *batch, rows, _ = (lanes_of(d, blocks) for d in dot.type.shape)
        return self.grouped and rows >= MATRIX_ROWS and prod(batch) == 1

    def asynchronous(self, dot: Apply, blocks: Mapping[str, int]) -> bool:
        """Whether the product reads shared memory while the program goes on."""
        known = dot.args[0].type.dtype
        exact = known == "float32" and self.precision == "ieee"
        able = known in self.target.asynchronous and not (exact or turns_bytes(dot))
        return able and self.together(dot, blocks)

    def part(self, dot: Apply, blocks: Mapping[str, int]) -> int | None:
        """How long the parts of a row are that warps multiply one by one; None: all of it."""
        length = dot.args[0].type.shape[dot.attr("contract")[0]]
        if isinstance(length, str) or self.parts(dot) == 1 or self.asynchronous(dot, blocks):
            return None
        beside = sum(lanes_of(d, blocks) for d in dot.type.shape[-2:])
        if length * beside <= MOST and not self.tight:
            return None
        most = max(1 << (PART // beside).bit_length() - 1, LEAST)
        return min(most, TIGHT) if self.tight else most

    def parts(self, dot: Apply) -> int:
        """Pieces that an operand is split into: a large and a small one for three products."""
        return 2 if dot.args[0].type.dtype == "float32" and self.precision == "tf32x3" else 1
