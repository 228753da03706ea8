"""segment_reduction for tpu:v6e, blocks tf=128, tm=16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def segment_reduction_kernel(offsets, x_ref, sums_ref, peaks_ref):
    # tf: grid dimension, blocks of 128; parallel: each tf writes its own columns of sums and peaks
    # g: grid dimension; parallel: each g writes its own rows of sums and peaks
    # tm: loop inside the step, blocks of 16; ordered: carries total, peak
    g = pl.program_id(1)
    # segment_reduction.py:41: begin, end = offsets[g], offsets[g + 1]
    begin = offsets[g]
    end = offsets[g + 1]
    # segment_reduction.py:45: for tm in hl.tile(begin, end):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 16)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 15, 16), tm_first)
    total, peak = jnp.zeros((1, 128), jnp.float32), jnp.full((1, 128), -jnp.inf, jnp.float32)
    def each_tm(tm, carried):
        total, peak = carried
        # segment_reduction.py:46: rows = x[tm, tf].astype(jnp.float32)
        rows = x_ref[pl.ds(tm * 16, 16)].astype(jnp.float32)
        # segment_reduction.py:47: total += jnp.sum(rows, axis=0)
        tm_index = tm * 16 + jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        total_1 = total + jnp.sum(jnp.where(tm_mask, rows, 0.0), axis=0, keepdims=True)
        # segment_reduction.py:48: peak = jnp.maximum(peak, jnp.max(rows, axis=0))
        peak_1 = jnp.maximum(
            peak, jnp.max(jnp.where(tm_mask, rows, -jnp.inf), axis=0, keepdims=True)
        )
        return total_1, peak_1

    total, peak = jax.lax.fori_loop(tm_first, tm_stop, each_tm, (total, peak))
    # segment_reduction.py:49: sums[g, tf] = total.astype(sums.dtype)
    g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
    sums_ref[...] = jnp.where(g_row, total.astype(jnp.bfloat16), sums_ref[...])
    # segment_reduction.py:50: peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(peaks.dtype)
    peaks_ref[...] = jnp.where(
        g_row, jnp.where(begin < end, peak, 0.0).astype(jnp.bfloat16), peaks_ref[...]
    )


def segment_reduction(
    x: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """The sum and the maximum of x[offsets[g] : offsets[g + 1]], for every g."""
    sums, peaks = pl.pallas_call(
        segment_reduction_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
            jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        ],
        grid=(4, 512),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((131072, 128), lambda tf, g: (0, tf)),
        ],
        out_specs=[
            pl.BlockSpec((16, 128), lambda tf, g: (jax.lax.div(g, 16), tf)),
            pl.BlockSpec((16, 128), lambda tf, g: (jax.lax.div(g, 16), tf)),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=84934656,
        ),
        interpret=interpret,
    )(offsets, x)
    return sums, peaks
