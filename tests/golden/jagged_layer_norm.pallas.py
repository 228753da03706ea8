"""jagged_layer_norm for tpu:v6e, blocks g=128, tm=4096, tm_1=4096, tm_2=4096."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def spans_of(offsets: jax.Array, size: int) -> jax.Array:
    """Where blocks of `size` ranges [offsets[g], offsets[g + 1]) begin, then where they end.

    Of a block without rows, where its rows would be: its step stays there.  Few blocks look at all
    ranges, each at its own: to lay them out anew takes longer.
    """
    begin, end = offsets[:-1], offsets[1:]
    count, most = len(begin), jnp.iinfo(begin.dtype).max
    live, own = end > begin, jnp.arange(-(-count // size))[:, None] == jnp.arange(count) // size

    def each(values: jax.Array, other: int) -> jax.Array:
        if count <= 128 * size:
            return jnp.where(own, values, other)
        return jnp.pad(values, (0, -count % size), constant_values=other).reshape(-1, size)

    first = each(jnp.where(live, begin, most), most).min(axis=1)
    stop = each(jnp.where(live, end, 0), 0).max(axis=1)
    first = jnp.where(first < stop, first, each(begin, most).min(axis=1))
    return jnp.concatenate([first, stop])


def jagged_layer_norm_kernel(
    offsets_spans, offsets_begin_row, offsets_end_row, x, weight_row, bias_row, y, total_ref,
    squares_ref, scale_ref, g_of, phase_of, tm_of, tm_2_of,
):
    # g: column of the step table, blocks of 128; parallel: y rows of different g are disjoint
    #     because offsets is sorted; a step has the rows of all in its block
    # tm: column of the step table, blocks of 4096; ordered: carries total, a sum
    # tm_1: column of the step table, blocks of 4096; ordered: carries squares, a sum
    # tm_2: column of the step table, blocks of 4096; parallel: each tm writes its own rows of y
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
        tm_begin = jnp.maximum(offsets_spans[g], 0)
        tm_end = jnp.minimum(offsets_spans[g + 4], 131072)
        tm_first = jax.lax.div(tm_begin, 4096)
        tm_first = jnp.maximum(tm_first, tm_seen - 1)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 4095, 4096), 0)
        tm_1_first = jax.lax.div(tm_begin, 4096)
        tm_1_first = jnp.maximum(tm_1_first, tm_1_seen - 1)
        tm_1_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 4095, 4096), 0)
        tm_2_first = jax.lax.div(tm_begin, 4096)
        tm_2_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 4095, 4096), tm_2_seen)
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
        0, 4, add_g, (jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(0))
    )
    steps = jax.lax.fori_loop(tm_2_seen, 32, lambda tm_2, n: add_phase(3, 2, tm_2, tm_2, n), steps)

    def step(offsets_begin_ref, offsets_end_ref, x_ref, weight_ref, bias_ref, y_ref):
        n = pl.program_id(0)
        g, phase, tm, tm_2 = g_of[n], phase_of[n], tm_of[n], tm_2_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_2_of[before] != tm_2))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((4096, 512), jnp.bfloat16)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            total_ref[...] = jnp.zeros((1, 128), jnp.float32)
            squares_ref[...] = jnp.zeros((1, 128), jnp.float32)

        @pl.when(phase == 0)
        def _():
            # jagged_layer_norm.py:46: total += jnp.sum(x[tm, :].astype(jnp.float32))
            tm_index = tm * 4096 + jax.lax.broadcasted_iota(jnp.int32, (4096, 1), 0)
            tm_mask = (tm_index >= offsets_spans[g]) & (tm_index < offsets_spans[g + 4])
            total_ref[...] += jnp.sum(
                jnp.where(
                    (tm_index >= offsets_begin_ref[...]) & (tm_index < offsets_end_ref[...])
                    & tm_mask,
                    jnp.sum(x_ref[...].astype(jnp.float32), axis=1, keepdims=True),
                    0.0,
                ),
                axis=0,
                keepdims=True,
            )

        @pl.when(phase == 1)
        def _():
            # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
            end = offsets_end_ref[...]
            begin = offsets_begin_ref[...]
            # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
            count = jnp.maximum(end - begin, 1).astype(jnp.float32) * 512.0
            # jagged_layer_norm.py:47: mean = total / count
            mean = total_ref[...] / count
            # jagged_layer_norm.py:50: centred = x[tm, :].astype(jnp.float32) - mean
            tm_index = tm * 4096 + jax.lax.broadcasted_iota(jnp.int32, (4096, 1), 0)
            centred = (
                x_ref[...].astype(jnp.float32)
                - jnp.sum(
                    jnp.where(
                        (tm_index >= offsets_begin_ref[...]) & (tm_index < offsets_end_ref[...]),
                        mean,
                        0.0,
                    ),
                    axis=1,
                    keepdims=True,
                )
            )
            # jagged_layer_norm.py:51: squares += jnp.sum(centred * centred)
            tm_mask = (tm_index >= offsets_spans[g]) & (tm_index < offsets_spans[g + 4])
            squares_ref[...] += jnp.sum(
                jnp.where(
                    (tm_index >= offsets_begin_ref[...]) & (tm_index < offsets_end_ref[...])
                    & tm_mask,
                    jnp.sum(centred * centred, axis=1, keepdims=True),
                    0.0,
                ),
                axis=0,
                keepdims=True,
            )

        @pl.when((phase == 2) & ((n == 0) | (g_of[before] != g) | (phase_of[before] < 2)))
        def _():
            # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
            end = offsets_end_ref[...]
            begin = offsets_begin_ref[...]
            # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
            count = jnp.maximum(end - begin, 1).astype(jnp.float32) * 512.0
            # jagged_layer_norm.py:52: scale = jax.lax.rsqrt(squares / count + eps)
            scale_ref[...] = jax.lax.rsqrt(squares_ref[...] / count + 1e-05)

        @pl.when(phase == 2)
        def _():
            # jagged_layer_norm.py:54: normal = (x[tm, :].astype(jnp.float32) - mean) * scale
            normal_offsets_begin = offsets_begin_ref[...]
            normal_offsets_end = offsets_end_ref[...]
            # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
            end = offsets_end_ref[...]
            begin = offsets_begin_ref[...]
            # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
            count = jnp.maximum(end - begin, 1).astype(jnp.float32) * 512.0
            # jagged_layer_norm.py:47: mean = total / count
            mean = total_ref[...] / count
            # jagged_layer_norm.py:54: normal = (x[tm, :].astype(jnp.float32) - mean) * scale
            tm_2_index = tm_2 * 4096 + jax.lax.broadcasted_iota(jnp.int32, (4096, 1), 0)
            normal = (
                (
                    x_ref[...].astype(jnp.float32)
                    - jnp.sum(
                        jnp.where(
                            (tm_2_index >= normal_offsets_begin)
                            & (tm_2_index < normal_offsets_end),
                            mean,
                            0.0,
                        ),
                        axis=1,
                        keepdims=True,
                    )
                )
                * jnp.sum(
                    jnp.where(
                        (tm_2_index >= normal_offsets_begin) & (tm_2_index < normal_offsets_end),
                        scale_ref[...],
                        0.0,
                    ),
                    axis=1,
                    keepdims=True,
                )
            )
            # jagged_layer_norm.py:55: y[tm, :] = (normal * weight[:] + bias[:]).astype(y.dtype)
            tm_2_mask = (tm_2_index >= offsets_spans[g]) & (tm_2_index < offsets_spans[g + 4])
            y_ref[...] = jnp.where(
                tm_2_mask
                & (jnp.sum(
                    jnp.where(
                        (tm_2_index >= offsets_begin_ref[...])
                        & (tm_2_index < offsets_end_ref[...]),
                        jnp.full((1, 128), 1.0, jnp.float32),
                        0.0,
                    ),
                    axis=1,
                    keepdims=True,
                )
                > 0.0),
                (
                    normal * weight_ref[...].astype(jnp.float32) + bias_ref[...].astype(jnp.float32)
                ).astype(jnp.bfloat16),
                y_ref[...],
            )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((1, 128), lambda n: (0, g_of[n]), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((1, 128), lambda n: (0, g_of[n]), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((4096, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((1, 512), lambda n: (0, 0)),
            pl.BlockSpec((1, 512), lambda n: (0, 0)),
        ],
        out_specs=[pl.BlockSpec((4096, 512), lambda n: (tm_2_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(offsets_begin_row, offsets_end_row, x, weight_row, bias_row, y)


def jagged_layer_norm(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = (x[r] - mean of r's group) / sqrt(variance of r's group + eps) * weight + bias."""
    offsets_begin = offsets[0:512]
    offsets_end = offsets[1:513]
    offsets_spans = spans_of(offsets, 128)
    offsets_begin_row = offsets_begin.reshape((1, 512))
    offsets_end_row = offsets_end.reshape((1, 512))
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
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1, 128), jnp.float32),
            pltpu.VMEM((1, 128), jnp.float32),
            pltpu.VMEM((1, 128), jnp.float32),
            pltpu.SMEM((105,), jnp.int32),
            pltpu.SMEM((105,), jnp.int32),
            pltpu.SMEM((105,), jnp.int32),
            pltpu.SMEM((105,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=48234496),
        interpret=interpret,
    )(offsets_spans, offsets_begin_row, offsets_end_row, x, weight_row, bias_row)
    return y
