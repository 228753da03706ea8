"""Pipe: how operands reach products, and which products run while the program goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilelang.codegen.triton.target import Target
from tilelang.ir import Apply

from .reductions import lanes_of

MATRIX_ROWS = 64  # of a result, that four warps multiply asynchronously


@dataclass(frozen=True)
class Pipe:
    """How operands reach products: what the shared memory of a loop depends on besides blocks."""

    target: Target
    warps: int
    stages: int
    precision: str  # of float32
    boxes: bool = False  # whether descriptors copy operands, whatever dimensions of one they have

    def asynchronous(self, dot: Apply, blocks: Mapping[str, int]) -> bool:
        """Whether the product reads shared memory while the program goes on: one of 64 rows."""
        a, b = dot.args
        *batch, rows, _ = (lanes_of(d, blocks) for d in dot.type.shape)
        if rows < MATRIX_ROWS or prod(batch) > 1:
            return False
        contract: tuple[int, int] = dot.attr("contract")
        if "int8" in a.type.dtype and contract[1] != b.type.rank - 1:
            return False  # which takes a right operand only if what is summed is contiguous
        grouped = self.target.matrix_warps > 1 and self.warps % self.target.matrix_warps == 0
        known = a.type.dtype in self.target.asynchronous
        exact = a.type.dtype == "float32" and self.precision == "ieee"
        return grouped and known and not exact

    def parts(self, dot: Apply) -> int:
        """Pieces that an operand is split into: a large and a small one for three products."""
        return 2 if dot.args[0].type.dtype == "float32" and self.precision == "tf32x3" else 1
