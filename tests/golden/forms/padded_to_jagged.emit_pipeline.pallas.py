"""padded_to_jagged for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def padded_to_jagged_kernel(offsets, d, y_in, y):
    # b: grid dimension; parallel: y rows of different b are disjoint because offsets is sorted
    # t: pipeline inside the step, blocks of 128; parallel: each t writes its own rows of y
    b = pl.program_id(0)
    # padded_to_jagged.py:44: for t in hl.tile(begin, hl.minimum(offsets[b + 1], begin + L)):
    t_begin = jnp.maximum(offsets[b], 0)
    t_end = jnp.minimum(jnp.minimum(offsets[b + 1], offsets[b] + 1024), 131072)
    t_first = jax.lax.div(t_begin, 128)
    t_stop = jnp.where(t_end > t_begin, jax.lax.div(t_end + 127, 128), t_first)

    def each_t(d_ref, d_1_ref, y_in_ref, y_ref):
        t = t_first + pl.program_id(0)
        # rows of other ranges stay as y has them
        y_ref[...] = y_in_ref[...]
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
        each_t,
        grid=(t_stop - t_first,),
        in_specs=[
            pl.BlockSpec(
                (None, 128, 512),
                lambda t: (b, jnp.clip((t_first + t) + -offsets[b] // 128, 0, 7), 0),
            ),
            pl.BlockSpec(
                (None, 128, 512),
                lambda t: (b, jnp.clip((t_first + t) + -offsets[b] // 128 + 1, 0, 7), 0),
            ),
            pl.BlockSpec((128, 512), lambda t: (t_first + t, 0)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda t: (t_first + t, 0))],
    )(d, d, y, y)


def padded_to_jagged(d: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L)."""
    y_in = jnp.zeros((131072, 512), jnp.bfloat16)
    y = pl.pallas_call(
        padded_to_jagged_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(512,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
        ),
        input_output_aliases={2: 0},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, d, y_in)
    return y
