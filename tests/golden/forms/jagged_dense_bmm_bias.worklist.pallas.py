"""jagged_dense_bmm_bias for tpu:v6e, blocks tk=512, tm=128, tn=512."""

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


def jagged_dense_bmm_bias_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tm), and how many there are."""
    b = jnp.arange(128, dtype=jnp.int32)
    steps = jnp.int32(128)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[b], 0)
    tm_end = jnp.minimum(offsets[b + 1], 32768)
    tm_first = jax.lax.div(tm_begin, 128)
    tm_live = tm_end > tm_begin
    tm_stop = jnp.where(tm_live, jax.lax.div(tm_end + 127, 128), 0)
    # tiles below tm_seen have a row already; only the last one may be shared
    tm_seen = jnp.maximum(jax.lax.cummax(tm_stop), 0)
    tm_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tm_seen[:-1]])
    tm_start = jnp.where(tm_live & (tm_first < tm_seen), tm_seen - 1, tm_seen)
    tm_count = jnp.clip(jnp.where(tm_live, tm_stop, tm_seen) - tm_start, 0, 256)
    # one more entry: the tm behind the last range
    tm_rest = jnp.max(tm_stop)
    b = jnp.append(b, b[-1])
    tm_entry, tm, steps = expand(
        jnp.append(tm_start, tm_rest), jnp.append(tm_count, 256 - tm_rest), 383
    )
    b = b[tm_entry]
    return b, tm, steps.reshape((1,))


def jagged_dense_bmm_bias_kernel(offsets, b_of, tm_of, steps_of, x_ref, w_ref, bias_ref, y_ref):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 512; ordered: carries acc, a sum
    # tn: one tile, blocks of 512; parallel: each tn writes its own columns of y
    n = pl.program_id(0)
    b, tm = b_of[n], tm_of[n]
    before = jnp.maximum(n - 1, 0)

    @pl.when((n == 0) | (tm_of[before] != tm))
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

    # jagged_dense_bmm.py:45: acc = torch.zeros([tm, tn], dtype=torch.float32)
    acc = jnp.zeros((128, 512), jnp.float32)
    # jagged_dense_bmm.py:47: acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
    acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    # jagged_dense_bmm.py:48: y[tm, tn] = (acc + bias[b, tn]).to(y.dtype)
    tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
    tm_mask = (tm_index >= offsets[b]) & (tm_index < offsets[b + 1])
    b_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(b, 16)
    bias_b = jnp.sum(jnp.where(b_row, bias_ref[...], 0.0), axis=0, keepdims=True)
    y_ref[...] = jnp.where(
        tm_mask, (acc + bias_b.astype(jnp.float32)).astype(jnp.bfloat16), y_ref[...]
    )


def jagged_dense_bmm_bias(
    x: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] @ w[b] + bias[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    b_of, tm_of, steps_of = jagged_dense_bmm_bias_steps(offsets)
    y = pl.pallas_call(
        jagged_dense_bmm_bias_kernel,
        out_shape=jax.ShapeDtypeStruct((32768, 512), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec((128, 512), lambda n, offsets, b_of, tm_of, steps_of: (tm_of[n], 0)),
                pl.BlockSpec(
                    (None, 512, 512), lambda n, offsets, b_of, tm_of, steps_of: (b_of[n], 0, 0)
                ),
                pl.BlockSpec(
                    (16, 512),
                    lambda n, offsets, b_of, tm_of, steps_of: (jax.lax.div(b_of[n], 16), 0),
                ),
            ],
            out_specs=pl.BlockSpec(
                (128, 512), lambda n, offsets, b_of, tm_of, steps_of: (tm_of[n], 0)
            ),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, b_of, tm_of, steps_of, x, w, bias)
    return y
