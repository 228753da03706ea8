"""jagged_softmax for tpu:v6e, blocks tf=512, tm=256, tm_1=256."""

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


def held(tile: jax.Array) -> jax.Array:
    """Where a tile is -1, that of the row before; 0 if there is none."""
    last = jax.lax.cummax(jnp.where(tile >= 0, jnp.arange(len(tile)), -1))
    return jnp.where(last >= 0, tile[last], 0)


def jagged_softmax_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (g, phase, tm, tm_1), and how many there are."""
    g = jnp.arange(512, dtype=jnp.int32)
    steps = jnp.int32(512)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 256)
    tm_live = tm_end > tm_begin
    tm_stop = jnp.where(tm_live, jax.lax.div(tm_end + 255, 256), 0)
    # tiles below tm_seen have a row already; only the last one may be shared
    tm_seen = jnp.maximum(jax.lax.cummax(tm_stop), 0)
    tm_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_seen[:-1]])
    tm_start = jnp.maximum(tm_first, tm_seen - 1)
    tm_count = jnp.where(tm_live, jnp.clip(tm_stop - tm_start, 0, 512), 0)
    # every range of tm_1, and the rows that its tiles are
    tm_1_begin = jnp.maximum(offsets[g], 0)
    tm_1_end = jnp.minimum(offsets[g + 1], 131072)
    tm_1_first = jax.lax.div(tm_1_begin, 256)
    tm_1_live = tm_1_end > tm_1_begin
    tm_1_stop = jnp.where(tm_1_live, jax.lax.div(tm_1_end + 255, 256), 0)
    # tiles below tm_1_seen have a row already; only the last one may be shared
    tm_1_seen = jnp.maximum(jax.lax.cummax(tm_1_stop), 0)
    tm_1_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_1_seen[:-1]])
    tm_1_start = jnp.where(tm_1_live & (tm_1_first < tm_1_seen), tm_1_seen - 1, tm_1_seen)
    tm_1_count = jnp.clip(jnp.where(tm_1_live, tm_1_stop, tm_1_seen) - tm_1_start, 0, 512)
    # one more entry each: tiles behind the last range, of loops that need those
    tm_start = jnp.append(tm_start, 0)
    tm_count = jnp.append(tm_count, 0)
    tm_1_rest = jnp.max(tm_1_stop)
    tm_1_start = jnp.append(tm_1_start, tm_1_rest)
    tm_1_count = jnp.append(tm_1_count, 512 - tm_1_rest)
    g = jnp.append(g, g[-1])
    # entries of one row follow each other, in the order of the loops
    phase_entry, phase_tile, steps = expand(
        jnp.stack([tm_start, tm_1_start], axis=1).reshape(-1),
        jnp.stack([tm_count, tm_1_count], axis=1).reshape(-1),
        2046,
    )
    phase = jax.lax.rem(phase_entry, 2)
    tm = phase_tile
    tm_1_at = (
        jnp.stack(
            [
                jnp.where(tm_1_count > 0, tm_1_start, jnp.full_like(tm_start, -1)),
                jnp.full_like(tm_1_start, -1),
            ],
            axis=1,
        )
    ).reshape(-1)
    tm_1 = held(jnp.where(phase == 1, phase_tile, tm_1_at[phase_entry]))
    g = g[jax.lax.div(phase_entry, 2)]
    return g, phase, tm, tm_1, steps.reshape((1,))


def jagged_softmax_kernel(
    offsets, g_of, phase_of, tm_of, tm_1_of, steps_of, x_ref, y_ref, total_ref, m_ref,
):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 256; ordered: carries total, m
    # tm_1: column of the step table, blocks of 256; parallel: each tm writes its own rows of y
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    n = pl.program_id(0)
    g, phase, tm, tm_1 = g_of[n], phase_of[n], tm_of[n], tm_1_of[n]
    before = jnp.maximum(n - 1, 0)

    @pl.when((n == 0) | (tm_1_of[before] != tm_1))
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((256, 512), jnp.bfloat16)

    @pl.when((n == 0) | (g_of[before] != g))
    def _():
        # jagged_softmax.py:42: m = hl.full([tf], -math.inf, dtype=hl.float32)
        m_ref[...] = jnp.full((1, 512), -jnp.inf, jnp.float32)
        # jagged_softmax.py:43: total = hl.zeros([tf], dtype=hl.float32)
        total_ref[...] = jnp.zeros((1, 512), jnp.float32)

    @pl.when(phase == 0)
    def _():
        # jagged_softmax.py:45: rows = x[tm, tf].to(hl.float32)
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        rows = jnp.where(tm_mask, x_ref[...].astype(jnp.float32), -jnp.inf)
        m = m_ref[...]
        # jagged_softmax.py:46: new = hl.maximum(m, rows.amax(0))
        new = jnp.maximum(m, jnp.max(rows, axis=0, keepdims=True))
        # jagged_softmax.py:47: total = total * hl.exp(m - new) + hl.exp(rows - new[None, :]).sum(0)
        total_ref[...] = (
            total_ref[...] * jnp.exp(m - new) + jnp.sum(jnp.exp(rows - new), axis=0, keepdims=True)
        )
        # jagged_softmax.py:48: m = new
        m_ref[...] = new

    @pl.when(phase == 1)
    def _():
        # jagged_softmax.py:50: rows = x[tm, tf].to(hl.float32)
        rows = x_ref[...].astype(jnp.float32)
        # jagged_softmax.py:51: y[tm, tf] = (hl.exp(rows - m[None, :]) / total[None, :]).to(y.dtype)
        tm_1_index = tm_1 * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_1_mask = (tm_1_index >= offsets[g]) & (tm_1_index < offsets[g + 1])
        y_ref[...] = jnp.where(
            tm_1_mask,
            (jnp.exp(rows - m_ref[...]) / total_ref[...]).astype(jnp.bfloat16),
            y_ref[...],
        )


def jagged_softmax(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r, f] = exp(x[r, f]) / sum of exp(x[s, f]) over the rows s of r's group."""
    g_of, phase_of, tm_of, tm_1_of, steps_of = jagged_softmax_steps(offsets)
    y = pl.pallas_call(
        jagged_softmax_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=6,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec(
                    (256, 512),
                    lambda n, offsets, g_of, phase_of, tm_of, tm_1_of, steps_of: (tm_of[n], 0),
                ),
            ],
            out_specs=pl.BlockSpec(
                (256, 512),
                lambda n, offsets, g_of, phase_of, tm_of, tm_1_of, steps_of: (tm_1_of[n], 0),
            ),
            scratch_shapes=[pltpu.VMEM((1, 512), jnp.float32), pltpu.VMEM((1, 512), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, g_of, phase_of, tm_of, tm_1_of, steps_of, x)
    return y
