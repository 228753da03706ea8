"""Tile wholes: products of large operands that were written without tiles, tile by tile.

    y[t, :] = dot(x[t, :], w[g, :, :])   ->   for n in tile(512):
                                                  for k in tile(512) carrying acc = 0:
                                                      next acc = acc + dot(x[t, k], w[g, k, n])
                                                  y[t, n] = acc

Here w[g] is taken whole: 512 x 512 fit neither shared memory nor, as a result, registers.  Where
columns or sums cannot be cut, they stay, and memory decides.
"""

from __future__ import annotations

from math import prod

from tilelang.ir import Apply, Expr, KernelIR, every_expr
from tilelang.language.dtypes import itemsize

from .tile_columns import tile_columns
from .tile_sums import tile_sums

# Bytes of an operand that is left whole.  By the compiler's figures 128 x 128 of bfloat16 spill on
# no architecture; of float32, which takes three products for one, 64 x 64 do on two.
WIDE, NARROW = 8 << 10, 32 << 10


def tile_wholes(ir: KernelIR) -> KernelIR:
    """The kernel with those products in loops."""
    if not any(_wide(e) for e in every_expr(ir.body) if isinstance(e, Apply)):
        return ir
    ir, columns = tile_columns(ir, _wide)
    return tile_sums(ir, lambda dot: _wide(dot) or not columns.isdisjoint(dot.type.shape))


def _wide(expr: Apply) -> bool:
    return expr.op == "dot" and any(map(_large, expr.args))


def _large(operand: Expr) -> bool:
    shape = [d for d in operand.type.shape if isinstance(d, int)]
    size = itemsize(operand.type.dtype)
    whole = len(shape) == operand.type.rank
    return whole and prod(shape) * size > (NARROW if size < 4 else WIDE)
