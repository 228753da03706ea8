"""segment_reduction for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def segment_reduction_kernel(offsets, x, sums, peaks, total_ref, peak_ref, g_of, tm_of):
    # g: column of the step table; parallel: each g writes its own rows of sums and peaks
    # tm: column of the step table, blocks of 512; ordered: carries total, peak
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of sums and peaks
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

    def step(x_ref, sums_ref, peaks_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            # segment_reduction.py:43: total = jnp.zeros([tf], dtype=jnp.float32)
            total_ref[...] = jnp.zeros((1, 512), jnp.float32)
            # segment_reduction.py:44: peak = jnp.full([tf], -math.inf, dtype=jnp.float32)
            peak_ref[...] = jnp.full((1, 512), -jnp.inf, jnp.float32)

        @pl.when(jnp.maximum(offsets[g], tm * 512) < jnp.minimum(offsets[g + 1], tm * 512 + 512))
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

        @pl.when((n == steps - 1) | (g_of[after] != g))
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
        grid=(steps,),
        in_specs=[pl.BlockSpec((512, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4))],
        out_specs=[
            pl.BlockSpec((16, 512), lambda n: (jax.lax.div(g_of[n], 16), 0)),
            pl.BlockSpec((16, 512), lambda n: (jax.lax.div(g_of[n], 16), 0)),
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
        scratch_shapes=[
            pltpu.VMEM((1, 512), jnp.float32),
            pltpu.VMEM((1, 512), jnp.float32),
            pltpu.SMEM((1280,), jnp.int32),
            pltpu.SMEM((1280,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, x)
    return sums, peaks
