"""Gather tables: numbers that selects pick from a table are one load at positions that are a block.

    at = where(rel >= 1, bias[h, 1], bias[h, 0])
    at = where(rel >= 2, bias[h, 2], at) ...        ->   at = bias[h, clamp(rel, 0, 255)]

A GPU loads each lane from an address of its own.  By the compiler's figures for scores of 64 x 64,
selects from tables of 256 and of 64 numbers kept so much in registers that 2,080 bytes spilled on
sm_90.  Selects from a few numbers stay: they wait for no memory.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.codegen.looked_up import LookedUp, with_tables
from tilelang.ir import Expr, Gather, KernelIR, integers

from .explicit_casts import apply

FEW = 4  # numbers that selects pick from: a guess, as nothing was timed


def gather_tables(ir: KernelIR) -> KernelIR:
    """The kernel with those loads."""
    return with_tables(ir, lambda picked: _loaded(picked) if _several(picked) else None)


def _loaded(found: LookedUp) -> Expr:
    """All lanes at once."""
    load, shape = found.load, found.place.type.shape
    held = integers.clamped(found.place, found.last + 1, found.first)
    index = (*load.index[: found.dim], Gather(held), *load.index[found.dim + 1 :])
    made = replace(load, index=index, type=replace(load.type, shape=shape))
    return made if found.number is load else apply("cast", (made,), found.number.type.dtype, shape)


def _several(found: LookedUp) -> bool:
    return found.last - found.first >= FEW
