"""padded_to_jagged for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def padded_to_jagged_kernel(offsets, d, y_in, y):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # t: column of the step table, blocks of 128; parallel: each t writes its own rows of y
    # Rectangle of steps (b, t), 512 x 9; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 9)
        t_step = jax.lax.rem(n, 9)
        t_begin = jnp.maximum(offsets[b], 0)
        t_end = jnp.minimum(jnp.minimum(offsets[b + 1], offsets[b] + 1024), 131072)
        t_first = jax.lax.div(t_begin, 128)
        t_stop = jnp.where(t_end > t_begin, jax.lax.div(t_end + 127, 128), t_first)
        t_live = t_step < t_stop - t_first
        t = jnp.minimum(jnp.minimum(t_first + t_step, jnp.maximum(t_stop - 1, t_first)), 1023)
        return t_live, (b, t)

    def step(d_ref, d_1_ref, y_in_ref, y_ref):
        n = pl.program_id(0)
        live, (b, t) = at(n)
        _, before = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != t))
        def _():
            # first step at this block of y: start from what the array holds
            y_ref[...] = y_in_ref[...]

        @pl.when(live)
        def _():
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
        grid=(4608,),
        in_specs=[
            pl.BlockSpec(
                (None, 128, 512),
                lambda n: (
                    at(n)[1][0], jnp.clip(at(n)[1][1] + -offsets[at(n)[1][0]] // 128, 0, 7), 0
                ),
            ),
            pl.BlockSpec(
                (None, 128, 512),
                lambda n: (
                    at(n)[1][0], jnp.clip(at(n)[1][1] + -offsets[at(n)[1][0]] // 128 + 1, 0, 7), 0
                ),
            ),
            pl.BlockSpec((128, 512), lambda n: (at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda n: (at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(d, d, y_in, y)


def padded_to_jagged(d: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L)."""
    y_in = jnp.zeros((131072, 512), jnp.bfloat16)
    y = pl.pallas_call(
        padded_to_jagged_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        input_output_aliases={2: 0},
        interpret=interpret,
    )(offsets, d, y_in)
    return y
