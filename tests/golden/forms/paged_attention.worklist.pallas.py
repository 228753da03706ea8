"""paged_attention for tpu:v6e, blocks tq=128."""

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


def paged_attention_steps(
    table: jax.Array,
    lengths: jax.Array,
    offsets: jax.Array,
) -> tuple[jax.Array, ...]:
    """The work list: rows (b, tq, p), and how many there are."""
    b = jnp.arange(64, dtype=jnp.int32)
    steps = jnp.int32(64)
    # every range of tq, and the rows that its tiles are
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 4096)
    tq_first = jax.lax.div(tq_begin, 128)
    tq_live = tq_end > tq_begin
    tq_stop = jnp.where(tq_live, jax.lax.div(tq_end + 127, 128), 0)
    # tiles below tq_seen have a row already; only the last one may be shared
    tq_seen = jnp.maximum(jax.lax.cummax(tq_stop), 0)
    tq_seen = jnp.concatenate([jnp.zeros(1, jnp.int32), tq_seen[:-1]])
    tq_start = jnp.where(tq_live & (tq_first < tq_seen), tq_seen - 1, tq_seen)
    tq_count = jnp.clip(jnp.where(tq_live, tq_stop, tq_seen) - tq_start, 0, 32)
    # one more entry: the tq behind the last range
    tq_rest = jnp.max(tq_stop)
    b = jnp.append(b, b[-1])
    tq_entry, tq, steps = expand(
        jnp.append(tq_start, tq_rest), jnp.append(tq_count, 32 - tq_rest), 2080
    )
    b = b[tq_entry]
    # every range of p, and the rows that its tiles are
    p_live = (
        ((lengths[b] + 128 - 1) // 128 > 0)
        & (jnp.maximum(offsets[b], tq * 128) < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        & (jnp.arange(len(b)) < steps)
    )
    p_entry, p, steps = expand(
        0,
        jnp.where(
            jnp.arange(len(b)) < steps,
            jnp.maximum(
                jnp.where(
                    p_live, jnp.clip(jnp.minimum((lengths[b] + 128 - 1) // 128, 64), 0, 64), 0
                ),
                1,
            ),
            0,
        ),
        6080,
    )
    b, tq = b[p_entry], tq[p_entry]
    return b, tq, p, steps.reshape((1,))


def paged_attention_kernel(
    table, lengths, offsets, b_of, tq_of, p_of, steps_of, k_pages_ref, v_pages_ref, q_ref, out_ref,
    total_ref, acc_ref, m_ref,
):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own slices of out
    # p: column of the step table; ordered: carries total, acc, m
    n = pl.program_id(1)
    steps = steps_of[0]
    b, tq, p = b_of[n], tq_of[n], p_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((128, 128), jnp.bfloat16)

    @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
    def _():
        # paged_attention.py:57: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc_ref[...] = jnp.zeros((128, 128), jnp.float32)
        # paged_attention.py:55: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m_ref[...] = jnp.full((128, 128), -jnp.inf, jnp.float32)
        # paged_attention.py:56: total = hl.zeros([tq], dtype=hl.float32)
        total_ref[...] = jnp.zeros((128, 128), jnp.float32)

    @pl.when(p < (lengths[b] + 128 - 1) // 128)
    def _():
        # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
        k = k_pages_ref[...]
        # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
        v = v_pages_ref[...]
        # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
        scores = (
            jax.lax.dot_general(
                q_ref[...],
                k,
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            * 0.12751743082459868
        )
        # paged_attention.py:53: begin, end, length = offsets[b], offsets[b + 1], lengths[b]
        length = lengths[b]
        end = offsets[b + 1]
        # paged_attention.py:65: scores = hl.where(holds[None, :] <= asks[:, None], scores, -math...
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        scores = jnp.where(
            p * 128 + jax.lax.broadcasted_iota(jnp.int32, (1, 128), 1) <= tq_index - end + length,
            scores,
            -jnp.inf,
        )
        m = m_ref[...]
        # paged_attention.py:66: m_new = hl.maximum(m, scores.amax(-1))
        m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
        # paged_attention.py:67: alpha = hl.exp(m - m_new)
        alpha = jnp.exp2(m - m_new)
        # paged_attention.py:68: weights = hl.exp(scores - m_new[:, None])
        weights = jnp.exp2(scores - m_new)
        # paged_attention.py:69: total = total * alpha + weights.sum(-1)
        total_ref[...] = total_ref[...] * alpha + jnp.sum(weights, axis=1, keepdims=True)
        # paged_attention.py:70: used = hl.where(holds[:, None] < length, v, 0)
        used = jnp.where(
            p * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) < length, v, 0.0
        )
        # paged_attention.py:71: acc = hl.dot(weights.to(v.dtype), used, acc=acc * alpha[:, None])
        acc_ref[...] = (
            acc_ref[...] * alpha
            + jnp.dot(weights.astype(jnp.bfloat16), used, preferred_element_type=jnp.float32)
        )
        # paged_attention.py:72: m = m_new
        m_ref[...] = m_new

    @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
    def _():
        # paged_attention.py:73: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[...] = jnp.where(
            tq_mask, (acc_ref[...] / total_ref[...]).astype(jnp.bfloat16), out_ref[...]
        )


def paged_attention(
    q: jax.Array,
    k_pages: jax.Array,
    v_pages: jax.Array,
    table: jax.Array,
    lengths: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Causal attention of the last positions of each sequence to all of its pages."""
    b_of, tq_of, p_of, steps_of = paged_attention_steps(table, lengths, offsets)
    out = pl.pallas_call(
        paged_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((32, 4096, 128), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=7,
            grid=(32, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (None, None, 128, 128),
                    lambda h, n, table, lengths, offsets, b_of, tq_of, p_of, steps_of: (
                        h // 4, jnp.clip(table[b_of[n], p_of[n]], 0, 4095), 0, 0
                    ),
                ),
                pl.BlockSpec(
                    (None, None, 128, 128),
                    lambda h, n, table, lengths, offsets, b_of, tq_of, p_of, steps_of: (
                        h // 4, jnp.clip(table[b_of[n], p_of[n]], 0, 4095), 0, 0
                    ),
                ),
                pl.BlockSpec(
                    (None, 128, 128),
                    lambda h, n, table, lengths, offsets, b_of, tq_of, p_of, steps_of: (
                        h, tq_of[n], 0
                    ),
                ),
            ],
            out_specs=pl.BlockSpec(
                (None, 128, 128),
                lambda h, n, table, lengths, offsets, b_of, tq_of, p_of, steps_of: (h, tq_of[n], 0),
            ),
            scratch_shapes=[
                pltpu.VMEM((128, 128), jnp.float32),
                pltpu.VMEM((128, 128), jnp.float32),
                pltpu.VMEM((128, 128), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(table, lengths, offsets, b_of, tq_of, p_of, steps_of, k_pages, v_pages, q)
    return out
