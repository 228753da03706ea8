"""jagged_sum for tpu:v6e, blocks tf=128, tm=16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_sum_kernel(offsets, x_ref, y_ref):
    # tf: grid dimension, blocks of 128; parallel: each tf writes its own columns of y
    # g: grid dimension; parallel: each g writes its own rows of y
    # tm: loop inside the step, blocks of 16; ordered: carries acc, a sum
    g = pl.program_id(1)
    # jagged_sum.py:33: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 16)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 15, 16), tm_first)
    acc = jnp.zeros((1, 128), jnp.float32)
    def each_tm(tm, acc):
        # jagged_sum.py:34: acc += x[tm, tf].to(total).sum(0)
        tm_index = tm * 16 + jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        acc_1 = (
            acc
            + jnp.sum(
                jnp.where(tm_mask, x_ref[pl.ds(tm * 16, 16)].astype(jnp.float32), 0.0),
                axis=0,
                keepdims=True,
            )
        )
        return acc_1

    acc = jax.lax.fori_loop(tm_first, tm_stop, each_tm, acc)
    # jagged_sum.py:35: y[g, tf] = acc.to(y.dtype)
    g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
    y_ref[...] = jnp.where(g_row, acc.astype(jnp.bfloat16), y_ref[...])


def jagged_sum(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the sum of x[offsets[g] : offsets[g + 1]]."""
    y = pl.pallas_call(
        jagged_sum_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        grid=(4, 512),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((131072, 128), lambda tf, g: (0, tf)),
        ],
        out_specs=pl.BlockSpec((16, 128), lambda tf, g: (jax.lax.div(g, 16), tf)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=84934656,
        ),
        interpret=interpret,
    )(offsets, x)
    return y
