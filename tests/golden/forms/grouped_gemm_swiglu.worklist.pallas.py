"""grouped_gemm_gated for tpu:v6e, blocks tk=4096, tm=128, tn=512."""

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


def grouped_gemm_gated_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (g, tm), and how many there are."""
    g = jnp.arange(64, dtype=jnp.int32)
    steps = jnp.int32(64)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 16384)
    tm_first = jax.lax.div(tm_begin, 128)
    tm_live = tm_end > tm_begin
    tm_stop = jnp.where(tm_live, jax.lax.div(tm_end + 127, 128), 0)
    # tiles below tm_seen have a row already; only the last one may be shared
    tm_seen = jnp.maximum(jax.lax.cummax(tm_stop), 0)
    tm_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_seen[:-1]])
    tm_start = jnp.where(tm_live & (tm_first < tm_seen), tm_seen - 1, tm_seen)
    tm_count = jnp.clip(jnp.where(tm_live, tm_stop, tm_seen) - tm_start, 0, 128)
    # one more entry: the tm behind the last range
    tm_rest = jnp.max(tm_stop)
    g = jnp.append(g, g[-1])
    tm_entry, tm, steps = expand(
        jnp.append(tm_start, tm_rest), jnp.append(tm_count, 128 - tm_rest), 191
    )
    g = g[tm_entry]
    return g, tm, steps.reshape((1,))


def grouped_gemm_gated_kernel(offsets, g_of, tm_of, steps_of, x_ref, w_ref, v_ref, y_ref):
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own columns of y
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries gate, value, sums
    n = pl.program_id(1)
    g, tm = g_of[n], tm_of[n]
    before = jnp.maximum(n - 1, 0)

    @pl.when((n == 0) | (tm_of[before] != tm))
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

    # grouped_gemm_bias_activation.py:67: gate = jnp.zeros([tm, tn], dtype=jnp.float32)
    gate = jnp.zeros((128, 512), jnp.float32)
    # grouped_gemm_bias_activation.py:68: value = jnp.zeros([tm, tn], dtype=jnp.float32)
    value = jnp.zeros((128, 512), jnp.float32)
    # grouped_gemm_bias_activation.py:70: rows = x[tm, tk]
    rows = x_ref[...]
    # grouped_gemm_bias_activation.py:71: gate += jnp.dot(rows, w[g, tk, tn], preferred_element_t...
    gate = gate + jnp.dot(rows, w_ref[...], preferred_element_type=jnp.float32)
    # grouped_gemm_bias_activation.py:72: value += jnp.dot(rows, v[g, tk, tn], preferred_element_...
    value = value + jnp.dot(rows, v_ref[...], preferred_element_type=jnp.float32)
    # grouped_gemm_bias_activation.py:73: y[tm, tn] = (activation(gate) * value).astype(y.dtype)
    tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
    tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
    y_ref[...] = jnp.where(tm_mask, (jax.nn.silu(gate) * value).astype(jnp.bfloat16), y_ref[...])


def grouped_gemm_gated(
    x: jax.Array,
    w: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = activation(x[r] @ w[g]) * (x[r] @ v[g]); rows in no group are zero."""
    g_of, tm_of, steps_of = grouped_gemm_gated_steps(offsets)
    y = pl.pallas_call(
        grouped_gemm_gated_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 2048), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(4, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (128, 4096), lambda tn, n, offsets, g_of, tm_of, steps_of: (tm_of[n], 0)
                ),
                pl.BlockSpec(
                    (None, 4096, 512),
                    lambda tn, n, offsets, g_of, tm_of, steps_of: (g_of[n], 0, tn),
                ),
                pl.BlockSpec(
                    (None, 4096, 512),
                    lambda tn, n, offsets, g_of, tm_of, steps_of: (g_of[n], 0, tn),
                ),
            ],
            out_specs=pl.BlockSpec(
                (128, 512), lambda tn, n, offsets, g_of, tm_of, steps_of: (tm_of[n], tn)
            ),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(offsets, g_of, tm_of, steps_of, x, w, v)
    return y
