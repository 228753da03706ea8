"""Alignment: what rows of arrays begin at, and so which hardware copies them.

bytes of a row      multiples of 16: boxes, of 4: copies that threads do not wait for,
                    else: every number has an address, and passes through registers
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tilelang.ir import Apply, Expr, KernelIR, Load
from tilelang.language.dtypes import itemsize
from tilelang.language.op import SAME

from .roles import products

BOX = 16  # bytes, which rows that a descriptor tells of are multiples of
LEAST_COPY = 4  # bytes, of an asynchronous copy


def row_alignment(ir: KernelIR, tensor: str) -> int:
    """Bytes that every row begins at a multiple of, 16 at most; what has one row begins at 0."""
    found = ir.tensor(tensor)
    return BOX if len(found.shape) < 2 else gcd(found.shape[-1] * itemsize(found.dtype), BOX)


def least_alignment(ir: KernelIR) -> int:
    """The least of what products read."""
    loads = (load for dot in products(ir) for a in dot.args for load in _loads(a))
    return min((row_alignment(ir, load.tensor) for load in loads), default=BOX)


def _loads(operand: Expr) -> Iterator[Load]:
    """The load that is multiplied as it is, or turned."""
    while isinstance(operand, Apply) and (operand.op in SAME or operand.op == "cast"):
        operand = operand.args[0]
    if isinstance(operand, Load):
        yield operand
