"""Operands that are taken whole: no block makes them smaller, so the author has to.

k = k_pages[h, table[b, p], :, :]   128 x 128 of float32, for three products of tf32 twice:
hl.dot(q, k.T)                      131,072 bytes, whatever the config
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilelang.errors import Loc
from tilelang.ir import KernelIR
from tilelang.language.dtypes import itemsize

from .pipe import Pipe
from .roles import products


@dataclass(frozen=True)
class WholeOperand:
    """An operand without a tile in its shape; `parts`: as how many pieces a product takes it."""

    shape: tuple[int, ...]
    dtype: str
    parts: int
    loc: Loc | None

    @property
    def bytes(self) -> int:
        """What it takes of shared memory."""
        return self.parts * prod(self.shape) * itemsize(self.dtype)

    @property
    def hint(self) -> str:
        """What its author may write instead."""
        size = " x ".join(map(str, self.shape))
        twice = ", in two pieces for precision='tf32x3'" if self.parts > 1 else ""
        other = ", or give precision='tf32'" if self.parts > 1 else ""
        return (
            f"an operand of {size} {self.dtype} is taken whole{twice}, and no block changes that: "
            f"take a part at a time (for t in hl.tile({self.shape[0]}): ...){other}"
        )


def widest_whole(ir: KernelIR, pipe: Pipe) -> WholeOperand | None:
    """The largest operand that is taken whole."""
    return max(_wholes(ir, pipe), key=lambda one: one.bytes, default=None)


def _wholes(ir: KernelIR, pipe: Pipe) -> Iterator[WholeOperand]:
    for dot in products(ir):
        for operand in dot.args:
            shape = tuple(d for d in operand.type.shape if isinstance(d, int))
            if len(shape) == operand.type.rank:
                yield WholeOperand(shape, operand.type.dtype, pipe.parts(dot), dot.loc)
