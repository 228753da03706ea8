"""jagged_dense_add for tpu:v6e, blocks tm=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_dense_add_kernel(offsets, dense, x, y, fetched_dense_rows_ref, g_of, tm_of):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # Step table: one row for every (g, tm), in the order of the loops.
    # A tm of no range gets one too, so that its outputs are defined;
    # every tm below `seen` has a row already.
    def add_tm(g, tm, n):
        g_of[n] = g
        tm_of[n] = tm
        return n + 1

    def add_g(g, state):
        n, seen = state
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 128)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 127, 128), seen)
        tm_start = jnp.where((tm_end > tm_begin) & (tm_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tm_start, tm_stop, lambda tm, n: add_tm(g, tm, n), n)
        return n, jnp.maximum(seen, tm_stop)

    steps, seen = jax.lax.fori_loop(0, 512, add_g, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 1024, lambda tm, n: add_tm(511, tm, n), steps)

    def step(dense_ref, x_ref, y_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_of[before] != tm))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

        # jagged_dense_add.py:45: y[tm, :] = x[tm, :] + dense[g, place, :]
        def fetch_row(lane, _):
            row = jnp.clip(jnp.minimum(tm * 128 + lane - offsets[g], 1023), 0, 1023)
            start = jax.lax.div(row, 16) * 16
            chosen = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == row - start
            kept = jnp.where(chosen, dense_ref[pl.ds(start, 16), :].astype(jnp.float32), 0)
            fetched_dense_rows_ref[pl.ds(lane, 1), :] = jnp.sum(kept, axis=0, keepdims=True)
            return 0

        jax.lax.fori_loop(0, 128, fetch_row, 0)
        dense_rows = fetched_dense_rows_ref[...].astype(jnp.bfloat16)
        tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        y_ref[...] = jnp.where(tm_mask, x_ref[...] + dense_rows, y_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((None, 1024, 512), lambda n: (g_of[n], 0, 0)),
            pl.BlockSpec((128, 512), lambda n: (tm_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda n: (tm_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(dense, x, y)


def jagged_dense_add(
    x: jax.Array,
    dense: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] + dense[g, min(r - offsets[g], L - 1)] for offsets[g] <= r < offsets[g + 1]."""
    y = pl.pallas_call(
        jagged_dense_add_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((128, 512), jnp.float32),
            pltpu.SMEM((1535,), jnp.int32),
            pltpu.SMEM((1535,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, dense, x)
    return y
