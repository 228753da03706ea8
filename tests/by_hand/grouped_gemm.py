"""Grouped matrix multiplication by hand, to count the generated kernel's bundles against.

One emit_pipeline walks a table of (group, row tile) in scalar memory.  Row tiles are aligned to the
array; a tile that groups share stays in vector memory from one step to the next.  Row tiles of no
group are not written.  This module is compiled as text, by itself: it imports nothing of ours.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def grouped_gemm(x, w, offsets, *, bm, bn, interpret=False):
    """y[r] = x[r] @ w[g] for offsets[g] <= r < offsets[g + 1]; blocks of bm rows, bn columns."""
    (M, K), (G, _, N) = x.shape, w.shape
    most = M // bm + G - 1

    def kernel(offsets, x, w, y, groups, tiles):
        def fill(g, n):
            begin, end = offsets[g], offsets[g + 1]
            stop = jnp.where(end > begin, lax.div(end + bm - 1, bm), 0)

            def add(tile, n):
                groups[n], tiles[n] = g, tile
                return n + 1

            return lax.fori_loop(lax.div(begin, bm), stop, add, n)

        def step(x_ref, w_ref, y_ref):
            n = pl.program_id(1)
            group, tile = groups[n], tiles[n]

            @pl.when((n == 0) | (tiles[jnp.maximum(n - 1, 0)] != tile))
            def _():
                y_ref[...] = jnp.zeros_like(y_ref)

            product = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
            row = tile * bm + lax.broadcasted_iota(jnp.int32, (bm, 1), 0)
            mine = (row >= offsets[group]) & (row < offsets[group + 1])
            kept = y_ref[...].astype(jnp.float32)
            y_ref[...] = jnp.where(mine, product, kept).astype(y_ref.dtype)

        pltpu.emit_pipeline(
            step,
            grid=(N // bn, lax.fori_loop(0, G, fill, jnp.int32(0))),
            in_specs=[
                pl.BlockSpec((bm, K), lambda column, n: (tiles[n], 0)),
                pl.BlockSpec((None, K, bn), lambda column, n: (groups[n], 0, column)),
            ],
            out_specs=[pl.BlockSpec((bm, bn), lambda column, n: (tiles[n], column))],
            dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
        )(x, w, y)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((most,), jnp.int32), pltpu.SMEM((most,), jnp.int32)],
        interpret=interpret,
    )(offsets, x, w)
