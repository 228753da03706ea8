"""jagged_dense_add for tpu:v6e, blocks tm=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_dense_add_kernel(offsets, x, dense, y, g_of, tm_of):
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

    def step(x_ref, dense_ref, dense_1_ref, y_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_of[before] != tm))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

        # jagged_dense_add.py:45: begin, end = offsets[g], offsets[g + 1]
        begin = offsets[g]
        # jagged_dense_add.py:48: y[tm, :] = x[tm, :] + hl.load(dense, [g, place, slice(None)], m...
        tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        dense_blocks = jnp.where(
            jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) >= -offsets[g] % 128,
            dense_ref[...].astype(jnp.float32),
            dense_1_ref[...].astype(jnp.float32),
        )
        dense_moved = pltpu.roll(dense_blocks, offsets[g] % 128, 0).astype(jnp.bfloat16)
        y_ref[...] = jnp.where(
            tm_mask, x_ref[...] + jnp.where(tm_index - begin < 1024, dense_moved, 0.0), y_ref[...]
        )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((128, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec(
                (None, 128, 512),
                lambda n: (g_of[n], jnp.clip(tm_of[n] + -offsets[g_of[n]] // 128, 0, 7), 0),
                pipeline_mode=pl.Buffered(4),
            ),
            pl.BlockSpec(
                (None, 128, 512),
                lambda n: (g_of[n], jnp.clip(tm_of[n] + -offsets[g_of[n]] // 128 + 1, 0, 7), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda n: (tm_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, dense, dense, y)


def jagged_dense_add(
    x: jax.Array,
    dense: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] + dense[g, r - offsets[g]] for offsets[g] <= r < offsets[g + 1]."""
    y = pl.pallas_call(
        jagged_dense_add_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((1535,), jnp.int32), pltpu.SMEM((1535,), jnp.int32)],
        interpret=interpret,
    )(offsets, x, dense)
    return y
