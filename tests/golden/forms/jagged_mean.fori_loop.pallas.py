"""jagged_mean for tpu:v6e, blocks tf=256, tm=32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_mean_kernel(offsets, x, y_ref, x_ref, x_copied, flow):
    # tf: grid dimension, blocks of 256; parallel: each tf writes its own columns of y
    # g: grid dimension; parallel: each g writes its own rows of y
    # tm: loop inside the step, blocks of 32; ordered: carries total, a sum
    tf = pl.program_id(0)
    g = pl.program_id(1)
    # all of y is in memory: the step has a block of it
    y_ref = y_ref.at[pl.ds(16 * jax.lax.div(g, 16), 16), pl.ds(256 * tf, 256)]

    # Pieces of 4096 rows are copied while steps compute.
    def x_piece(piece):
        return pltpu.make_async_copy(
            x.at[pl.ds(piece * 4096, 4096), pl.ds(tf * 256, 256)],
            x_ref.at[pl.ds(piece * 4096, 4096)],
            x_copied.at[piece],
        )

    @pl.when(g == 0)
    def _():
        flow[0], flow[1], flow[2] = 0, 0, 0

        @pl.loop(0, 32)
        def _(piece):
            x_piece(piece).start()

    @pl.when(offsets[g + 1] > flow[0] * 4096 - 16)
    def _():
        reach = jax.lax.div(
            jnp.minimum(jnp.clip(offsets[g + 1], 0, 131072) + 16, 131072) + 4095, 4096
        )

        @pl.loop(flow[0], reach)
        def _(piece):
            x_piece(piece).wait()

        flow[0] = jnp.maximum(flow[0], reach)

    # jagged_mean.py:24: begin, end = offsets[g], offsets[g + 1]
    begin = offsets[g]
    end = offsets[g + 1]
    # jagged_mean.py:27: for tm in hl.tile(begin, end, max_extent=T):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 16) * 16
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end - tm_first + 31, 32), 0)
    total = jnp.zeros((1, 256), jnp.float32)
    def each_tm(tm, total):
        # jagged_mean.py:28: total += jnp.sum(x[tm, tf].astype(jnp.float32), axis=0)
        tm_row = pl.multiple_of(jnp.minimum(tm_first + tm * 32, 131040), 16)
        tm_index = tm_row + jax.lax.broadcasted_iota(jnp.int32, (32, 1), 0)
        tm_mask = (
            (tm_index >= jnp.maximum(offsets[g], tm_first + tm * 32)) & (tm_index < offsets[g + 1])
        )
        total_1 = (
            total
            + jnp.sum(
                jnp.where(tm_mask, x_ref[pl.ds(tm_row, 32)].astype(jnp.float32), 0.0),
                axis=0,
                keepdims=True,
            )
        )
        return total_1

    total = jax.lax.fori_loop(0, tm_stop, each_tm, total)
    # jagged_mean.py:29: count = jnp.maximum(end - begin, 1)
    count = jnp.maximum(end - begin, 1)
    # jagged_mean.py:30: y[g, tf] = (total / count.astype(jnp.float32)).astype(y.dtype)
    g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
    y_ref[...] = jnp.where(g_row, (total / jnp.float32(count)).astype(jnp.bfloat16), y_ref[...])

    @pl.when(g == 511)
    def _():
        @pl.loop(flow[0], 32)
        def _(piece):
            x_piece(piece).wait()


def jagged_mean(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the mean of x[offsets[g] : offsets[g + 1]], 0 if there are no such rows."""
    y = pl.pallas_call(
        jagged_mean_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        grid=(2, 512),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((512, 512), lambda tf, g: (0, 0)),
        scratch_shapes=[
            pltpu.VMEM((131072, 256), jnp.bfloat16),
            pltpu.SemaphoreType.DMA((32,)),
            pltpu.SMEM((3,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"),
            vmem_limit_bytes=84934656,
        ),
        interpret=interpret,
    )(offsets, x)
    return y
