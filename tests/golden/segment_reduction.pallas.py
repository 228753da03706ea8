"""segment_reduction for tpu:v6e, blocks tf=256, tm=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def segment_reduction_kernel(offsets, x, sums_ref, peaks_ref, x_ref, x_copied, flow):
    # tf: grid dimension, blocks of 256; parallel: each tf writes its own columns of sums and peaks
    # g: grid dimension; parallel: each g writes its own rows of sums and peaks
    # tm: loop inside the step, blocks of 128; ordered: carries total, peak
    tf = pl.program_id(0)
    g = pl.program_id(1)
    # all of sums is in memory: the step has a block of it
    sums_ref = sums_ref.at[pl.ds(16 * jax.lax.div(g, 16), 16), pl.ds(256 * tf, 256)]
    # all of peaks is in memory: the step has a block of it
    peaks_ref = peaks_ref.at[pl.ds(16 * jax.lax.div(g, 16), 16), pl.ds(256 * tf, 256)]

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

    @pl.when(offsets[g + 1] > flow[0] * 4096 - 112)
    def _():
        reach = jax.lax.div(
            jnp.minimum(jnp.clip(offsets[g + 1], 0, 131072) + 112, 131072) + 4095, 4096
        )

        @pl.loop(flow[0], reach)
        def _(piece):
            x_piece(piece).wait()

        flow[0] = jnp.maximum(flow[0], reach)

    # segment_reduction.py:41: begin, end = offsets[g], offsets[g + 1]
    begin = offsets[g]
    end = offsets[g + 1]
    # segment_reduction.py:45: for tm in hl.tile(begin, end):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 16) * 16
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end - tm_first + 127, 128), 0)
    total, peak = jnp.zeros((1, 256), jnp.float32), jnp.full((1, 256), -jnp.inf, jnp.float32)
    def each_tm(tm, carried):
        total, peak = carried
        # segment_reduction.py:46: rows = x[tm, tf].astype(jnp.float32)
        tm_row = pl.multiple_of(jnp.minimum(tm_first + tm * 128, 130944), 16)
        rows = x_ref[pl.ds(tm_row, 128)].astype(jnp.float32)
        # segment_reduction.py:47: total += jnp.sum(rows, axis=0)
        tm_index = tm_row + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tm_mask = (
            (tm_index >= jnp.maximum(offsets[g], tm_first + tm * 128)) & (tm_index < offsets[g + 1])
        )
        total_1 = total + jnp.sum(jnp.where(tm_mask, rows, 0.0), axis=0, keepdims=True)
        # segment_reduction.py:48: peak = jnp.maximum(peak, jnp.max(rows, axis=0))
        peak_1 = jnp.maximum(
            peak, jnp.max(jnp.where(tm_mask, rows, -jnp.inf), axis=0, keepdims=True)
        )
        return total_1, peak_1

    total, peak = jax.lax.fori_loop(0, tm_stop, each_tm, (total, peak))
    # segment_reduction.py:49: sums[g, tf] = total.astype(sums.dtype)
    g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
    sums_ref[...] = jnp.where(g_row, total.astype(jnp.bfloat16), sums_ref[...])
    # segment_reduction.py:50: peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(peaks.dtype)
    peaks_ref[...] = jnp.where(
        g_row, jnp.where(begin < end, peak, 0.0).astype(jnp.bfloat16), peaks_ref[...]
    )

    @pl.when(g == 511)
    def _():
        @pl.loop(flow[0], 32)
        def _(piece):
            x_piece(piece).wait()


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
        grid=(2, 512),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[
            pl.BlockSpec((512, 512), lambda tf, g: (0, 0)),
            pl.BlockSpec((512, 512), lambda tf, g: (0, 0)),
        ],
        scratch_shapes=[
            pltpu.VMEM((131072, 256), jnp.bfloat16),
            pltpu.SemaphoreType.DMA((32,)),
            pltpu.SMEM((3,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"),
            vmem_limit_bytes=85983232,
        ),
        interpret=interpret,
    )(offsets, x)
    return sums, peaks
