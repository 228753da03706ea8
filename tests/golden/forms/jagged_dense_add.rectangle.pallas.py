"""jagged_dense_add for tpu:v6e, blocks tm=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_dense_add_kernel(offsets, x, dense, y_in, y):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # Rectangle of steps (g, tm), 512 x 1024; dead steps move no data.
    def at(n):
        g = jax.lax.div(n, 1024)
        tm_step = jax.lax.rem(n, 1024)
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 128)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 127, 128), tm_first)
        tm_live = tm_step < tm_stop - tm_first
        tm = jnp.minimum(jnp.minimum(tm_first + tm_step, jnp.maximum(tm_stop - 1, tm_first)), 1023)
        return tm_live, (g, tm)

    def step(x_ref, dense_ref, dense_1_ref, y_in_ref, y_ref):
        n = pl.program_id(0)
        live, (g, tm) = at(n)
        _, before = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tm))
        def _():
            # first step at this block of y: start from what the array holds
            y_ref[...] = y_in_ref[...]

        @pl.when(live)
        def _():
            # jagged_dense_add.py:45: begin, end = offsets[g], offsets[g + 1]
            begin = offsets[g]
            # jagged_dense_add.py:48: y[tm, :] = x[tm, :] + hl.load(dense, [g, place, slice(None)...
            tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            dense_blocks = jnp.where(
                jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) >= -offsets[g] % 128,
                dense_ref[...].astype(jnp.float32),
                dense_1_ref[...].astype(jnp.float32),
            )
            dense_moved = pltpu.roll(dense_blocks, offsets[g] % 128, 0).astype(jnp.bfloat16)
            y_ref[...] = jnp.where(
                tm_mask,
                x_ref[...] + jnp.where(tm_index - begin < 1024, dense_moved, 0.0),
                y_ref[...],
            )

    pltpu.emit_pipeline(
        step,
        grid=(524288,),
        in_specs=[
            pl.BlockSpec((128, 512), lambda n: (at(n)[1][1], 0)),
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
    )(x, dense, dense, y_in, y)


def jagged_dense_add(
    x: jax.Array,
    dense: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] + dense[g, r - offsets[g]] for offsets[g] <= r < offsets[g + 1]."""
    y_in = jnp.zeros((131072, 512), jnp.bfloat16)
    y = pl.pallas_call(
        jagged_dense_add_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        input_output_aliases={3: 0},
        interpret=interpret,
    )(offsets, x, dense, y_in)
    return y
