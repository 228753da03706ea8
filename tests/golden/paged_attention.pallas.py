"""paged_attention for tpu:v6e, blocks tq=64."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def paged_attention_kernel(
    table, lengths, offsets, k_pages, q, v_pages, out, total_ref, acc_ref, m_ref, scores_ref,
    scores_ref_1, scores_ref_2, scores_ref_3, b_of, tq_of, p_of,
):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 64; parallel: each tq writes its own slices of out
    # p: column of the step table; ordered: carries total, acc, m; a step runs 4 of its iterations
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # Step table: one row for every (b, tq, p), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_p(b, tq, p, n):
        b_of[n] = b
        tq_of[n] = tq
        p_of[n] = p
        return n + 1

    def add_tq(b, tq, n):
        tq_runs = jnp.maximum(offsets[b], tq * 64) < jnp.minimum(offsets[b + 1], tq * 64 + 64)
        p_stop = jnp.maximum(
            jnp.where(
                (((lengths[b] + 128 - 1) // 128 + 3) // 4 > 0) & tq_runs,
                jnp.minimum(((lengths[b] + 128 - 1) // 128 + 3) // 4, 16),
                0,
            ),
            1,
        )
        return jax.lax.fori_loop(0, p_stop, lambda p, n: add_p(b, tq, p, n), n)

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 4096)
        tq_first = jax.lax.div(tq_begin, 64)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 63, 64), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 64, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 64, lambda tq, n: add_tq(63, tq, n), steps)

    def step(
        k_pages_ref, q_ref, k_pages_1_ref, k_pages_2_ref, k_pages_3_ref, v_pages_ref, v_pages_1_ref,
        v_pages_2_ref, v_pages_3_ref, out_ref,
    ):
        n = pl.program_id(0)
        b, tq, p = b_of[n], tq_of[n], p_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((32, 64, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
        def _():
            # paged_attention.py:57: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((32, 64, 128), jnp.float32)
            # paged_attention.py:55: m = hl.full([tq], -math.inf, dtype=hl.float32)
            m_ref[...] = jnp.full((32, 64, 128), -jnp.inf, jnp.float32)
            # paged_attention.py:56: total = hl.zeros([tq], dtype=hl.float32)
            total_ref[...] = jnp.zeros((32, 64, 128), jnp.float32)

        @pl.when(p < ((lengths[b] + 128 - 1) // 128 + 3) // 4)
        def _():
            # paged_attention.py:53: begin, end, length = offsets[b], offsets[b + 1], lengths[b]
            length = lengths[b]
            # paged_attention.py:59: for p in hl.grid(0, (length + P - 1) // P, max_extent=most):
            live_1 = p * 4 + 1 < (length + 128 - 1) // 128
            live_2 = p * 4 + 2 < (length + 128 - 1) // 128
            live_3 = p * 4 + 3 < (length + 128 - 1) // 128
            # paged_attention.py:53: begin, end, length = offsets[b], offsets[b + 1], lengths[b]
            end = offsets[b + 1]
            # paged_attention.py:52: for h, b in hl.grid([H, B]):
            for h in range(0, 32, 4):
                # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
                k = k_pages_ref[h // 4]
                # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
                scores_ref[h : h + 4] = (
                    (
                        jax.lax.dot_general(
                            q_ref[h : h + 4].reshape((256, 128)),
                            k,
                            (((1,), (1,)), ((), ())),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    * 0.12751743082459868
                )
                # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
                k = k_pages_1_ref[h // 4]
                # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
                scores_ref_1[h : h + 4] = (
                    (
                        jax.lax.dot_general(
                            q_ref[h : h + 4].reshape((256, 128)),
                            k,
                            (((1,), (1,)), ((), ())),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    * 0.12751743082459868
                )
                # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
                k = k_pages_2_ref[h // 4]
                # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
                scores_ref_2[h : h + 4] = (
                    (
                        jax.lax.dot_general(
                            q_ref[h : h + 4].reshape((256, 128)),
                            k,
                            (((1,), (1,)), ((), ())),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    * 0.12751743082459868
                )
                # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
                k = k_pages_3_ref[h // 4]
                # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
                scores_ref_3[h : h + 4] = (
                    (
                        jax.lax.dot_general(
                            q_ref[h : h + 4].reshape((256, 128)),
                            k,
                            (((1,), (1,)), ((), ())),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    * 0.12751743082459868
                )
            tq_index = tq * 64 + jax.lax.broadcasted_iota(jnp.int32, (64, 1), 0)
            for h in range(0, 32, 4):
                # paged_attention.py:65: scores = hl.where(holds[None, :] <= asks[:, None], score...
                scores = jnp.where(
                    p * 4 * 128 + jax.lax.broadcasted_iota(jnp.int32, (1, 128), 1)
                    <= tq_index - end + length,
                    scores_ref[h : h + 4],
                    -jnp.inf,
                )
                scores_1 = jnp.where(
                    (
                        (p * 4 + 1) * 128 + jax.lax.broadcasted_iota(jnp.int32, (1, 128), 1)
                        <= tq_index - end + length
                    )
                    & live_1,
                    scores_ref_1[h : h + 4],
                    -jnp.inf,
                )
                scores_2 = jnp.where(
                    (
                        (p * 4 + 2) * 128 + jax.lax.broadcasted_iota(jnp.int32, (1, 128), 1)
                        <= tq_index - end + length
                    )
                    & live_2,
                    scores_ref_2[h : h + 4],
                    -jnp.inf,
                )
                scores_3 = jnp.where(
                    (
                        (p * 4 + 3) * 128 + jax.lax.broadcasted_iota(jnp.int32, (1, 128), 1)
                        <= tq_index - end + length
                    )
                    & live_3,
                    scores_ref_3[h : h + 4],
                    -jnp.inf,
                )
                # paged_attention.py:59: for p in hl.grid(0, (length + P - 1) // P, max_extent=mo...
                scores_1_1 = jnp.maximum(
                    jnp.maximum(jnp.maximum(scores, scores_1), scores_2), scores_3
                )
                m = m_ref[h : h + 4]
                # paged_attention.py:72: m = m_new
                m_new = jnp.maximum(m, jnp.max(scores_1_1, axis=2, keepdims=True))
                # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
                v = v_pages_ref[h // 4]
                # paged_attention.py:67: alpha = hl.exp(m - m_new)
                alpha = jnp.exp2(m - m_new)
                # paged_attention.py:68: weights = hl.exp(scores - m_new[:, None])
                weights = jnp.exp2(scores - m_new)
                # paged_attention.py:70: used = hl.where(holds[:, None] < length, v, 0)
                used = jnp.where(
                    p * 4 * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) < length, v, 0.0
                )
                # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
                v = v_pages_1_ref[h // 4]
                # paged_attention.py:68: weights = hl.exp(scores - m_new[:, None])
                weights_1 = jnp.exp2(scores_1 - m_new)
                # paged_attention.py:70: used = hl.where(holds[:, None] < length, v, 0)
                used_1 = jnp.where(
                    (p * 4 + 1) * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) < length,
                    v,
                    0.0,
                )
                # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
                v = v_pages_2_ref[h // 4]
                # paged_attention.py:68: weights = hl.exp(scores - m_new[:, None])
                weights_2 = jnp.exp2(scores_2 - m_new)
                # paged_attention.py:70: used = hl.where(holds[:, None] < length, v, 0)
                used_2 = jnp.where(
                    (p * 4 + 2) * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) < length,
                    v,
                    0.0,
                )
                # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
                v = v_pages_3_ref[h // 4]
                # paged_attention.py:68: weights = hl.exp(scores - m_new[:, None])
                weights_3 = jnp.exp2(scores_3 - m_new)
                # paged_attention.py:70: used = hl.where(holds[:, None] < length, v, 0)
                used_3 = jnp.where(
                    (p * 4 + 3) * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0) < length,
                    v,
                    0.0,
                )
                # paged_attention.py:59: for p in hl.grid(0, (length + P - 1) // P, max_extent=mo...
                terms = weights + weights_1 + weights_2 + weights_3
                # paged_attention.py:69: total = total * alpha + weights.sum(-1)
                total_ref[h : h + 4] = (
                    total_ref[h : h + 4] * alpha + jnp.sum(terms, axis=2, keepdims=True)
                )
                # paged_attention.py:71: acc = hl.dot(weights.to(v.dtype), used, acc=acc * alpha[...
                acc_ref[h : h + 4] = (
                    acc_ref[h : h + 4] * alpha
                    + (
                        jnp.dot(
                            weights.astype(jnp.bfloat16).reshape((256, 128)),
                            used,
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    + (
                        jnp.dot(
                            weights_1.astype(jnp.bfloat16).reshape((256, 128)),
                            jnp.where(live_1, used_1, 0.0),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    + (
                        jnp.dot(
                            weights_2.astype(jnp.bfloat16).reshape((256, 128)),
                            jnp.where(live_2, used_2, 0.0),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                    + (
                        jnp.dot(
                            weights_3.astype(jnp.bfloat16).reshape((256, 128)),
                            jnp.where(live_3, used_3, 0.0),
                            preferred_element_type=jnp.float32,
                        )
                    ).reshape((4, 64, 128))
                )
                # paged_attention.py:72: m = m_new
                m_ref[h : h + 4] = m_new

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
        def _():
            # paged_attention.py:52: for h, b in hl.grid([H, B]):
            tq_index = tq * 64 + jax.lax.broadcasted_iota(jnp.int32, (64, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(32):
                # paged_attention.py:73: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
                out_ref[h] = jnp.where(
                    tq_mask, (acc_ref[h] / total_ref[h]).astype(jnp.bfloat16), out_ref[h]
                )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec((32, 64, 128), lambda n: (0, tq_of[n], 0)),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4 + 1, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4 + 2, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4 + 3, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4 + 1, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4 + 2, 0, 63)], 0, 4095), 0, 0
                ),
            ),
            pl.BlockSpec(
                (8, None, 128, 128),
                lambda n: (
                    0, jnp.clip(table[b_of[n], jnp.clip(p_of[n] * 4 + 3, 0, 63)], 0, 4095), 0, 0
                ),
            ),
        ],
        out_specs=[pl.BlockSpec((32, 64, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(k_pages, q, k_pages, k_pages, k_pages, v_pages, v_pages, v_pages, v_pages, out)


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
    out = pl.pallas_call(
        paged_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((32, 4096, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.VMEM((32, 64, 128), jnp.float32),
            pltpu.SMEM((2032,), jnp.int32),
            pltpu.SMEM((2032,), jnp.int32),
            pltpu.SMEM((2032,), jnp.int32),
        ],
        interpret=interpret,
    )(table, lengths, offsets, k_pages, q, v_pages)
    return out
