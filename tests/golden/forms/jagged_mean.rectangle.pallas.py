"""jagged_mean for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_mean_kernel(offsets, x, y, total_ref):
    # g: column of the step table; parallel: each g writes its own rows of y
    # tm: column of the step table, blocks of 512; ordered: carries total, a sum
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    # Rectangle of steps (g, tm), 512 x 256; dead steps move no data.
    def at(n):
        g = jax.lax.div(n, 256)
        tm_step = jax.lax.rem(n, 256)
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_first = jnp.minimum(tm_first, 255)
        tm_stop = jnp.maximum(
            jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first), tm_first + 1
        )
        tm_live = tm_step < tm_stop - tm_first
        tm = jnp.minimum(jnp.minimum(tm_first + tm_step, jnp.maximum(tm_stop - 1, tm_first)), 255)
        return tm_live, (g, tm), (tm_first, tm_stop)

    def step(x_ref, y_ref):
        n = pl.program_id(0)
        live, (g, tm), (tm_first, tm_stop) = at(n)

        @pl.when(live & (tm == tm_first))
        def _():
            # jagged_mean.py:26: total = jnp.zeros([tf], dtype=jnp.float32)
            total_ref[...] = jnp.zeros((1, 512), jnp.float32)

        @pl.when(live)
        def _():
            # jagged_mean.py:28: total += jnp.sum(x[tm, tf].astype(jnp.float32), axis=0)
            tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            total_ref[...] += jnp.sum(
                jnp.where(tm_mask, x_ref[...].astype(jnp.float32), 0.0),
                axis=0,
                keepdims=True,
            )

        @pl.when(live & (tm == tm_stop - 1))
        def _():
            # jagged_mean.py:24: begin, end = offsets[g], offsets[g + 1]
            end = offsets[g + 1]
            begin = offsets[g]
            # jagged_mean.py:29: count = jnp.maximum(end - begin, 1)
            count = jnp.maximum(end - begin, 1)
            # jagged_mean.py:30: y[g, tf] = (total / count.astype(jnp.float32)).astype(y.dtype)
            g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
            y_ref[...] = jnp.where(
                g_row, (total_ref[...] / jnp.float32(count)).astype(jnp.bfloat16), y_ref[...]
            )

    pltpu.emit_pipeline(
        step,
        grid=(131072,),
        in_specs=[pl.BlockSpec((512, 512), lambda n: (at(n)[1][1], 0))],
        out_specs=[pl.BlockSpec((16, 512), lambda n: (jax.lax.div(at(n)[1][0], 16), 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, y)


def jagged_mean(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the mean of x[offsets[g] : offsets[g + 1]], 0 if there are no such rows."""
    y = pl.pallas_call(
        jagged_mean_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32)],
        interpret=interpret,
    )(offsets, x)
    return y
