"""segment_reduction for tpu:v6e, blocks tf=512, tm=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def expand(first: jax.Array, count: jax.Array, rows: int) -> tuple[jax.Array, ...]:
    """For each row its entry and its tile; entry i has count[i] rows.  And how many rows."""
    first, count = jnp.broadcast_arrays(first, count)
    ends = jnp.cumsum(count)
    row = jnp.arange(rows)
    entry = jnp.searchsorted(ends, row, side="right").astype(jnp.int32)
    entry = jnp.minimum(entry, len(count) - 1)
    return entry, first[entry] + row - (ends - count)[entry], jnp.minimum(ends[-1], rows)


def segment_reduction_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (g, tm), and how many there are."""
    g = jnp.arange(512, dtype=jnp.int32)
    steps = jnp.int32(512)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 512)
    tm_live = tm_end > tm_begin
    tm_first = jnp.minimum(tm_first, 255)
    tm_entry, tm, steps = expand(
        tm_first,
        jnp.maximum(
            jnp.where(tm_live, jnp.clip(jax.lax.div(tm_end + 511, 512) - tm_first, 0, 256), 0), 1
        ),
        1280,
    )
    g = g[tm_entry]
    return g, tm, steps.reshape((1,))


def segment_reduction_kernel(
    offsets, g_of, tm_of, steps_of, x_ref, sums_ref, peaks_ref, total_ref, peak_ref,
):
    # g: column of the step table; parallel: each g writes its own rows of sums and peaks
    # tm: column of the step table, blocks of 512; ordered: carries total, peak
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of sums and peaks
    n = pl.program_id(0)
    steps = steps_of[0]
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
        # segment_reduction.py:50: peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(peaks....
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
    g_of, tm_of, steps_of = segment_reduction_steps(offsets)
    sums, peaks = pl.pallas_call(
        segment_reduction_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
            jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        ],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec((512, 512), lambda n, offsets, g_of, tm_of, steps_of: (tm_of[n], 0))
            ],
            out_specs=[
                pl.BlockSpec(
                    (16, 512),
                    lambda n, offsets, g_of, tm_of, steps_of: (jax.lax.div(g_of[n], 16), 0),
                ),
                pl.BlockSpec(
                    (16, 512),
                    lambda n, offsets, g_of, tm_of, steps_of: (jax.lax.div(g_of[n], 16), 0),
                ),
            ],
            scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32), pltpu.VMEM((1, 512), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, g_of, tm_of, steps_of, x)
    return sums, peaks
