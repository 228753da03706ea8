"""varlen_attention for tpu:v6e, blocks tk=256, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def varlen_attention_kernel(
    offsets, k, v, q, out, total_ref, acc_ref, m_ref, scores_ref, k_by_h_ref, v_by_h_ref,
    q_by_h_ref, out_by_h_ref, b_of, tq_of, tk_of,
):
    # b: column of the step table; parallel: out rows of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own rows of out
    # tk: column of the step table, blocks of 256; ordered: carries total, acc, m
    # h: every step runs all of them; parallel: each h writes its own slices of out
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
            (n == 0) | tq_runs, jnp.minimum(tk_first, 255), tk_of[jnp.maximum(n - 1, 0)]
        )
        tk_stop = jnp.minimum(
            jnp.maximum(
                jnp.where((tk_end > tk_begin) & tq_runs, jax.lax.div(tk_end + 255, 256), tk_first),
                tk_first + 1,
            ),
            tk_first + (6903 - n),
        )
        return jax.lax.fori_loop(tk_first, tk_stop, lambda tk, n: add_tk(b, tq, tk, n), n)

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 65536)
        tq_first = jax.lax.div(tq_begin, 128)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 256, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 512, lambda tq, n: add_tq(255, tq, n), steps)

    def step(k_ref, v_ref, q_ref, out_ref):
        n = pl.program_id(0)
        b, tq, tk = b_of[n], tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((128, 16, 64), jnp.bfloat16)

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
            acc_ref[...] = jnp.zeros((16, 128, 64), jnp.float32)
            # varlen_attention.py:53: m = jnp.full([tq], -math.inf, dtype=jnp.float32)
            m_ref[...] = jnp.full((16, 128, 128), -jnp.inf, jnp.float32)
            # varlen_attention.py:54: total = jnp.zeros([tq], dtype=jnp.float32)
            total_ref[...] = jnp.zeros((16, 128, 128), jnp.float32)

        # varlen_attention.py:50: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        for h in range(0, 16, 2):
            # varlen_attention.py:58: keys, values = k[tk, h // share, :], v[tk, h // share, :]
            keys = k_by_h_ref[h // 2]
            # varlen_attention.py:59: scores = jnp.dot(q[tq, h, :], keys.T, preferred_element_typ...
            scores_ref[h : h + 2] = (
                (
                    jax.lax.dot_general(
                        q_by_h_ref[h : h + 2].reshape((256, 64)),
                        keys,
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                ).reshape((2, 128, 256))
                * 0.18033688011112042
            )
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask = (
            (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        )
        tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tk_mask_1 = (
            (tk_index_1 >= offsets[b]) & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        )
        for h in range(0, 16, 2):
            # varlen_attention.py:58: keys, values = k[tk, h // share, :], v[tk, h // share, :]
            values = jnp.where(tk_mask, v_by_h_ref[h // 2], 0.0)
            # varlen_attention.py:61: scores = jnp.where(tk.index[None, :] <= tq.index[:, None], ...
            scores = jnp.where(
                (tk_index_1 <= tq_index) & tk_mask_1, scores_ref[h : h + 2], -jnp.inf
            )
            m = m_ref[h : h + 2]
            # varlen_attention.py:62: m_new = jnp.maximum(m, scores.max(axis=-1))
            m_new = jnp.maximum(m, jnp.max(scores, axis=2, keepdims=True))
            # varlen_attention.py:63: alpha = jnp.exp(m - m_new)
            alpha = jnp.exp2(m - m_new)
            # varlen_attention.py:64: p = jnp.exp(scores - m_new[:, None])
            p = jnp.exp2(scores - jnp.tile(m_new, (1, 1, 2)))
            # varlen_attention.py:65: total = total * alpha + p.sum(axis=-1)
            total_ref[h : h + 2] = total_ref[h : h + 2] * alpha + jnp.sum(p, axis=2, keepdims=True)
            # varlen_attention.py:66: new = jnp.dot(p.astype(v.dtype), values, preferred_element_...
            new = (
                jnp.dot(
                    p.astype(jnp.bfloat16).reshape((256, 256)),
                    values,
                    preferred_element_type=jnp.float32,
                )
            ).reshape((2, 128, 64))
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
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            out_ref[...] = jnp.where(
                tq_mask, jnp.transpose(out_by_h_ref[...], (1, 0, 2)), out_ref[...]
            )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((256, 8, 64), lambda n: (tk_of[n], 0, 0)),
            pl.BlockSpec((256, 8, 64), lambda n: (tk_of[n], 0, 0)),
            pl.BlockSpec((128, 16, 64), lambda n: (tq_of[n], 0, 0)),
        ],
        out_specs=[pl.BlockSpec((128, 16, 64), lambda n: (tq_of[n], 0, 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(k, v, q, out)


def varlen_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[r, h] = the mean of v over r's sequence, weighted by softmax(q[r, h] k^T / sqrt(D))."""
    out = pl.pallas_call(
        varlen_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((65536, 16, 64), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((16, 128, 128), jnp.float32),
            pltpu.VMEM((16, 128, 64), jnp.float32),
            pltpu.VMEM((16, 128, 128), jnp.float32),
            pltpu.VMEM((16, 128, 256), jnp.float32),
            pltpu.VMEM((8, 256, 64), jnp.bfloat16),
            pltpu.VMEM((8, 256, 64), jnp.bfloat16),
            pltpu.VMEM((16, 128, 64), jnp.bfloat16),
            pltpu.VMEM((16, 128, 64), jnp.bfloat16),
            pltpu.SMEM((6903,), jnp.int32),
            pltpu.SMEM((6903,), jnp.int32),
            pltpu.SMEM((6903,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, k, v, q)
    return out
