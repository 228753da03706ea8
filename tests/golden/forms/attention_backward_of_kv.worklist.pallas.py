"""backward_kv for tpu:v6e, blocks tk=256, tq=512."""

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


def backward_kv_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tk, tq), and how many there are."""
    b = jnp.arange(32, dtype=jnp.int32)
    steps = jnp.int32(32)
    # every range of tk, and the rows that its tiles are
    tk_begin = jnp.maximum(offsets[b], 0)
    tk_end = jnp.minimum(offsets[b + 1], 16384)
    tk_first = jax.lax.div(tk_begin, 256)
    tk_live = tk_end > tk_begin
    tk_stop = jnp.where(tk_live, jax.lax.div(tk_end + 255, 256), 0)
    # tiles below tk_seen have a row already; only the last one may be shared
    tk_seen = jnp.maximum(jax.lax.cummax(tk_stop), 0)
    tk_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tk_seen[:-1]])
    tk_start = jnp.where(tk_live & (tk_first < tk_seen), tk_seen - 1, tk_seen)
    tk_count = jnp.clip(jnp.where(tk_live, tk_stop, tk_seen) - tk_start, 0, 64)
    # one more entry: the tk behind the last range
    tk_rest = jnp.max(tk_stop)
    b = jnp.append(b, b[-1])
    tk_entry, tk, steps = expand(
        jnp.append(tk_start, tk_rest), jnp.append(tk_count, 64 - tk_rest), 2112
    )
    b = b[tk_entry]
    # every range of tq, and the rows that its tiles are
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 512)
    tq_live = (
        (tq_end > tq_begin)
        & (jnp.maximum(offsets[b], tk * 256) < jnp.minimum(offsets[b + 1], tk * 256 + 256))
        & (jnp.arange(len(b)) < steps)
    )
    tq_first = jnp.minimum(tq_first, 31)
    tq_entry, tq, steps = expand(
        tq_first,
        jnp.where(
            jnp.arange(len(b)) < steps,
            jnp.maximum(
                jnp.where(tq_live, jnp.clip(jax.lax.div(tq_end + 511, 512) - tq_first, 0, 32), 0),
                1,
            ),
            0,
        ),
        3040,
    )
    b, tk = b[tq_entry], tk[tq_entry]
    return b, tk, tq, steps.reshape((1,))


def backward_kv_kernel(
    offsets, b_of, tk_of, tq_of, steps_of, grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dk_ref,
    dv_ref, sum_v_ref, sum_k_ref,
):
    # h: grid dimension; parallel: each h writes its own rows of dk and dv
    # b: column of the step table; parallel: dk and dv slices of different b are disjoint because
    #     offsets is sorted
    # tk: column of the step table, blocks of 256; parallel: each tk writes its own slices of dk
    #     and dv
    # tq: column of the step table, blocks of 512; ordered: carries sum_v, sum_k, sums
    h = pl.program_id(0)
    n = pl.program_id(1)
    steps = steps_of[0]
    b, tk, tq = b_of[n], tk_of[n], tq_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (tk_of[before] != tk))
    def _():
        # first step at this block of dk: rows of no range keep 0.0
        dk_ref[...] = jnp.zeros((256, 128), jnp.bfloat16)

    @pl.when((n == 0) | (tk_of[before] != tk))
    def _():
        # first step at this block of dv: rows of no range keep 0.0
        dv_ref[...] = jnp.zeros((256, 128), jnp.bfloat16)

    @pl.when((n == 0) | (b_of[before] != b) | (tk_of[before] != tk))
    def _():
        # jagged_attention_backward.py:87: sum_k = hl.zeros([tk, D], dtype=hl.float32)
        sum_k_ref[...] = jnp.zeros((256, 128), jnp.float32)
        # jagged_attention_backward.py:88: sum_v = hl.zeros([tk, D], dtype=hl.float32)
        sum_v_ref[...] = jnp.zeros((256, 128), jnp.float32)

    # jagged_attention_backward.py:90: g = grad[h, tq, :]
    tq_index = tq * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
    tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
    g = jnp.where(tq_mask, grad_ref[...], 0.0)
    # jagged_attention_backward.py:91: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.float32))....
    delta = jnp.sum(g.astype(jnp.float32) * out_ref[...].astype(jnp.float32), axis=1, keepdims=True)
    # jagged_attention_backward.py:92: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
    scores = (
        jax.lax.dot_general(
            q_ref[...],
            k_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        * 0.08838834764831845
    )
    # jagged_attention_backward.py:93: p = hl.exp(scores - lse[h, tq][:, None])
    h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
    lse_h = jnp.sum(jnp.where(h_row, lse_ref[...], 0.0), axis=0, keepdims=True)
    p = jnp.where(tq_mask, jnp.exp(scores - lse_h.T), 0.0)
    # jagged_attention_backward.py:94: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
    sum_v_ref[...] += jax.lax.dot_general(
        p.astype(jnp.bfloat16),
        g,
        (((0,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    # jagged_attention_backward.py:95: dp = hl.dot(g, v[h, tk, :].T)
    dp = jax.lax.dot_general(
        g,
        v_ref[...],
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    # jagged_attention_backward.py:96: ds = p * (dp - delta[:, None]) * D**-0.5
    ds = jnp.where(tq_mask, p * (dp - delta) * 0.08838834764831845, 0.0)
    # jagged_attention_backward.py:97: sum_k = hl.dot(ds.to(q.dtype).T, q[h, tq, :], acc=sum_k)
    sum_k_ref[...] += jax.lax.dot_general(
        ds.astype(jnp.bfloat16),
        jnp.where(tq_mask, q_ref[...], 0.0),
        (((0,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )

    @pl.when((n == steps - 1) | (b_of[after] != b) | (tk_of[after] != tk))
    def _():
        # jagged_attention_backward.py:98: dk[h, tk, :] = sum_k.to(dk.dtype)
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
        dk_ref[...] = jnp.where(tk_mask, sum_k_ref[...].astype(jnp.bfloat16), dk_ref[...])
        # jagged_attention_backward.py:99: dv[h, tk, :] = sum_v.to(dv.dtype)
        dv_ref[...] = jnp.where(tk_mask, sum_v_ref[...].astype(jnp.bfloat16), dv_ref[...])


def backward_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    grad: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """dk and dv [H, T, D] in the dtypes of k and v; rows in no sequence are zero."""
    b_of, tk_of, tq_of, steps_of = backward_kv_steps(offsets)
    dk, dv = pl.pallas_call(
        backward_kv_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        ],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(16, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 256, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tk_of[n], 0),
                ),
                pl.BlockSpec(
                    (8, 512),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (
                        jax.lax.div(h, 8), tq_of[n]
                    ),
                ),
                pl.BlockSpec(
                    (None, 256, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tk_of[n], 0),
                ),
            ],
            out_specs=[
                pl.BlockSpec(
                    (None, 256, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tk_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 256, 128),
                    lambda h, n, offsets, b_of, tk_of, tq_of, steps_of: (h, tk_of[n], 0),
                ),
            ],
            scratch_shapes=[
                pltpu.VMEM((256, 128), jnp.float32), pltpu.VMEM((256, 128), jnp.float32)
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(offsets, b_of, tk_of, tq_of, steps_of, grad, out, q, k, lse, v)
    return dk, dv
