"""jagged_to_padded for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_to_padded_kernel(offsets, x, out_in, out):
    # b: grid dimension; parallel: each b writes its own rows of out
    # t: pipeline inside the step, blocks of 128; parallel: each t writes its own slices of out
    b = pl.program_id(0)
    # jagged_to_padded.py:44: for t in hl.tile(hl.minimum(end - begin, L)):
    t_end = jnp.minimum(offsets[b + 1] - offsets[b], 1024)
    t_stop = jnp.where(t_end > 0, jax.lax.div(t_end + 127, 128), 0)

    def each_t(x_ref, x_1_ref, out_in_ref, out_ref):
        t = pl.program_id(0)
        # rows of other ranges stay as out has them
        out_ref[...] = out_in_ref[...]
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
        each_t,
        grid=(t_stop,),
        in_specs=[
            pl.BlockSpec((128, 512), lambda t: (jnp.clip(t + offsets[b] // 128, 0, 1023), 0)),
            pl.BlockSpec((128, 512), lambda t: (jnp.clip(t + offsets[b] // 128 + 1, 0, 1023), 0)),
            pl.BlockSpec((None, 128, 512), lambda t: (b, t, 0)),
        ],
        out_specs=[pl.BlockSpec((None, 128, 512), lambda t: (b, t, 0))],
    )(x, x, out, out)


def jagged_to_padded(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    out_in = jnp.zeros((512, 1024, 512), jnp.bfloat16)
    out = pl.pallas_call(
        jagged_to_padded_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 1024, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(512,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
        ),
        input_output_aliases={2: 0},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(offsets, x, out_in)
    return out
