"""grouped_query_attention for tpu:v6e, blocks tk=512, tq=256."""

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


def grouped_query_attention_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tq, tk), and how many there are."""
    b = jnp.arange(32, dtype=jnp.int32)
    steps = jnp.int32(32)
    # every range of tq, and the rows that its tiles are
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 256)
    tq_live = tq_end > tq_begin
    tq_stop = jnp.where(tq_live, jax.lax.div(tq_end + 255, 256), 0)
    # tiles below tq_seen have a row already; only the last one may be shared
    tq_seen = jnp.maximum(jax.lax.cummax(tq_stop), 0)
    tq_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tq_seen[:-1]])
    tq_start = jnp.where(tq_live & (tq_first < tq_seen), tq_seen - 1, tq_seen)
    tq_count = jnp.clip(jnp.where(tq_live, tq_stop, tq_seen) - tq_start, 0, 64)
    # one more entry: the tq behind the last range
    tq_rest = jnp.max(tq_stop)
    b = jnp.append(b, b[-1])
    tq_entry, tq, steps = expand(
        jnp.append(tq_start, tq_rest), jnp.append(tq_count, 64 - tq_rest), 2112
    )
    b = b[tq_entry]
    # every range of tk, and the rows that its tiles are
    tk_begin = jnp.maximum(offsets[b], 0)
    tk_end = jnp.minimum(offsets[b + 1], tq * 256 + 256)
    tk_first = jax.lax.div(tk_begin, 512)
    tk_live = (
        (tk_end > tk_begin)
        & (jnp.maximum(offsets[b], tq * 256) < jnp.minimum(offsets[b + 1], tq * 256 + 256))
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
        3040,
    )
    b, tq = b[tk_entry], tq[tk_entry]
    return b, tq, tk, steps.reshape((1,))


def grouped_query_attention_kernel(
    offsets, b_of, tq_of, tk_of, steps_of, q_ref, k_ref, v_ref, out_ref, total_ref, acc_ref, m_ref,
):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 512; ordered: carries total, acc, m
    n = pl.program_id(1)
    steps = steps_of[0]
    b, tq, tk = b_of[n], tq_of[n], tk_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((256, 128), jnp.bfloat16)

    @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
    def _():
        # grouped_query_attention.py:45: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc_ref[...] = jnp.zeros((256, 128), jnp.float32)
        # grouped_query_attention.py:43: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m_ref[...] = jnp.full((256, 128), -jnp.inf, jnp.float32)
        # grouped_query_attention.py:44: total = hl.zeros([tq], dtype=hl.float32)
        total_ref[...] = jnp.zeros((256, 128), jnp.float32)

    # grouped_query_attention.py:48: scores = hl.dot(q[h, tq, :], k[h // share, tk, :].T) * D**-0.5
    scores = (
        jax.lax.dot_general(
            q_ref[...],
            k_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        * 0.12751743082459868
    )
    # grouped_query_attention.py:50: scores = hl.where(tk.index[None, :] <= tq.index[:, None], sc...
    tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
    tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
    tk_mask = (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 256 + 256))
    scores = jnp.where((tk_index <= tq_index) & tk_mask, scores, -jnp.inf)
    m = m_ref[...]
    # grouped_query_attention.py:51: m_new = hl.maximum(m, scores.amax(-1))
    m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
    # grouped_query_attention.py:52: alpha = hl.exp(m - m_new)
    alpha = jnp.exp2(m - m_new)
    # grouped_query_attention.py:53: p = hl.exp(scores - m_new[:, None])
    p = jnp.exp2(scores - jnp.tile(m_new, (1, 4)))
    # grouped_query_attention.py:54: total = total * alpha + p.sum(-1)
    total_ref[...] = total_ref[...] * alpha + jnp.sum(p, axis=1, keepdims=True)
    # grouped_query_attention.py:55: acc = hl.dot(p.to(v.dtype), v[h // share, tk, :], acc=acc * ...
    tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
    tk_mask_1 = (
        (tk_index_1 >= offsets[b]) & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 256 + 256))
    )
    acc_ref[...] = (
        acc_ref[...] * alpha
        + jnp.dot(
            p.astype(jnp.bfloat16),
            jnp.where(tk_mask_1, v_ref[...], 0.0),
            preferred_element_type=jnp.float32,
        )
    )
    # grouped_query_attention.py:56: m = m_new
    m_ref[...] = m_new

    @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
    def _():
        # grouped_query_attention.py:57: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[...] = jnp.where(
            tq_mask, (acc_ref[...] / total_ref[...]).astype(jnp.bfloat16), out_ref[...]
        )


def grouped_query_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[h, r] = softmax(q[h, r] k[h // share]^T / sqrt(D)) v[h // share] within r's seque..."""
    b_of, tq_of, tk_of, steps_of = grouped_query_attention_steps(offsets)
    out = pl.pallas_call(
        grouped_query_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((32, 16384, 128), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(32, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (None, 256, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h // 4, tk_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, 512, 128),
                    lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h // 4, tk_of[n], 0),
                ),
            ],
            out_specs=pl.BlockSpec(
                (None, 256, 128),
                lambda h, n, offsets, b_of, tq_of, tk_of, steps_of: (h, tq_of[n], 0),
            ),
            scratch_shapes=[
                pltpu.VMEM((256, 128), jnp.float32),
                pltpu.VMEM((256, 128), jnp.float32),
                pltpu.VMEM((256, 128), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(offsets, b_of, tq_of, tk_of, steps_of, q, k, v)
    return out
