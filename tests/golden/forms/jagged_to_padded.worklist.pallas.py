"""jagged_to_padded for tpu:v6e, blocks t=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def expand(first: jax.Array, count: jax.Array, rows: int) -> tuple[jax.Array, ...]:
    """For each row its entry and its tile; entry i has count[i] rows.  And how many rows."""
    first, count = jnp.broadcast_arrays(first, count)
    ends = jnp.cumsum(count)
    row = jnp.arange(rows)
    entry = jnp.searchsorted(ends, row, side="right").astype(jnp.int32)
    entry = jnp.minimum(entry, len(count) - 1)
    return entry, first[entry] + row - (ends - count)[entry], jnp.minimum(ends[-1], rows)


def jagged_to_padded_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, t), and how many there are."""
    b = jnp.arange(512, dtype=jnp.int32)
    steps = jnp.int32(512)
    # every range of t, and the rows that its tiles are
    t_entry, t, steps = expand(
        jnp.full(b.shape, 0, jnp.int32), jnp.full(b.shape, 8, jnp.int32), 4096
    )
    b = b[t_entry]
    return b, t, steps.reshape((1,))


def jagged_to_padded_kernel(offsets, b_of, t_of, steps_of, x_ref, x_1_ref, out_ref):
    # b: column of the step table; parallel: each b writes its own rows of out
    # t: column of the step table, blocks of 128; parallel: each t writes its own slices of out
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


def jagged_to_padded(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    b_of, t_of, steps_of = jagged_to_padded_steps(offsets)
    out = pl.pallas_call(
        jagged_to_padded_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 1024, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec(
                    (128, 512),
                    lambda n, offsets, b_of, t_of, steps_of: (
                        jnp.clip(t_of[n] + offsets[b_of[n]] // 128, 0, 1023), 0
                    ),
                ),
                pl.BlockSpec(
                    (128, 512),
                    lambda n, offsets, b_of, t_of, steps_of: (
                        jnp.clip(t_of[n] + offsets[b_of[n]] // 128 + 1, 0, 1023), 0
                    ),
                ),
            ],
            out_specs=pl.BlockSpec(
                (None, 128, 512), lambda n, offsets, b_of, t_of, steps_of: (b_of[n], t_of[n], 0)
            ),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, b_of, t_of, steps_of, x, x)
    return out
