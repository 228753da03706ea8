"""Tile wholes: products of large operands that were written without tiles, tile by tile.

    y[t, :] = dot(x[t, :], w[g, :, :])   ->   for n in tile(512):
                                                  for k in tile(512) carrying acc = 0:
                                                      next acc = acc + dot(x[t, k], w[g, k, n])
                                                  y[t, n] = acc

Here w[g] is taken whole: 512 x 512 fit neither shared memory nor, as a result, registers.  Long
rows by columns in tiles, as after a norm of the whole row, are cut along the sum alone:

    y[t, n] = dot(x[t, :] * scale[t], w[:, n])

Where columns or sums cannot be cut, they stay, and memory decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod

from tilelang import ir
from tilelang.ir import definitions, every_expr, every_loop, multiplied, reached
from tilelang.ir.traversal import dots
from tilelang.language.dtypes import itemsize
from tilelang.passes.static_lanes import Key, StaticLanes
from tilelang.passes.tile_columns import tile_columns
from tilelang.passes.tile_sums import tile_sums

# Bytes of an operand that is left whole.  By the compiler's figures 128 x 128 of bfloat16 spill on
# no architecture; of float32, which takes three products for one, 64 x 64 do on two.
WIDE, NARROW = 8 << 10, 32 << 10
# The same of a state, which loops carry in registers from tile to tile: 128 x 128 of bfloat16 spill
# 64 to 104 bytes on sm_89 beside 16 rows, and halves of it none beside 32.
CARRIED = 16 << 10
# Numbers of a row that is multiplied whole.  By the compiler's figures 512 of bfloat16, computed,
# spill 592 bytes of 64 rows and 464 of 128 on sm_100, and of 1,024 some do not compile; 512 of
# float32 spill 656 bytes and more in every block from 16 x 16 on.
LONG_WIDE, LONG = 128, 256


def tile_wholes(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with those products in loops."""
    products = list(dots(every_expr(kernel.body)))
    made = definitions(kernel.body)
    read = [dot for dot in products if any(multiplied(a, made) for a in dot.args)]
    carried = {c.name for loop in every_loop(kernel.body) for c in loop.carries}

    fixed = {a.name: a.fixed for a in kernel.axes if a.fixed is not None}

    def wide(expr: ir.Apply) -> bool:
        return expr.op == "dot" and any(_large(a, carried, made, fixed) for a in expr.args)

    def columns_of(kernel: ir.KernelIR, lanes: StaticLanes) -> Iterator[Key]:
        found = (dot for dot in dots(every_expr(kernel.body)) if wide(dot))
        every = (lanes.of(dot, dot.type.rank - 1) for dot in found)
        return (columns for columns in every if columns is not None)

    def summed(dot: ir.Apply) -> bool:
        # beside a product of products rows of float32 are multiplied in parts, cut_sums, and what
        # is a product keeps all of its rows
        narrow = itemsize(dot.args[0].type.dtype) < 4
        return wide(dot) or (_long(dot) and (not read or (narrow and dot not in read)))

    if not any(map(summed, products)):
        return kernel
    kernel, columns = tile_columns(kernel, columns_of)

    def wanted(dot: ir.Apply) -> bool:
        return dot.op == "dot" and (summed(dot) or not columns.isdisjoint(dot.type.shape))

    return tile_sums(kernel, wanted)


def _long(dot: ir.Apply) -> bool:
    """Whether rows that are multiplied by a tile of columns are long."""
    contract: tuple[int, int] = dot.attr("contract")
    length = dot.args[0].type.shape[contract[0]]
    narrow = itemsize(dot.args[0].type.dtype) < 4
    return isinstance(length, int) and length > (LONG if narrow else LONG_WIDE)


def _large(
    operand: ir.Expr,
    carried: Collection[str],
    made: Mapping[str, ir.Expr],
    fixed: Mapping[str, int],
) -> bool:
    known = (fixed.get(d, d) if isinstance(d, str) else d for d in operand.type.shape)
    shape = [d for d in known if isinstance(d, int)]
    size = itemsize(operand.type.dtype)
    whole = len(shape) == operand.type.rank
    state = any(isinstance(e, ir.Var) and e.name in carried for e in reached(operand, made))
    most = WIDE if size == 4 else CARRIED if state else NARROW
    return whole and prod(shape) * size > most
