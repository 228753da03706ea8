"""padded_to_jagged for tpu:v6e, blocks t=128."""

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


def padded_to_jagged_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, t), and how many there are."""
    b = jnp.arange(512, dtype=jnp.int32)
    steps = jnp.int32(512)
    # every range of t, and the rows that its tiles are
    t_begin = jnp.maximum(offsets[b], 0)
    t_end = jnp.minimum(jnp.minimum(offsets[b + 1], offsets[b] + 1024), 131072)
    t_first = jax.lax.div(t_begin, 128)
    t_live = t_end > t_begin
    t_stop = jnp.where(t_live, jax.lax.div(t_end + 127, 128), 0)
    # tiles below t_seen have a row already; only the last one may be shared
    t_seen = jnp.maximum(jax.lax.cummax(t_stop), 0)
    t_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), t_seen[:-1]])
    t_start = jnp.where(t_live & (t_first < t_seen), t_seen - 1, t_seen)
    t_count = jnp.clip(jnp.where(t_live, t_stop, t_seen) - t_start, 0, 1024)
    # one more entry: the t behind the last range
    t_rest = jnp.max(t_stop)
    b = jnp.append(b, b[-1])
    t_entry, t, steps = expand(
        jnp.append(t_start, t_rest), jnp.append(t_count, 1024 - t_rest), 1535
    )
    b = b[t_entry]
    return b, t, steps.reshape((1,))


def padded_to_jagged_kernel(offsets, b_of, t_of, steps_of, d_ref, d_1_ref, y_ref):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # t: column of the step table, blocks of 128; parallel: each t writes its own rows of y
    n = pl.program_id(0)
    b, t = b_of[n], t_of[n]
    before = jnp.maximum(n - 1, 0)

    @pl.when((n == 0) | (t_of[before] != t))
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

    # padded_to_jagged.py:45: y[t, :] = d[b, t.index - begin, :]
    t_index = t * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
    t_mask = (t_index >= offsets[b]) & (t_index < jnp.minimum(offsets[b + 1], offsets[b] + 1024))
    d_blocks = jnp.where(
        jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) >= -offsets[b] % 128,
        d_ref[...].astype(jnp.float32),
        d_1_ref[...].astype(jnp.float32),
    )
    d_moved = pltpu.roll(d_blocks, offsets[b] % 128, 0).astype(jnp.bfloat16)
    y_ref[...] = jnp.where(t_mask, d_moved, y_ref[...])


def padded_to_jagged(d: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L)."""
    b_of, t_of, steps_of = padded_to_jagged_steps(offsets)
    y = pl.pallas_call(
        padded_to_jagged_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec(
                    (None, 128, 512),
                    lambda n, offsets, b_of, t_of, steps_of: (
                        b_of[n], jnp.clip(t_of[n] + -offsets[b_of[n]] // 128, 0, 7), 0
                    ),
                ),
                pl.BlockSpec(
                    (None, 128, 512),
                    lambda n, offsets, b_of, t_of, steps_of: (
                        b_of[n], jnp.clip(t_of[n] + -offsets[b_of[n]] // 128 + 1, 0, 7), 0
                    ),
                ),
            ],
            out_specs=pl.BlockSpec(
                (128, 512), lambda n, offsets, b_of, t_of, steps_of: (t_of[n], 0)
            ),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, b_of, t_of, steps_of, d, d)
    return y
