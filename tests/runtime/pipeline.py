"""A ragged kernel by hand, in the form that is generated: one emit_pipeline over a step table."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK = 8


def numbered(x, offsets, *, interpret=False):
    """x[r] * (g + 1) for rows of group g, 0 for rows of none."""
    groups = offsets.shape[0] - 1
    upper = pl.cdiv(x.shape[0], BLOCK) + groups

    def kernel(offsets, x_hbm, y_hbm, group, tile):
        def add_group(g, n):
            begin, end = offsets[g], offsets[g + 1]
            first = jax.lax.div(begin, BLOCK)
            tiles = jnp.where(end > begin, pl.cdiv(end, BLOCK) - first, 0)

            def add_tile(i, n):
                group[n] = g
                tile[n] = first + i
                return n + 1

            return jax.lax.fori_loop(0, tiles, add_tile, n)

        steps = jax.lax.fori_loop(0, groups, add_group, jnp.int32(0))

        def step(x_ref, y_ref):
            n = pl.program_id(0)
            g = group[n]

            @pl.when((n == 0) | (tile[jnp.maximum(n - 1, 0)] != tile[n]))
            def _():
                y_ref[...] = jnp.zeros_like(y_ref)

            rows = tile[n] * BLOCK + jax.lax.broadcasted_iota(jnp.int32, y_ref.shape, 0)
            mine = (rows >= offsets[g]) & (rows < offsets[g + 1])
            y_ref[...] = jnp.where(mine, x_ref[...] * (g + 1).astype(x_ref.dtype), y_ref[...])

        block = pl.BlockSpec((BLOCK, x.shape[1]), lambda n: (tile[n], 0))
        pltpu.emit_pipeline(step, grid=(steps,), in_specs=[block], out_specs=[block])(x_hbm, y_hbm)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((upper,), jnp.int32)] * 2,
        interpret=interpret,
    )(offsets, x)


def expected(x, offsets):
    y = np.zeros_like(x)
    for g in range(len(offsets) - 1):
        rows = slice(offsets[g], offsets[g + 1])
        y[rows] = x[rows] * (g + 1)
    return y
