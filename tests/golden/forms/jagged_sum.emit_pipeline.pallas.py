"""jagged_sum for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_sum_kernel(offsets, x, y_ref, acc_ref):
    # g: grid dimension; parallel: each g writes its own rows of y
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    # tm: pipeline inside the step, blocks of 512; ordered: carries acc, a sum
    g = pl.program_id(0)
    # jagged_sum.py:32: acc = hl.zeros([tf], dtype=total)
    acc_ref[...] = jnp.zeros((1, 512), jnp.float32)
    # jagged_sum.py:33: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 512)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first)

    def each_tm(x_ref):
        tm = tm_first + pl.program_id(0)
        # jagged_sum.py:34: acc += x[tm, tf].to(total).sum(0)
        tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        acc_ref[...] += jnp.sum(
            jnp.where(tm_mask, x_ref[...].astype(jnp.float32), 0.0),
            axis=0,
            keepdims=True,
        )

    pltpu.emit_pipeline(
        each_tm,
        grid=(tm_stop - tm_first,),
        in_specs=[pl.BlockSpec((512, 512), lambda tm: (tm_first + tm, 0))],
    )(x)
    # jagged_sum.py:35: y[g, tf] = acc.to(y.dtype)
    g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
    y_ref[...] = jnp.where(g_row, acc_ref[...].astype(jnp.bfloat16), y_ref[...])


def jagged_sum(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the sum of x[offsets[g] : offsets[g + 1]]."""
    y = pl.pallas_call(
        jagged_sum_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        grid=(512,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((16, 512), lambda g: (jax.lax.div(g, 16), 0)),
        scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, x)
    return y
