"""jagged_layer_norm for tpu:v6e, blocks tm=256, tm_1=256, tm_2=256."""

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


def held(tile: jax.Array) -> jax.Array:
    """Where a tile is -1, that of the row before; 0 if there is none."""
    last = jax.lax.cummax(jnp.where(tile >= 0, jnp.arange(len(tile)), -1))
    return jnp.where(last >= 0, tile[last], 0)


def jagged_layer_norm_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (g, phase, tm, tm_2), and how many there are."""
    g = jnp.arange(512, dtype=jnp.int32)
    steps = jnp.int32(512)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 256)
    tm_live = tm_end > tm_begin
    tm_stop = jnp.where(tm_live, jax.lax.div(tm_end + 255, 256), 0)
    # tiles below tm_seen have a row already; only the last one may be shared
    tm_seen = jnp.maximum(jax.lax.cummax(tm_stop), 0)
    tm_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_seen[:-1]])
    tm_start = jnp.maximum(tm_first, tm_seen - 1)
    tm_count = jnp.where(tm_live, jnp.clip(tm_stop - tm_start, 0, 512), 0)
    # every range of tm_1, and the rows that its tiles are
    tm_1_begin = jnp.maximum(offsets[g], 0)
    tm_1_end = jnp.minimum(offsets[g + 1], 131072)
    tm_1_first = jax.lax.div(tm_1_begin, 256)
    tm_1_live = tm_1_end > tm_1_begin
    tm_1_stop = jnp.where(tm_1_live, jax.lax.div(tm_1_end + 255, 256), 0)
    # tiles below tm_1_seen have a row already; only the last one may be shared
    tm_1_seen = jnp.maximum(jax.lax.cummax(tm_1_stop), 0)
    tm_1_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_1_seen[:-1]])
    tm_1_start = jnp.maximum(tm_1_first, tm_1_seen - 1)
    tm_1_count = jnp.where(tm_1_live, jnp.clip(tm_1_stop - tm_1_start, 0, 512), 0)
    # every range of tm_2, and the rows that its tiles are
    tm_2_begin = jnp.maximum(offsets[g], 0)
    tm_2_end = jnp.minimum(offsets[g + 1], 131072)
    tm_2_first = jax.lax.div(tm_2_begin, 256)
    tm_2_live = tm_2_end > tm_2_begin
    tm_2_stop = jnp.where(tm_2_live, jax.lax.div(tm_2_end + 255, 256), 0)
    # tiles below tm_2_seen have a row already; only the last one may be shared
    tm_2_seen = jnp.maximum(jax.lax.cummax(tm_2_stop), 0)
    tm_2_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_2_seen[:-1]])
    tm_2_start = jnp.where(tm_2_live & (tm_2_first < tm_2_seen), tm_2_seen - 1, tm_2_seen)
    tm_2_count = jnp.clip(jnp.where(tm_2_live, tm_2_stop, tm_2_seen) - tm_2_start, 0, 512)
    # one more entry each: tiles behind the last range, of loops that need those
    tm_start = jnp.append(tm_start, 0)
    tm_count = jnp.append(tm_count, 0)
    tm_1_start = jnp.append(tm_1_start, 0)
    tm_1_count = jnp.append(tm_1_count, 0)
    tm_2_rest = jnp.max(tm_2_stop)
    tm_2_start = jnp.append(tm_2_start, tm_2_rest)
    tm_2_count = jnp.append(tm_2_count, 512 - tm_2_rest)
    g = jnp.append(g, g[-1])
    # entries of one row follow each other, in the order of the loops
    phase_entry, phase_tile, steps = expand(
        jnp.stack([tm_start, tm_1_start, tm_2_start], axis=1).reshape(-1),
        jnp.stack([tm_count, tm_1_count, tm_2_count], axis=1).reshape(-1),
        3069,
    )
    phase = jax.lax.rem(phase_entry, 3)
    tm = phase_tile
    tm_2_at = (
        jnp.stack(
            [
                jnp.where(tm_2_count > 0, tm_2_start, jnp.full_like(tm_start, -1)),
                jnp.where(tm_2_count > 0, tm_2_start, jnp.full_like(tm_1_start, -1)),
                jnp.full_like(tm_2_start, -1),
            ],
            axis=1,
        )
    ).reshape(-1)
    tm_2 = held(jnp.where(phase == 2, phase_tile, tm_2_at[phase_entry]))
    g = g[jax.lax.div(phase_entry, 3)]
    return g, phase, tm, tm_2, steps.reshape((1,))


def jagged_layer_norm_kernel(
    offsets, g_of, phase_of, tm_of, tm_2_of, steps_of, x_ref, weight_ref, bias_ref, y_ref,
    total_ref, squares_ref, scale_ref,
):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 256; ordered: carries total, a sum
    # tm_1: column of the step table, blocks of 256; ordered: carries squares, a sum
    # tm_2: column of the step table, blocks of 256; parallel: each tm writes its own rows of y
    n = pl.program_id(0)
    g, phase, tm, tm_2 = g_of[n], phase_of[n], tm_of[n], tm_2_of[n]
    before = jnp.maximum(n - 1, 0)

    @pl.when((n == 0) | (tm_2_of[before] != tm_2))
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((256, 512), jnp.bfloat16)

    @pl.when((n == 0) | (g_of[before] != g))
    def _():
        total_ref[...] = jnp.zeros((1, 1), jnp.float32)
        squares_ref[...] = jnp.zeros((1, 1), jnp.float32)

    @pl.when(phase == 0)
    def _():
        # jagged_layer_norm.py:46: total += jnp.sum(x[tm, :].astype(jnp.float32))
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        total_ref[...] += jnp.sum(
            jnp.where(tm_mask, jnp.sum(x_ref[...].astype(jnp.float32), axis=1, keepdims=True), 0.0),
            axis=0,
            keepdims=True,
        )

    @pl.when(phase == 1)
    def _():
        # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
        end = offsets[g + 1]
        begin = offsets[g]
        # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
        count = jnp.float32(jnp.maximum(end - begin, 1)) * 512.0
        # jagged_layer_norm.py:47: mean = total / count
        mean = total_ref[...] / count
        # jagged_layer_norm.py:50: centred = x[tm, :].astype(jnp.float32) - mean
        centred = x_ref[...].astype(jnp.float32) - mean
        # jagged_layer_norm.py:51: squares += jnp.sum(centred * centred)
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        squares_ref[...] += jnp.sum(
            jnp.where(tm_mask, jnp.sum(centred * centred, axis=1, keepdims=True), 0.0),
            axis=0,
            keepdims=True,
        )

    @pl.when((phase == 2) & ((n == 0) | (g_of[before] != g) | (phase_of[before] < 2)))
    def _():
        # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
        end = offsets[g + 1]
        begin = offsets[g]
        # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
        count = jnp.float32(jnp.maximum(end - begin, 1)) * 512.0
        # jagged_layer_norm.py:52: scale = jax.lax.rsqrt(squares / count + eps)
        scale_ref[...] = jax.lax.rsqrt(squares_ref[...] / count + 1e-05)

    @pl.when(phase == 2)
    def _():
        # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
        end = offsets[g + 1]
        begin = offsets[g]
        # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
        count = jnp.float32(jnp.maximum(end - begin, 1)) * 512.0
        # jagged_layer_norm.py:47: mean = total / count
        mean = total_ref[...] / count
        # jagged_layer_norm.py:54: normal = (x[tm, :].astype(jnp.float32) - mean) * scale
        normal = (x_ref[...].astype(jnp.float32) - mean) * scale_ref[...]
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
    g_of, phase_of, tm_of, tm_2_of, steps_of = jagged_layer_norm_steps(offsets)
    y = pl.pallas_call(
        jagged_layer_norm_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=6,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec(
                    (256, 512),
                    lambda n, offsets, g_of, phase_of, tm_of, tm_2_of, steps_of: (tm_of[n], 0),
                ),
                pl.BlockSpec(
                    (1, 512), lambda n, offsets, g_of, phase_of, tm_of, tm_2_of, steps_of: (0, 0)
                ),
                pl.BlockSpec(
                    (1, 512), lambda n, offsets, g_of, phase_of, tm_of, tm_2_of, steps_of: (0, 0)
                ),
            ],
            out_specs=pl.BlockSpec(
                (256, 512),
                lambda n, offsets, g_of, phase_of, tm_of, tm_2_of, steps_of: (tm_2_of[n], 0),
            ),
            scratch_shapes=[
                pltpu.VMEM((1, 1), jnp.float32),
                pltpu.VMEM((1, 1), jnp.float32),
                pltpu.VMEM((1, 1), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, g_of, phase_of, tm_of, tm_2_of, steps_of, x, weight_row, bias_row)
    return y
