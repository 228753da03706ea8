"""backward_q for tpu:v6e, blocks tk=512, tq=512."""

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


def backward_q_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tq, tk), and how many there are."""
    b = jnp.arange(32, dtype=jnp.int32)
    steps = jnp.int32(32)
    # every range of tq, and the rows that its tiles are
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 512)
    tq_live = tq_end > tq_begin
    tq_stop = jnp.where(tq_live, jax.lax.div(tq_end + 511, 512), 0)
    # tiles below tq_seen have a row already; only the last one may be shared
    tq_seen = jnp.maximum(jax.lax.cummax(tq_stop), 0)
    tq_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tq_seen[:-1]])
    tq_start = jnp.where(tq_live & (tq_first < tq_seen), tq_seen - 1, tq_seen)
    tq_count = jnp.clip(jnp.where(tq_live, tq_stop, tq_seen) - tq_start, 0, 32)
    # one more entry: the tq behind the last range
    tq_rest = jnp.max(tq_stop)
    b = jnp.append(b, b[-1])
    tq_entry, tq, steps = expand(
        jnp.append(tq_start, tq_rest), jnp.append(tq_count, 32 - tq_rest), 1056
    )
    b = b[tq_entry]
    # every range of tk, and the rows that its tiles are
    tk_begin = jnp.maximum(offsets[b], 0)
    tk_end = jnp.minimum(offsets[b + 1], 16384)
    tk_first = jax.lax.div(tk_begin, 512)
    tk_live = (
        (tk_end > tk_begin)
        & (jnp.maximum(offsets[b], tq * 512) < jnp.minimum(offsets[b + 1], tq * 512 + 512))
        & (jnp.arange(len(b)) < steps)
    )
    tk_first = jnp.minimum(tk_first, 31)
    tk_entry, tk, steps = expand(
        tk_first,
        jnp.where(
            jnp.arange(len(b)) < steps,
            jnp.maximum(
                jnp.where(tk_live, jnp.clip(jax.lax.div(tk_end + 511, 512) - tk_first, 0, 32), 0),
                1,
            ),
            0,
        ),
        2016,
    )
    b, tq = b[tk_entry], tq[tk_entry]
    return b, tq, tk, steps.reshape((1,))


def backward_q_kernel(
    offsets, b_of, tq_of, tk_of, steps_of, grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dq_ref,
    acc_ref, delta_ref,
):
    # h: grid dimension; parallel: each h writes its own rows of dq
    # b: column of the step table; parallel: dq slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 512; parallel: each tq writes its own slices of dq
    # tk: column of the step table, blocks of 512; ordered: carries acc, a sum
    h = pl.program_id(0)
    n = pl.program_id(1)
    steps = steps_of[0]
    b, tq, tk = b_of[n], tq_of[n], tk_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # first step at this block of dq: rows of no range keep 0.0
        dq_ref[...] = jnp.zeros((512, 128), jnp.bfloat16)

    @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
    def _():
        # jagged_attention_backward.py:66: g = grad[h, tq, :]
        g = grad_ref[...]
        # jagged_attention_backward.py:67: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.float3...
        delta_ref[...] = jnp.broadcast_to(
            jnp.sum(
                g.astype(jnp.float32) * out_ref[...].astype(jnp.float32),
                axis=1,
                keepdims=True,
            ),
            (512, 128),
        )
        # jagged_attention_backward.py:68: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc_ref[...] = jnp.zeros((512, 128), jnp.float32)

    # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
    scores = (
        jax.lax.dot_general(
            q_ref[...],
            k_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        * 0.08838834764831845
    )
    # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
    h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
    lse_h = jnp.sum(jnp.where(h_row, lse_ref[...], 0.0), axis=0, keepdims=True)
    p = jnp.exp(scores - lse_h.T)
    # jagged_attention_backward.py:66: g = grad[h, tq, :]
    g = grad_ref[...]
    # jagged_attention_backward.py:72: dp = hl.dot(g, v[h, tk, :].T)
    dp = jax.lax.dot_general(
        g,
        v_ref[...],
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    # jagged_attention_backward.py:73: ds = p * (dp - delta[:, None]) * D**-0.5
    tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
    tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
    ds = jnp.where(tk_mask, p * (dp - jnp.tile(delta_ref[...], (1, 4))) * 0.08838834764831845, 0.0)
    # jagged_attention_backward.py:74: acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=acc)
    tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
    tk_mask_1 = (tk_index_1 >= offsets[b]) & (tk_index_1 < offsets[b + 1])
    acc_ref[...] += jnp.dot(
        ds.astype(jnp.bfloat16),
        jnp.where(tk_mask_1, k_ref[...], 0.0),
        preferred_element_type=jnp.float32,
    )

    @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
    def _():
        # jagged_attention_backward.py:75: dq[h, tq, :] = acc.to(dq.dtype)
        tq_index = tq * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        dq_ref[...] = jnp.where(tq_mask, acc_ref[...].astype(jnp.bfloat16), dq_ref[...])


def backward_q(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    grad: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """dq [H, T, D] in q's dtype; rows in no sequence are zero."""
    b_of, tq_of, tk_of, steps_of = backward_q_steps(offsets)
    dq = pl.pallas_call(
        backward_q_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(16, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tk_of[n], 0),
                ),
                pl.BlockSpec(
                    (8, 512),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (
                        jax.lax.div(h, 8), tq_of[n]
                    ),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tk_of[n], 0),
                ),
            ],
            out_specs=pl.BlockSpec(
                (None, 512, 128),
                lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tq_of[n], 0),
            ),
            scratch_shapes=[
                pltpu.VMEM((512, 128), jnp.float32), pltpu.VMEM((512, 128), jnp.float32)
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(offsets, b_of, tq_of, tk_of, steps_of, grad, out, q, k, lse, v)
    return dq
