"""jagged_softmax for tpu:v6e, blocks tf=512, tm=256, tm_1=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_softmax_kernel(offsets, x, y, total_ref, m_ref, g_of, phase_of, tm_of, tm_1_of):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 256; ordered: carries total, m
    # tm_1: column of the step table, blocks of 256; parallel: each tm writes its own rows of y
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    # Step table: for every g, a row for each tile of tm, then tm_1.
    # A tm_1 of no range gets one too, so that its outputs are defined;
    # every tm_1 below `tm_1_seen` has a row already.
    # In rows of tm, tm_1 is where it is next, or was last.
    def add_phase(g, phase, tm, tm_1, n):
        g_of[n] = g
        phase_of[n] = phase
        tm_of[n] = tm
        tm_1_of[n] = tm_1
        return n + 1

    def add_g(g, state):
        n, tm_seen, tm_1_seen = state
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 256)
        tm_first = jnp.maximum(tm_first, tm_seen - 1)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 255, 256), 0)
        tm_1_first = jax.lax.div(tm_begin, 256)
        tm_1_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 255, 256), tm_1_seen)
        tm_1_start = jnp.where(
            (tm_end > tm_begin) & (tm_1_first < tm_1_seen), tm_1_seen - 1, tm_1_seen
        )
        tm_1_at = jnp.where(
            tm_1_stop > tm_1_start, tm_1_start, jnp.where(n > 0, tm_1_of[jnp.maximum(n - 1, 0)], 0)
        )
        n = jax.lax.fori_loop(tm_first, tm_stop, lambda tm, n: add_phase(g, 0, tm, tm_1_at, n), n)
        n = jax.lax.fori_loop(
            tm_1_start, tm_1_stop, lambda tm_1, n: add_phase(g, 1, tm_1, tm_1, n), n
        )
        tm_seen = jnp.maximum(tm_seen, tm_stop)
        tm_1_seen = jnp.maximum(tm_1_seen, tm_1_stop)
        return n, tm_seen, tm_1_seen

    steps, _, tm_1_seen = jax.lax.fori_loop(
        0, 512, add_g, (jnp.int32(0), jnp.int32(0), jnp.int32(0))
    )
    steps = jax.lax.fori_loop(
        tm_1_seen, 512, lambda tm_1, n: add_phase(511, 1, tm_1, tm_1, n), steps
    )

    def step(x_ref, y_ref):
        n = pl.program_id(0)
        g, phase, tm, tm_1 = g_of[n], phase_of[n], tm_of[n], tm_1_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_1_of[before] != tm_1))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((256, 512), jnp.bfloat16)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            # jagged_softmax.py:42: m = hl.full([tf], -math.inf, dtype=hl.float32)
            m_ref[...] = jnp.full((1, 512), -jnp.inf, jnp.float32)
            # jagged_softmax.py:43: total = hl.zeros([tf], dtype=hl.float32)
            total_ref[...] = jnp.zeros((1, 512), jnp.float32)

        @pl.when(phase == 0)
        def _():
            # jagged_softmax.py:45: rows = x[tm, tf].to(hl.float32)
            tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            rows = jnp.where(tm_mask, x_ref[...].astype(jnp.float32), -jnp.inf)
            m = m_ref[...]
            # jagged_softmax.py:46: new = hl.maximum(m, rows.amax(0))
            new = jnp.maximum(m, jnp.max(rows, axis=0, keepdims=True))
            # jagged_softmax.py:47: total = total * hl.exp(m - new) + hl.exp(rows - new[None, :])...
            total_ref[...] = (
                total_ref[...] * jnp.exp(m - new)
                + jnp.sum(jnp.exp(rows - new), axis=0, keepdims=True)
            )
            # jagged_softmax.py:48: m = new
            m_ref[...] = new

        @pl.when(phase == 1)
        def _():
            # jagged_softmax.py:50: rows = x[tm, tf].to(hl.float32)
            rows = x_ref[...].astype(jnp.float32)
            # jagged_softmax.py:51: y[tm, tf] = (hl.exp(rows - m[None, :]) / total[None, :]).to(y...
            tm_1_index = tm_1 * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tm_1_mask = (tm_1_index >= offsets[g]) & (tm_1_index < offsets[g + 1])
            y_ref[...] = jnp.where(
                tm_1_mask,
                (jnp.exp(rows - m_ref[...]) / total_ref[...]).astype(jnp.bfloat16),
                y_ref[...],
            )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[pl.BlockSpec((256, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4))],
        out_specs=[pl.BlockSpec((256, 512), lambda n: (tm_1_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, y)


def jagged_softmax(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r, f] = exp(x[r, f]) / sum of exp(x[s, f]) over the rows s of r's group."""
    y = pl.pallas_call(
        jagged_softmax_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1, 512), jnp.float32),
            pltpu.VMEM((1, 512), jnp.float32),
            pltpu.SMEM((2046,), jnp.int32),
            pltpu.SMEM((2046,), jnp.int32),
            pltpu.SMEM((2046,), jnp.int32),
            pltpu.SMEM((2046,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, x)
    return y
