"""grouped_query_attention for tpu:v6e, blocks tk=256, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def grouped_query_attention_kernel(
    offsets, q, k, v, out, total_ref, acc_ref, m_ref, scores_ref, b_of, tq_of, tk_of,
):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 256; ordered: carries total, acc, m
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # Step table: one row for every (b, tq, tk), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_tk(b, tq, tk, n):
        b_of[n] = b
        tq_of[n] = tq
        tk_of[n] = tk
        return n + 1

    def add_tq(b, tq, n):
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], tq * 128 + 128)
        tk_first = jax.lax.div(tk_begin, 256)
        tq_runs = jnp.maximum(offsets[b], tq * 128) < jnp.minimum(offsets[b + 1], tq * 128 + 128)
        tk_first = jnp.where(
            (n == 0) | tq_runs, jnp.minimum(tk_first, 63), tk_of[jnp.maximum(n - 1, 0)]
        )
        tk_stop = jnp.maximum(
            jnp.where((tk_end > tk_begin) & tq_runs, jax.lax.div(tk_end + 255, 256), tk_first),
            tk_first + 1,
        )
        return jax.lax.fori_loop(tk_first, tk_stop, lambda tk, n: add_tk(b, tq, tk, n), n)

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 128)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 32, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 128, lambda tq, n: add_tq(31, tq, n), steps)

    def step(q_ref, k_ref, v_ref, out_ref):
        n = pl.program_id(0)
        b, tq, tk = b_of[n], tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((32, 128, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
        def _():
            # grouped_query_attention.py:45: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((32, 128, 128), jnp.float32)
            # grouped_query_attention.py:43: m = hl.full([tq], -math.inf, dtype=hl.float32)
            m_ref[...] = jnp.full((32, 128, 128), -jnp.inf, jnp.float32)
            # grouped_query_attention.py:44: total = hl.zeros([tq], dtype=hl.float32)
            total_ref[...] = jnp.zeros((32, 128, 128), jnp.float32)

        # grouped_query_attention.py:40: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        for h in range(0, 32, 4):
            # grouped_query_attention.py:48: scores = hl.dot(q[h, tq, :], k[h // share, tk, :].T)...
            scores_ref[h : h + 4] = (
                (
                    jax.lax.dot_general(
                        q_ref[h : h + 4].reshape((512, 128)),
                        k_ref[h // 4],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                ).reshape((4, 128, 256))
                * 0.12751743082459868
            )
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tk_mask = (
            (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        )
        tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask_1 = (
            (tk_index_1 >= offsets[b]) & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        )
        for h in range(0, 32, 4):
            # grouped_query_attention.py:50: scores = hl.where(tk.index[None, :] <= tq.index[:, N...
            scores = jnp.where((tk_index <= tq_index) & tk_mask, scores_ref[h : h + 4], -jnp.inf)
            m = m_ref[h : h + 4]
            # grouped_query_attention.py:51: m_new = hl.maximum(m, scores.amax(-1))
            m_new = jnp.maximum(m, jnp.max(scores, axis=2, keepdims=True))
            # grouped_query_attention.py:52: alpha = hl.exp(m - m_new)
            alpha = jnp.exp2(m - m_new)
            # grouped_query_attention.py:53: p = hl.exp(scores - m_new[:, None])
            p = jnp.exp2(scores - jnp.tile(m_new, (1, 1, 2)))
            # grouped_query_attention.py:54: total = total * alpha + p.sum(-1)
            total_ref[h : h + 4] = total_ref[h : h + 4] * alpha + jnp.sum(p, axis=2, keepdims=True)
            # grouped_query_attention.py:55: acc = hl.dot(p.to(v.dtype), v[h // share, tk, :], ac...
            acc_ref[h : h + 4] = (
                acc_ref[h : h + 4] * alpha
                + (
                    jnp.dot(
                        p.astype(jnp.bfloat16).reshape((512, 256)),
                        jnp.where(tk_mask_1, v_ref[h // 4], 0.0),
                        preferred_element_type=jnp.float32,
                    )
                ).reshape((4, 128, 128))
            )
            # grouped_query_attention.py:56: m = m_new
            m_ref[h : h + 4] = m_new

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
        def _():
            # grouped_query_attention.py:40: for h, b in hl.grid([H, offsets.shape[0] - 1]):
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(32):
                # grouped_query_attention.py:57: out[h, tq, :] = (acc / total[:, None]).to(out.dt...
                out_ref[h] = jnp.where(
                    tq_mask, (acc_ref[h] / total_ref[h]).astype(jnp.bfloat16), out_ref[h]
                )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((32, 128, 128), lambda n: (0, tq_of[n], 0)),
            pl.BlockSpec((8, 256, 128), lambda n: (0, tk_of[n], 0)),
            pl.BlockSpec((8, 256, 128), lambda n: (0, tk_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((32, 128, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out)


def grouped_query_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[h, r] = softmax(q[h, r] k[h // share]^T / sqrt(D)) v[h // share] within r's seque..."""
    out = pl.pallas_call(
        grouped_query_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((32, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((32, 128, 128), jnp.float32),
            pltpu.VMEM((32, 128, 128), jnp.float32),
            pltpu.VMEM((32, 128, 128), jnp.float32),
            pltpu.VMEM((32, 128, 256), jnp.float32),
            pltpu.SMEM((10176,), jnp.int32),
            pltpu.SMEM((10176,), jnp.int32),
            pltpu.SMEM((10176,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, q, k, v)
    return out
