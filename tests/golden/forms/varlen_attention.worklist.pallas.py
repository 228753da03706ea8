"""varlen_attention for tpu:v6e, blocks tk=256, tq=256."""

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


def varlen_attention_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tq, tk), and how many there are."""
    b = jnp.arange(256, dtype=jnp.int32)
    steps = jnp.int32(256)
    # every range of tq, and the rows that its tiles are
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 65536)
    tq_first = jax.lax.div(tq_begin, 256)
    tq_live = tq_end > tq_begin
    tq_stop = jnp.where(tq_live, jax.lax.div(tq_end + 255, 256), 0)
    # tiles below tq_seen have a row already; only the last one may be shared
    tq_seen = jnp.maximum(jax.lax.cummax(tq_stop), 0)
    tq_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tq_seen[:-1]])
    tq_start = jnp.where(tq_live & (tq_first < tq_seen), tq_seen - 1, tq_seen)
    tq_count = jnp.clip(jnp.where(tq_live, tq_stop, tq_seen) - tq_start, 0, 256)
    # one more entry: the tq behind the last range
    tq_rest = jnp.max(tq_stop)
    b = jnp.append(b, b[-1])
    tq_entry, tq, steps = expand(
        jnp.append(tq_start, tq_rest), jnp.append(tq_count, 256 - tq_rest), 2560
    )
    b = b[tq_entry]
    # every range of tk, and the rows that its tiles are
    tk_begin = jnp.maximum(offsets[b], 0)
    tk_end = jnp.minimum(offsets[b + 1], tq * 256 + 256)
    tk_first = jax.lax.div(tk_begin, 256)
    tk_live = (
        (tk_end > tk_begin)
        & (jnp.maximum(offsets[b], tq * 256) < jnp.minimum(offsets[b + 1], tq * 256 + 256))
        & (jnp.arange(len(b)) < steps)
    )
    tk_first = jnp.minimum(tk_first, 255)
    tk_entry, tk, steps = expand(
        tk_first,
        jnp.where(
            jnp.arange(len(b)) < steps,
            jnp.maximum(
                jnp.where(tk_live, jnp.clip(jax.lax.div(tk_end + 255, 256) - tk_first, 0, 256), 0),
                1,
            ),
            0,
        ),
        4599,
    )
    b, tq = b[tk_entry], tq[tk_entry]
    return b, tq, tk, steps.reshape((1,))


def varlen_attention_kernel(
    offsets, b_of, tq_of, tk_of, steps_of, k_ref, v_ref, q_ref, out_ref, total_ref, acc_ref, m_ref,
    scores_ref, k_by_h_ref, v_by_h_ref, q_by_h_ref, out_by_h_ref,
):
    # b: column of the step table; parallel: out rows of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own rows of out
    # tk: column of the step table, blocks of 256; ordered: carries total, acc, m
    # h: every step runs all of them; parallel: each h writes its own slices of out
    n = pl.program_id(0)
    steps = steps_of[0]
    b, tq, tk = b_of[n], tq_of[n], tk_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((256, 16, 64), jnp.bfloat16)

    # k_by_h_ref[i] is k_ref[:, i]: the block with h in front
    k_by_h_ref[...] = jnp.transpose(k_ref[...], (1, 0, 2))
    # v_by_h_ref[i] is v_ref[:, i]: the block with h in front
    v_by_h_ref[...] = jnp.transpose(v_ref[...], (1, 0, 2))

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # q_by_h_ref[i] is q_ref[:, i]: the block with h in front
        q_by_h_ref[...] = jnp.transpose(q_ref[...], (1, 0, 2))

    @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
    def _():
        # varlen_attention.py:55: acc = jnp.zeros([tq, D], dtype=jnp.float32)
        acc_ref[...] = jnp.zeros((16, 256, 64), jnp.float32)
        # varlen_attention.py:53: m = jnp.full([tq], -math.inf, dtype=jnp.float32)
        m_ref[...] = jnp.full((16, 256, 128), -jnp.inf, jnp.float32)
        # varlen_attention.py:54: total = jnp.zeros([tq], dtype=jnp.float32)
        total_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)

    # varlen_attention.py:50: for h, b in hl.grid([H, offsets.shape[0] - 1]):
    for h in range(0, 16, 2):
        # varlen_attention.py:58: keys, values = k[tk, h // share, :], v[tk, h // share, :]
        keys = k_by_h_ref[h // 2]
        # varlen_attention.py:59: scores = jnp.dot(q[tq, h, :], keys.T, preferred_element_type=jn...
        scores_ref[h : h + 2] = (
            (
                jax.lax.dot_general(
                    q_by_h_ref[h : h + 2].reshape((512, 64)),
                    keys,
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            ).reshape((2, 256, 256))
            * 0.18033688011112042
        )
    tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
    tk_mask = (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 256 + 256))
    tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
    tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
    tk_mask_1 = (
        (tk_index_1 >= offsets[b]) & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 256 + 256))
    )
    for h in range(0, 16, 2):
        # varlen_attention.py:58: keys, values = k[tk, h // share, :], v[tk, h // share, :]
        values = jnp.where(tk_mask, v_by_h_ref[h // 2], 0.0)
        # varlen_attention.py:61: scores = jnp.where(tk.index[None, :] <= tq.index[:, None], scor...
        scores = jnp.where((tk_index_1 <= tq_index) & tk_mask_1, scores_ref[h : h + 2], -jnp.inf)
        m = m_ref[h : h + 2]
        # varlen_attention.py:62: m_new = jnp.maximum(m, scores.max(axis=-1))
        m_new = jnp.maximum(m, jnp.max(scores, axis=2, keepdims=True))
        # varlen_attention.py:63: alpha = jnp.exp(m - m_new)
        alpha = jnp.exp2(m - m_new)
        # varlen_attention.py:64: p = jnp.exp(scores - m_new[:, None])
        p = jnp.exp2(scores - jnp.tile(m_new, (1, 1, 2)))
        # varlen_attention.py:65: total = total * alpha + p.sum(axis=-1)
        total_ref[h : h + 2] = total_ref[h : h + 2] * alpha + jnp.sum(p, axis=2, keepdims=True)
        # varlen_attention.py:66: new = jnp.dot(p.astype(v.dtype), values, preferred_element_type...
        new = (
            jnp.dot(
                p.astype(jnp.bfloat16).reshape((512, 256)),
                values,
                preferred_element_type=jnp.float32,
            )
        ).reshape((2, 256, 64))
        # varlen_attention.py:67: acc = acc * alpha[:, None] + new
        acc_ref[h : h + 2] = acc_ref[h : h + 2] * alpha[:, :, :64] + new
        # varlen_attention.py:68: m = m_new
        m_ref[h : h + 2] = m_new

    @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
    def _():
        # varlen_attention.py:50: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        for h in range(16):
            # varlen_attention.py:69: out[tq, h, :] = (acc / total[:, None]).astype(out.dtype)
            out_by_h_ref[h] = (acc_ref[h] / total_ref[h, :, :64]).astype(jnp.bfloat16)
        # varlen_attention.py:69: out[tq, h, :] = (acc / total[:, None]).astype(out.dtype)
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[...] = jnp.where(tq_mask, jnp.transpose(out_by_h_ref[...], (1, 0, 2)), out_ref[...])


def varlen_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[r, h] = the mean of v over r's sequence, weighted by softmax(q[r, h] k^T / sqrt(D))."""
    b_of, tq_of, tk_of, steps_of = varlen_attention_steps(offsets)
    out = pl.pallas_call(
        varlen_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((65536, 16, 64), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(steps_of[0],),
            in_specs=[
                pl.BlockSpec(
                    (256, 8, 64), lambda n, offsets, b_of, tq_of, tk_of, steps_of: (tk_of[n], 0, 0)
                ),
                pl.BlockSpec(
                    (256, 8, 64), lambda n, offsets, b_of, tq_of, tk_of, steps_of: (tk_of[n], 0, 0)
                ),
                pl.BlockSpec(
                    (256, 16, 64),
                    lambda n, offsets, b_of, tq_of, tk_of, steps_of: (tq_of[n], 0, 0),
                ),
            ],
            out_specs=pl.BlockSpec(
                (256, 16, 64), lambda n, offsets, b_of, tq_of, tk_of, steps_of: (tq_of[n], 0, 0)
            ),
            scratch_shapes=[
                pltpu.VMEM((16, 256, 128), jnp.float32),
                pltpu.VMEM((16, 256, 64), jnp.float32),
                pltpu.VMEM((16, 256, 128), jnp.float32),
                pltpu.VMEM((16, 256, 256), jnp.float32),
                pltpu.VMEM((8, 256, 64), jnp.bfloat16),
                pltpu.VMEM((8, 256, 64), jnp.bfloat16),
                pltpu.VMEM((16, 256, 64), jnp.bfloat16),
                pltpu.VMEM((16, 256, 64), jnp.bfloat16),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(offsets, b_of, tq_of, tk_of, steps_of, k, v, q)
    return out
