"""jagged_sum for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_sum_kernel(offsets, x, y, acc_ref, g_of, tm_of):
    # g: column of the step table; parallel: each g writes its own rows of y
    # tm: column of the step table, blocks of 512; ordered: carries acc, a sum
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    # Step table: one row for every (g, tm), in the order of the loops.
    def add_tm(g, tm, n):
        g_of[n] = g
        tm_of[n] = tm
        return n + 1

    def add_g(g, n):
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_first = jnp.minimum(tm_first, 255)
        tm_stop = jnp.minimum(
            jnp.maximum(
                jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first),
                tm_first + 1,
            ),
            tm_first + (1280 - n),
        )
        return jax.lax.fori_loop(tm_first, tm_stop, lambda tm, n: add_tm(g, tm, n), n)

    steps = jax.lax.fori_loop(0, 512, add_g, jnp.int32(0))

    def step(x_ref, y_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            # jagged_sum.py:32: acc = hl.zeros([tf], dtype=total)
            acc_ref[...] = jnp.zeros((1, 512), jnp.float32)

        # jagged_sum.py:34: acc += x[tm, tf].to(total).sum(0)
        tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        acc_ref[...] += jnp.sum(
            jnp.where(tm_mask, x_ref[...].astype(jnp.float32), 0.0),
            axis=0,
            keepdims=True,
        )

        @pl.when((n == steps - 1) | (g_of[after] != g))
        def _():
            # jagged_sum.py:35: y[g, tf] = acc.to(y.dtype)
            g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
            y_ref[...] = jnp.where(g_row, acc_ref[...].astype(jnp.bfloat16), y_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[pl.BlockSpec((512, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4))],
        out_specs=[pl.BlockSpec((16, 512), lambda n: (jax.lax.div(g_of[n], 16), 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, y)


def jagged_sum(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the sum of x[offsets[g] : offsets[g + 1]]."""
    y = pl.pallas_call(
        jagged_sum_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1, 512), jnp.float32),
            pltpu.SMEM((1280,), jnp.int32),
            pltpu.SMEM((1280,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, x)
    return y
