"""jagged_mean for tpu:v6e, blocks tf=512, tm=512."""

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


def jagged_mean_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (g, tm), and how many there are."""
    g = jnp.arange(512, dtype=jnp.int32)
    steps = jnp.int32(512)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 512)
    tm_live = tm_end > tm_begin
    tm_first = jnp.minimum(tm_first, 255)
    tm_entry, tm, steps = expand(
        tm_first,
        jnp.maximum(
            jnp.where(tm_live, jnp.clip(jax.lax.div(tm_end + 511, 512) - tm_first, 0, 256), 0), 1
        ),
        1280,
    )
    g = g[tm_entry]
    return g, tm, steps.reshape((1,))


def jagged_mean_kernel(offsets, g_of, tm_of, steps_of, x_ref, y_ref, total_ref):
    # g: column of the step table; parallel: each g writes its own rows of y
    # tm: column of the step table, blocks of 512; ordered: carries total, a sum
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    n = pl.program_id(0)
    steps = steps_of[0]
    g, tm = g_of[n], tm_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (g_of[before] != g))
    def _():
        # jagged_mean.py:26: total = jnp.zeros([tf], dtype=jnp.float32)
        total_ref[...] = jnp.zeros((1, 512), jnp.float32)

    # jagged_mean.py:28: total += jnp.sum(x[tm, tf].astype(jnp.float32), axis=0)
    tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
    tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
    total_ref[...] += jnp.sum(
        jnp.where(tm_mask, x_ref[...].astype(jnp.float32), 0.0),
        axis=0,
        keepdims=True,
    )

    @pl.when((n == steps - 1) | (g_of[after] != g))
    def _():
        # jagged_mean.py:24: begin, end = offsets[g], offsets[g + 1]
        end = offsets[g + 1]
        begin = offsets[g]
        # jagged_mean.py:29: count = jnp.maximum(end - begin, 1)
        count = jnp.maximum(end - begin, 1)
        # jagged_mean.py:30: y[g, tf] = (total / count.astype(jnp.float32)).astype(y.dtype)
        g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
        y_ref[...] = jnp.where(
            g_row, (total_ref[...] / jnp.float32(count)).astype(jnp.bfloat16), y_ref[...]
        )


def jagged_mean(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the mean of x[offsets[g] : offsets[g + 1]], 0 if there are no such rows."""
    g_of, tm_of, steps_of = jagged_mean_steps(offsets)
    y = pl.pallas_call(
        jagged_mean_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec((512, 512), lambda n, offsets, g_of, tm_of, steps_of: (tm_of[n], 0))
            ],
            out_specs=pl.BlockSpec(
                (16, 512), lambda n, offsets, g_of, tm_of, steps_of: (jax.lax.div(g_of[n], 16), 0)
            ),
            scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, g_of, tm_of, steps_of, x)
    return y
