"""gdpa_dense_kv for tpu:v6e, blocks tq=128, ts=512."""

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


def gdpa_dense_kv_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tq), and how many there are."""
    b = jnp.arange(64, dtype=jnp.int32)
    steps = jnp.int32(64)
    # every range of tq, and the rows that its tiles are
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 128)
    tq_live = tq_end > tq_begin
    tq_stop = jnp.where(tq_live, jax.lax.div(tq_end + 127, 128), 0)
    # tiles below tq_seen have a row already; only the last one may be shared
    tq_seen = jnp.maximum(jax.lax.cummax(tq_stop), 0)
    tq_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tq_seen[:-1]])
    tq_start = jnp.where(tq_live & (tq_first < tq_seen), tq_seen - 1, tq_seen)
    tq_count = jnp.clip(jnp.where(tq_live, tq_stop, tq_seen) - tq_start, 0, 128)
    # one more entry: the tq behind the last range
    tq_rest = jnp.max(tq_stop)
    b = jnp.append(b, b[-1])
    tq_entry, tq, steps = expand(
        jnp.append(tq_start, tq_rest), jnp.append(tq_count, 128 - tq_rest), 191
    )
    b = b[tq_entry]
    return b, tq, steps.reshape((1,))


def gdpa_dense_kv_kernel(offsets, b_of, tq_of, steps_of, k_ref, q_ref, v_ref, out_ref):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own slices of out
    # ts: one tile, blocks of 512; ordered: carries acc, a sum
    n = pl.program_id(1)
    b, tq = b_of[n], tq_of[n]
    before = jnp.maximum(n - 1, 0)

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((128, 128), jnp.bfloat16)

    # gdpa_dense_kv.py:47: acc = jnp.zeros([tq, D], dtype=jnp.float32)
    acc = jnp.zeros((128, 128), jnp.float32)
    # gdpa_dense_kv.py:49: keys = k[b, h, ts, :]
    keys = k_ref[...]
    # gdpa_dense_kv.py:50: scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=jnp.float32)
    scores = jax.lax.dot_general(
        q_ref[...],
        keys,
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    # gdpa_dense_kv.py:51: weights = activation(scores * D**-0.5).astype(v.dtype)
    weights = jax.nn.gelu(scores * 0.08838834764831845).astype(jnp.bfloat16)
    # gdpa_dense_kv.py:52: acc += jnp.dot(weights, v[b, h, ts, :], preferred_element_type=jnp.flo...
    acc = acc + jnp.dot(weights, v_ref[...], preferred_element_type=jnp.float32)
    # gdpa_dense_kv.py:53: out[h, tq, :] = acc.astype(out.dtype)
    tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
    tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
    out_ref[...] = jnp.where(tq_mask, acc.astype(jnp.bfloat16), out_ref[...])


def gdpa_dense_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = activation(q[:, r] k[b]^T / sqrt(D)) v[b] for r in group b, else zero."""
    b_of, tq_of, steps_of = gdpa_dense_kv_steps(offsets)
    out = pl.pallas_call(
        gdpa_dense_kv_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16384, 128), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(8, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (None, None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, steps_of: (b_of[n], h, 0, 0),
                ),
                pl.BlockSpec(
                    (None, 128, 128), lambda h, n, offsets, b_of, tq_of, steps_of: (h, tq_of[n], 0)
                ),
                pl.BlockSpec(
                    (None, None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, steps_of: (b_of[n], h, 0, 0),
                ),
            ],
            out_specs=pl.BlockSpec(
                (None, 128, 128), lambda h, n, offsets, b_of, tq_of, steps_of: (h, tq_of[n], 0)
            ),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(offsets, b_of, tq_of, steps_of, k, q, v)
    return out
