"""jagged_to_padded for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_to_padded_kernel(offsets, x, out_in, out):
    # b: column of the step table; parallel: each b writes its own rows of out
    # t: column of the step table, blocks of 128; parallel: each t writes its own slices of out
    # Rectangle of steps (b, t), 512 x 8; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 8)
        t_step = jax.lax.rem(n, 8)
        t_end = jnp.minimum(offsets[b + 1] - offsets[b], 1024)
        t_stop = jnp.where(t_end > 0, jax.lax.div(t_end + 127, 128), 0)
        t_live = t_step < t_stop
        t = jnp.minimum(jnp.minimum(t_step, jnp.maximum(t_stop - 1, 0)), 7)
        return t_live, (b, t)

    def step(x_ref, x_1_ref, out_in_ref, out_ref):
        n = pl.program_id(0)
        live, (b, t) = at(n)
        _, before = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[0] != b) | (before[1] != t))
        def _():
            # first step at this block of out: start from what the array holds
            out_ref[...] = out_in_ref[...]

        @pl.when(live)
        def _():
            # jagged_to_padded.py:45: out[b, t, :] = x[begin + t.index, :]
            t_index = t * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            t_mask = t_index < jnp.minimum(offsets[b + 1] - offsets[b], 1024)
            x_blocks = jnp.where(
                jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) >= offsets[b] % 128,
                x_ref[...].astype(jnp.float32),
                x_1_ref[...].astype(jnp.float32),
            )
            x_moved = pltpu.roll(x_blocks, -offsets[b] % 128, 0).astype(jnp.bfloat16)
            out_ref[...] = jnp.where(t_mask, x_moved, out_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(4096,),
        in_specs=[
            pl.BlockSpec(
                (128, 512),
                lambda n: (jnp.clip(at(n)[1][1] + offsets[at(n)[1][0]] // 128, 0, 1023), 0),
            ),
            pl.BlockSpec(
                (128, 512),
                lambda n: (jnp.clip(at(n)[1][1] + offsets[at(n)[1][0]] // 128 + 1, 0, 1023), 0),
            ),
            pl.BlockSpec((None, 128, 512), lambda n: (at(n)[1][0], at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((None, 128, 512), lambda n: (at(n)[1][0], at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, x, out_in, out)


def jagged_to_padded(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    out_in = jnp.zeros((512, 1024, 512), jnp.bfloat16)
    out = pl.pallas_call(
        jagged_to_padded_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 1024, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        input_output_aliases={2: 0},
        interpret=interpret,
    )(offsets, x, out_in)
    return out
