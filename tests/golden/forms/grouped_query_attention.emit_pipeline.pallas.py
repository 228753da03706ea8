"""grouped_query_attention for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def grouped_query_attention_kernel(offsets, q, k, v, out, total_ref, acc_ref, m_ref, b_of, tq_of):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: pipeline inside the step, blocks of 512; ordered: carries total, acc, m
    # Step table: one row for every (b, tq), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_tq(b, tq, n):
        b_of[n] = b
        tq_of[n] = tq
        return n + 1

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 32, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 64, lambda tq, n: add_tq(31, tq, n), steps)

    def step(q_ref, out_ref):
        h = pl.program_id(0)
        n = pl.program_id(1)
        b, tq = b_of[n], tq_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((256, 128), jnp.bfloat16)

        # grouped_query_attention.py:45: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc_ref[...] = jnp.zeros((256, 128), jnp.float32)
        # grouped_query_attention.py:43: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m_ref[...] = jnp.full((256, 128), -jnp.inf, jnp.float32)
        # grouped_query_attention.py:44: total = hl.zeros([tq], dtype=hl.float32)
        total_ref[...] = jnp.zeros((256, 128), jnp.float32)
        # grouped_query_attention.py:47: for tk in hl.tile(begin, last):
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], tq * 256 + 256)
        tk_first = jax.lax.div(tk_begin, 512)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 511, 512), tk_first)

        def each_tk(k_ref, v_ref):
            tk = tk_first + pl.program_id(0)
            # grouped_query_attention.py:48: scores = hl.dot(q[h, tq, :], k[h // share, tk, :].T)...
            scores = (
                jax.lax.dot_general(
                    q_ref[...],
                    k_ref[...],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.12751743082459868
            )
            # grouped_query_attention.py:50: scores = hl.where(tk.index[None, :] <= tq.index[:, N...
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tk_mask = (
                (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 256 + 256))
            )
            scores = jnp.where((tk_index <= tq_index) & tk_mask, scores, -jnp.inf)
            m = m_ref[...]
            # grouped_query_attention.py:51: m_new = hl.maximum(m, scores.amax(-1))
            m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
            # grouped_query_attention.py:52: alpha = hl.exp(m - m_new)
            alpha = jnp.exp2(m - m_new)
            # grouped_query_attention.py:53: p = hl.exp(scores - m_new[:, None])
            p = jnp.where(tk_mask, jnp.exp2(scores - jnp.tile(m_new, (1, 4))), 0.0)
            # grouped_query_attention.py:54: total = total * alpha + p.sum(-1)
            total_ref[...] = total_ref[...] * alpha + jnp.sum(p, axis=1, keepdims=True)
            # grouped_query_attention.py:55: acc = hl.dot(p.to(v.dtype), v[h // share, tk, :], ac...
            tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_mask_1 = (
                (tk_index_1 >= offsets[b])
                & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 256 + 256))
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

        pltpu.emit_pipeline(
            each_tk,
            grid=(tk_stop - tk_first,),
            in_specs=[
                pl.BlockSpec((None, 512, 128), lambda tk: (h // 4, tk_first + tk, 0)),
                pl.BlockSpec((None, 512, 128), lambda tk: (h // 4, tk_first + tk, 0)),
            ],
        )(k, v)
        # grouped_query_attention.py:57: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[...] = jnp.where(
            tq_mask, (acc_ref[...] / total_ref[...]).astype(jnp.bfloat16), out_ref[...]
        )

    pltpu.emit_pipeline(
        step,
        grid=(32, steps),
        in_specs=[pl.BlockSpec((None, 256, 128), lambda h, n: (h, tq_of[n], 0))],
        out_specs=[pl.BlockSpec((None, 256, 128), lambda h, n: (h, tq_of[n], 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(q, out)


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
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.SMEM((95,), jnp.int32),
            pltpu.SMEM((95,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, q, k, v)
    return out
