"""segment_reduction for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def segment_reduction_kernel(offsets, x, sums_ref, peaks_ref, total_ref, peak_ref):
    # g: grid dimension; parallel: each g writes its own rows of sums and peaks
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of sums and peaks
    # tm: pipeline inside the step, blocks of 512; ordered: carries total, peak
    g = pl.program_id(0)
    # segment_reduction.py:41: begin, end = offsets[g], offsets[g + 1]
    begin = offsets[g]
    end = offsets[g + 1]
    # segment_reduction.py:43: total = jnp.zeros([tf], dtype=jnp.float32)
    total_ref[...] = jnp.zeros((1, 512), jnp.float32)
    # segment_reduction.py:44: peak = jnp.full([tf], -math.inf, dtype=jnp.float32)
    peak_ref[...] = jnp.full((1, 512), -jnp.inf, jnp.float32)
    # segment_reduction.py:45: for tm in hl.tile(begin, end):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 512)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first)

    def each_tm(x_ref):
        tm = tm_first + pl.program_id(0)
        # segment_reduction.py:46: rows = x[tm, tf].astype(jnp.float32)
        rows = x_ref[...].astype(jnp.float32)
        # segment_reduction.py:47: total += jnp.sum(rows, axis=0)
        tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        total_ref[...] += jnp.sum(jnp.where(tm_mask, rows, 0.0), axis=0, keepdims=True)
        # segment_reduction.py:48: peak = jnp.maximum(peak, jnp.max(rows, axis=0))
        peak_ref[...] = jnp.maximum(
            peak_ref[...], jnp.max(jnp.where(tm_mask, rows, -jnp.inf), axis=0, keepdims=True)
        )

    pltpu.emit_pipeline(
        each_tm,
        grid=(tm_stop - tm_first,),
        in_specs=[pl.BlockSpec((512, 512), lambda tm: (tm_first + tm, 0))],
    )(x)
    # segment_reduction.py:49: sums[g, tf] = total.astype(sums.dtype)
    g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
    sums_ref[...] = jnp.where(g_row, total_ref[...].astype(jnp.bfloat16), sums_ref[...])
    # segment_reduction.py:50: peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(peaks.dtype)
    peaks_ref[...] = jnp.where(
        g_row, jnp.where(begin < end, peak_ref[...], 0.0).astype(jnp.bfloat16), peaks_ref[...]
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
        grid=(512,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[
            pl.BlockSpec((16, 512), lambda g: (jax.lax.div(g, 16), 0)),
            pl.BlockSpec((16, 512), lambda g: (jax.lax.div(g, 16), 0)),
        ],
        scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32), pltpu.VMEM((1, 512), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, x)
    return sums, peaks
