"""jagged_softmax for tpu:v6e, blocks tf=512, tm=256, tm_1=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_softmax_kernel(offsets, x, y_in, y, total_ref, m_ref):
    # g: grid dimension; parallel: y rows of different g are disjoint because offsets is sorted
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    # tm: pipeline inside the step, blocks of 256; ordered: carries total, m
    # tm_1: pipeline inside the step, blocks of 256; parallel: each tm writes its own rows of y
    g = pl.program_id(0)
    # jagged_softmax.py:42: m = hl.full([tf], -math.inf, dtype=hl.float32)
    m_ref[...] = jnp.full((1, 512), -jnp.inf, jnp.float32)
    # jagged_softmax.py:43: total = hl.zeros([tf], dtype=hl.float32)
    total_ref[...] = jnp.zeros((1, 512), jnp.float32)
    # jagged_softmax.py:44: for tm in hl.tile(begin, end):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 256)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 255, 256), tm_first)

    def each_tm(x_ref):
        tm = tm_first + pl.program_id(0)
        # jagged_softmax.py:45: rows = x[tm, tf].to(hl.float32)
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        rows = jnp.where(tm_mask, x_ref[...].astype(jnp.float32), -jnp.inf)
        m = m_ref[...]
        # jagged_softmax.py:46: new = hl.maximum(m, rows.amax(0))
        new = jnp.maximum(m, jnp.max(rows, axis=0, keepdims=True))
        # jagged_softmax.py:47: total = total * hl.exp(m - new) + hl.exp(rows - new[None, :]).sum(0)
        total_ref[...] = (
            total_ref[...] * jnp.exp(m - new) + jnp.sum(jnp.exp(rows - new), axis=0, keepdims=True)
        )
        # jagged_softmax.py:48: m = new
        m_ref[...] = new

    pltpu.emit_pipeline(
        each_tm,
        grid=(tm_stop - tm_first,),
        in_specs=[pl.BlockSpec((256, 512), lambda tm: (tm_first + tm, 0))],
    )(x)
    # jagged_softmax.py:49: for tm in hl.tile(begin, end):
    tm_1_begin = jnp.maximum(offsets[g], 0)
    tm_1_end = jnp.minimum(offsets[g + 1], 131072)
    tm_1_first = jax.lax.div(tm_1_begin, 256)
    tm_1_stop = jnp.where(tm_1_end > tm_1_begin, jax.lax.div(tm_1_end + 255, 256), tm_1_first)

    def each_tm_1(x_1_ref, y_in_ref, y_ref):
        tm_1 = tm_1_first + pl.program_id(0)
        # rows of other ranges stay as y has them
        y_ref[...] = y_in_ref[...]
        # jagged_softmax.py:50: rows = x[tm, tf].to(hl.float32)
        rows = x_1_ref[...].astype(jnp.float32)
        # jagged_softmax.py:51: y[tm, tf] = (hl.exp(rows - m[None, :]) / total[None, :]).to(y.dtype)
        tm_1_index = tm_1 * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_1_mask = (tm_1_index >= offsets[g]) & (tm_1_index < offsets[g + 1])
        y_ref[...] = jnp.where(
            tm_1_mask,
            (jnp.exp(rows - m_ref[...]) / total_ref[...]).astype(jnp.bfloat16),
            y_ref[...],
        )

    pltpu.emit_pipeline(
        each_tm_1,
        grid=(tm_1_stop - tm_1_first,),
        in_specs=[
            pl.BlockSpec((256, 512), lambda tm_1: (tm_1_first + tm_1, 0)),
            pl.BlockSpec((256, 512), lambda tm_1: (tm_1_first + tm_1, 0)),
        ],
        out_specs=[pl.BlockSpec((256, 512), lambda tm_1: (tm_1_first + tm_1, 0))],
    )(x, y, y)


def jagged_softmax(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r, f] = exp(x[r, f]) / sum of exp(x[s, f]) over the rows s of r's group."""
    y_in = jnp.zeros((131072, 512), jnp.bfloat16)
    y = pl.pallas_call(
        jagged_softmax_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid=(512,),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32), pltpu.VMEM((1, 512), jnp.float32)],
        input_output_aliases={2: 0},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, x, y_in)
    return y
