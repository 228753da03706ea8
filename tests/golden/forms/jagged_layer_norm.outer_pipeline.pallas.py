"""jagged_layer_norm for tpu:v6e, blocks tm=512, tm_1=512, tm_2=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_layer_norm_kernel(
    offsets, x, weight_row, bias_row, y, total_ref, squares_ref, scale_ref, g_of, phase_of, tm_of,
    tm_2_of,
):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 512; ordered: carries total, a sum
    # tm_1: column of the step table, blocks of 512; ordered: carries squares, a sum
    # tm_2: column of the step table, blocks of 512; parallel: each tm writes its own rows of y
    # Step table: for every g, a row for each tile of tm, then tm_1, then tm_2.
    # A tm_2 of no range gets one too, so that its outputs are defined;
    # every tm_2 below `tm_2_seen` has a row already.
    # In rows of tm and tm_1, tm_2 is where it is next, or was last.
    def add_phase(g, phase, tm, tm_2, n):
        g_of[n] = g
        phase_of[n] = phase
        tm_of[n] = tm
        tm_2_of[n] = tm_2
        return n + 1

    def add_g(g, state):
        n, tm_seen, tm_1_seen, tm_2_seen = state
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_first = jnp.maximum(tm_first, tm_seen - 1)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), 0)
        tm_1_first = jax.lax.div(tm_begin, 512)
        tm_1_first = jnp.maximum(tm_1_first, tm_1_seen - 1)
        tm_1_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), 0)
        tm_2_first = jax.lax.div(tm_begin, 512)
        tm_2_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_2_seen)
        tm_2_start = jnp.where(
            (tm_end > tm_begin) & (tm_2_first < tm_2_seen), tm_2_seen - 1, tm_2_seen
        )
        tm_2_at = jnp.where(
            tm_2_stop > tm_2_start, tm_2_start, jnp.where(n > 0, tm_2_of[jnp.maximum(n - 1, 0)], 0)
        )
        n = jax.lax.fori_loop(tm_first, tm_stop, lambda tm, n: add_phase(g, 0, tm, tm_2_at, n), n)
        n = jax.lax.fori_loop(
            tm_1_first, tm_1_stop, lambda tm_1, n: add_phase(g, 1, tm_1, tm_2_at, n), n
        )
        n = jax.lax.fori_loop(
            tm_2_start, tm_2_stop, lambda tm_2, n: add_phase(g, 2, tm_2, tm_2, n), n
        )
        tm_seen = jnp.maximum(tm_seen, tm_stop)
        tm_1_seen = jnp.maximum(tm_1_seen, tm_1_stop)
        tm_2_seen = jnp.maximum(tm_2_seen, tm_2_stop)
        return n, tm_seen, tm_1_seen, tm_2_seen

    steps, _, _, tm_2_seen = jax.lax.fori_loop(
        0, 512, add_g, (jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(0))
    )
    steps = jax.lax.fori_loop(
        tm_2_seen, 256, lambda tm_2, n: add_phase(511, 2, tm_2, tm_2, n), steps
    )

    def step(x_ref, weight_ref, bias_ref, y_ref):
        n = pl.program_id(0)
        g, phase, tm, tm_2 = g_of[n], phase_of[n], tm_of[n], tm_2_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_2_of[before] != tm_2))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((512, 512), jnp.bfloat16)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            total_ref[...] = jnp.zeros((1, 1), jnp.float32)
            squares_ref[...] = jnp.zeros((1, 1), jnp.float32)

        @pl.when(phase == 0)
        def _():
            # jagged_layer_norm.py:46: total += jnp.sum(x[tm, :].astype(jnp.float32))
            tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            total_ref[...] += jnp.sum(
                jnp.where(
                    tm_mask, jnp.sum(x_ref[...].astype(jnp.float32), axis=1, keepdims=True), 0.0
                ),
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
            tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
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
            tm_2_index = tm_2 * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tm_2_mask = (tm_2_index >= offsets[g]) & (tm_2_index < offsets[g + 1])
            y_ref[...] = jnp.where(
                tm_2_mask,
                (
                    normal * weight_ref[...].astype(jnp.float32) + bias_ref[...].astype(jnp.float32)
                ).astype(jnp.bfloat16),
                y_ref[...],
            )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((512, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((1, 512), lambda n: (0, 0)),
            pl.BlockSpec((1, 512), lambda n: (0, 0)),
        ],
        out_specs=[pl.BlockSpec((512, 512), lambda n: (tm_2_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, weight_row, bias_row, y)


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
    y = pl.pallas_call(
        jagged_layer_norm_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1, 1), jnp.float32),
            pltpu.VMEM((1, 1), jnp.float32),
            pltpu.VMEM((1, 1), jnp.float32),
            pltpu.SMEM((2301,), jnp.int32),
            pltpu.SMEM((2301,), jnp.int32),
            pltpu.SMEM((2301,), jnp.int32),
            pltpu.SMEM((2301,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, x, weight_row, bias_row)
    return y
