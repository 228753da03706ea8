"""jagged_to_padded for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_to_padded_kernel(offsets, x, out, b_of, t_of):
    # b: column of the step table; parallel: each b writes its own rows of out
    # t: column of the step table, blocks of 128; parallel: each t writes its own slices of out
    # Step table: one row for every (b, t), in the order of the loops.
    def add_t(b, t, n):
        b_of[n] = b
        t_of[n] = t
        return n + 1

    def add_b(b, n):
        return jax.lax.fori_loop(0, 8, lambda t, n: add_t(b, t, n), n)

    steps = jax.lax.fori_loop(0, 512, add_b, jnp.int32(0))

    def step(x_ref, x_1_ref, out_ref):
        n = pl.program_id(0)
        b, t = b_of[n], t_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (b_of[before] != b) | (t_of[before] != t))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

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
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (128, 512),
                lambda n: (jnp.clip(t_of[n] + offsets[b_of[n]] // 128, 0, 1023), 0),
                pipeline_mode=pl.Buffered(4),
            ),
            pl.BlockSpec(
                (128, 512),
                lambda n: (jnp.clip(t_of[n] + offsets[b_of[n]] // 128 + 1, 0, 1023), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((None, 128, 512), lambda n: (b_of[n], t_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, x, out)


def jagged_to_padded(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    out = pl.pallas_call(
        jagged_to_padded_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 1024, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((4096,), jnp.int32), pltpu.SMEM((4096,), jnp.int32)],
        interpret=interpret,
    )(offsets, x)
    return out
