"""jagged_layer_norm for tpu:v6e, blocks tm=256, tm_1=256, tm_2=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_layer_norm_kernel(offsets, weight_ref, bias_ref, x, y_in, y, total_ref, squares_ref):
    # g: grid dimension; parallel: y rows of different g are disjoint because offsets is sorted
    # tm: pipeline inside the step, blocks of 256; ordered: carries total, a sum
    # tm_1: pipeline inside the step, blocks of 256; ordered: carries squares, a sum
    # tm_2: pipeline inside the step, blocks of 256; parallel: each tm writes its own rows of y
    g = pl.program_id(0)
    # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
    begin = offsets[g]
    end = offsets[g + 1]
    # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
    count = jnp.float32(jnp.maximum(end - begin, 1)) * 512.0
    total_ref[...] = jnp.zeros((1, 1), jnp.float32)
    # jagged_layer_norm.py:45: for tm in hl.tile(begin, end):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 256)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 255, 256), tm_first)

    def each_tm(x_ref):
        tm = tm_first + pl.program_id(0)
        # jagged_layer_norm.py:46: total += jnp.sum(x[tm, :].astype(jnp.float32))
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        total_ref[...] += jnp.sum(
            jnp.where(tm_mask, jnp.sum(x_ref[...].astype(jnp.float32), axis=1, keepdims=True), 0.0),
            axis=0,
            keepdims=True,
        )

    pltpu.emit_pipeline(
        each_tm,
        grid=(tm_stop - tm_first,),
        in_specs=[pl.BlockSpec((256, 512), lambda tm: (tm_first + tm, 0))],
    )(x)
    # jagged_layer_norm.py:47: mean = total / count
    mean = total_ref[...] / count
    squares_ref[...] = jnp.zeros((1, 1), jnp.float32)
    # jagged_layer_norm.py:49: for tm in hl.tile(begin, end):
    tm_1_begin = jnp.maximum(offsets[g], 0)
    tm_1_end = jnp.minimum(offsets[g + 1], 131072)
    tm_1_first = jax.lax.div(tm_1_begin, 256)
    tm_1_stop = jnp.where(tm_1_end > tm_1_begin, jax.lax.div(tm_1_end + 255, 256), tm_1_first)

    def each_tm_1(x_1_ref):
        tm_1 = tm_1_first + pl.program_id(0)
        # jagged_layer_norm.py:50: centred = x[tm, :].astype(jnp.float32) - mean
        centred = x_1_ref[...].astype(jnp.float32) - mean
        # jagged_layer_norm.py:51: squares += jnp.sum(centred * centred)
        tm_1_index = tm_1 * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_1_mask = (tm_1_index >= offsets[g]) & (tm_1_index < offsets[g + 1])
        squares_ref[...] += jnp.sum(
            jnp.where(tm_1_mask, jnp.sum(centred * centred, axis=1, keepdims=True), 0.0),
            axis=0,
            keepdims=True,
        )

    pltpu.emit_pipeline(
        each_tm_1,
        grid=(tm_1_stop - tm_1_first,),
        in_specs=[pl.BlockSpec((256, 512), lambda tm_1: (tm_1_first + tm_1, 0))],
    )(x)
    # jagged_layer_norm.py:52: scale = jax.lax.rsqrt(squares / count + eps)
    scale = jax.lax.rsqrt(squares_ref[...] / count + 1e-05)
    # jagged_layer_norm.py:53: for tm in hl.tile(begin, end):
    tm_2_begin = jnp.maximum(offsets[g], 0)
    tm_2_end = jnp.minimum(offsets[g + 1], 131072)
    tm_2_first = jax.lax.div(tm_2_begin, 256)
    tm_2_stop = jnp.where(tm_2_end > tm_2_begin, jax.lax.div(tm_2_end + 255, 256), tm_2_first)

    def each_tm_2(x_2_ref, y_in_ref, y_ref):
        tm_2 = tm_2_first + pl.program_id(0)
        # rows of other ranges stay as y has them
        y_ref[...] = y_in_ref[...]
        # jagged_layer_norm.py:54: normal = (x[tm, :].astype(jnp.float32) - mean) * scale
        normal = (x_2_ref[...].astype(jnp.float32) - mean) * scale
        # jagged_layer_norm.py:55: y[tm, :] = (normal * weight[:] + bias[:]).astype(y.dtype)
        tm_2_index = tm_2 * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_2_mask = (tm_2_index >= offsets[g]) & (tm_2_index < offsets[g + 1])
        y_ref[...] = jnp.where(
            tm_2_mask,
            (
                normal * weight_ref[...].astype(jnp.float32) + bias_ref[...].astype(jnp.float32)
            ).astype(jnp.bfloat16),
            y_ref[...],
        )

    pltpu.emit_pipeline(
        each_tm_2,
        grid=(tm_2_stop - tm_2_first,),
        in_specs=[
            pl.BlockSpec((256, 512), lambda tm_2: (tm_2_first + tm_2, 0)),
            pl.BlockSpec((256, 512), lambda tm_2: (tm_2_first + tm_2, 0)),
        ],
        out_specs=[pl.BlockSpec((256, 512), lambda tm_2: (tm_2_first + tm_2, 0))],
    )(x, y, y)


def jagged_layer_norm(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = (x[r] - mean of r's group) / sqrt(variance of r's group + eps) * weight + bias."""
    weight_row = weight.reshape((1, 512))
    bias_row = bias.reshape((1, 512))
    y_in = jnp.zeros((131072, 512), jnp.bfloat16)
    y = pl.pallas_call(
        jagged_layer_norm_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid=(512,),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((1, 512), lambda g: (0, 0)),
            pl.BlockSpec((1, 512), lambda g: (0, 0)),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((1, 1), jnp.float32), pltpu.VMEM((1, 1), jnp.float32)],
        input_output_aliases={4: 0},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, weight_row, bias_row, x, y_in)
    return y
