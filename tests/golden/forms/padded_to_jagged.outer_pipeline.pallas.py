"""padded_to_jagged for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def padded_to_jagged_kernel(offsets, d, y, b_of, t_of):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # t: column of the step table, blocks of 128; parallel: each t writes its own rows of y
    # Step table: one row for every (b, t), in the order of the loops.
    # A t of no range gets one too, so that its outputs are defined;
    # every t below `seen` has a row already.
    def add_t(b, t, n):
        b_of[n] = b
        t_of[n] = t
        return n + 1

    def add_b(b, state):
        n, seen = state
        t_begin = jnp.maximum(offsets[b], 0)
        t_end = jnp.minimum(jnp.minimum(offsets[b + 1], offsets[b] + 1024), 131072)
        t_first = jax.lax.div(t_begin, 128)
        t_stop = jnp.where(t_end > t_begin, jax.lax.div(t_end + 127, 128), seen)
        t_start = jnp.where((t_end > t_begin) & (t_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(t_start, t_stop, lambda t, n: add_t(b, t, n), n)
        return n, jnp.maximum(seen, t_stop)

    steps, seen = jax.lax.fori_loop(0, 512, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 1024, lambda t, n: add_t(511, t, n), steps)

    def step(d_ref, d_1_ref, y_ref):
        n = pl.program_id(0)
        b, t = b_of[n], t_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (t_of[before] != t))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

        # padded_to_jagged.py:45: y[t, :] = d[b, t.index - begin, :]
        t_index = t * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        t_mask = (
            (t_index >= offsets[b]) & (t_index < jnp.minimum(offsets[b + 1], offsets[b] + 1024))
        )
        d_blocks = jnp.where(
            jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) >= -offsets[b] % 128,
            d_ref[...].astype(jnp.float32),
            d_1_ref[...].astype(jnp.float32),
        )
        d_moved = pltpu.roll(d_blocks, offsets[b] % 128, 0).astype(jnp.bfloat16)
        y_ref[...] = jnp.where(t_mask, d_moved, y_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (None, 128, 512),
                lambda n: (b_of[n], jnp.clip(t_of[n] + -offsets[b_of[n]] // 128, 0, 7), 0),
                pipeline_mode=pl.Buffered(4),
            ),
            pl.BlockSpec(
                (None, 128, 512),
                lambda n: (b_of[n], jnp.clip(t_of[n] + -offsets[b_of[n]] // 128 + 1, 0, 7), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda n: (t_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(d, d, y)


def padded_to_jagged(d: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L)."""
    y = pl.pallas_call(
        padded_to_jagged_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((1535,), jnp.int32), pltpu.SMEM((1535,), jnp.int32)],
        interpret=interpret,
    )(offsets, d)
    return y
