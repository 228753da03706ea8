"""segment_reduction for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def segment_reduction_kernel(offsets, x, sums, peaks, total_ref, peak_ref):
    # g: column of the step table; parallel: each g writes its own rows of sums and peaks
    # tm: column of the step table, blocks of 512; ordered: carries total, peak
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of sums and peaks
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

    def step(x_ref, sums_ref, peaks_ref):
        n = pl.program_id(0)
        live, (g, tm), (tm_first, tm_stop) = at(n)

        @pl.when(live & (tm == tm_first))
        def _():
            # segment_reduction.py:43: total = jnp.zeros([tf], dtype=jnp.float32)
            total_ref[...] = jnp.zeros((1, 512), jnp.float32)
            # segment_reduction.py:44: peak = jnp.full([tf], -math.inf, dtype=jnp.float32)
            peak_ref[...] = jnp.full((1, 512), -jnp.inf, jnp.float32)

        @pl.when(
            live
            & (jnp.maximum(offsets[g], tm * 512) < jnp.minimum(offsets[g + 1], tm * 512 + 512)),
        )
        def _():
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

        @pl.when(live & (tm == tm_stop - 1))
        def _():
            # segment_reduction.py:49: sums[g, tf] = total.astype(sums.dtype)
            g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
            sums_ref[...] = jnp.where(g_row, total_ref[...].astype(jnp.bfloat16), sums_ref[...])
            # segment_reduction.py:41: begin, end = offsets[g], offsets[g + 1]
            end = offsets[g + 1]
            begin = offsets[g]
            # segment_reduction.py:50: peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(pe...
            peaks_ref[...] = jnp.where(
                g_row,
                jnp.where(begin < end, peak_ref[...], 0.0).astype(jnp.bfloat16),
                peaks_ref[...],
            )

    pltpu.emit_pipeline(
        step,
        grid=(131072,),
        in_specs=[pl.BlockSpec((512, 512), lambda n: (at(n)[1][1], 0))],
        out_specs=[
            pl.BlockSpec((16, 512), lambda n: (jax.lax.div(at(n)[1][0], 16), 0)),
            pl.BlockSpec((16, 512), lambda n: (jax.lax.div(at(n)[1][0], 16), 0)),
        ],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, sums, peaks)


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
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32), pltpu.VMEM((1, 512), jnp.float32)],
        interpret=interpret,
    )(offsets, x)
    return sums, peaks
