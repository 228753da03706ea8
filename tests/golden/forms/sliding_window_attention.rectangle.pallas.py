"""sliding_window_attention for tpu:v6e, blocks tk=256, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def sliding_window_attention_kernel(
    offsets, q, k, v, out_in, out, total_ref, acc_ref, m_ref, scores_ref,
):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 256; ordered: carries total, acc, m
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # Rectangle of steps (b, tq, tk), 32 x 64 x 64; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 4096)
        tq_step = jax.lax.rem(jax.lax.div(n, 64), 64)
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), tq_first)
        tq_live = tq_step < tq_stop - tq_first
        tq = jnp.minimum(jnp.minimum(tq_first + tq_step, jnp.maximum(tq_stop - 1, tq_first)), 63)
        tk_step = jax.lax.rem(n, 64)
        tk_begin = jnp.maximum(
            jnp.maximum(offsets[b], jnp.maximum(offsets[b], tq * 256) - 20 + 1), 0
        )
        tk_end = jnp.minimum(offsets[b + 1], tq * 256 + 256)
        tk_first = jax.lax.div(tk_begin, 256)
        tk_stop = jax.lax.div(tk_end + 255, 256)
        tk_step = jnp.where(tq_live, tk_step, 63)
        tk_live = tk_step < tk_stop - tk_first
        tk = jnp.minimum(jnp.minimum(tk_first + tk_step, jnp.maximum(tk_stop - 1, tk_first)), 63)
        live = tq_live & tk_live
        return live, (b, tq, tk), (tk_first, tk_stop)

    def step(q_ref, k_ref, v_ref, out_in_ref, out_ref):
        n = pl.program_id(0)
        live, (b, tq, tk), (tk_first, tk_stop) = at(n)
        _, before, _ = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tq))
        def _():
            # first step at this block of out: start from what the array holds
            out_ref[...] = out_in_ref[...]

        @pl.when(live & (tk == tk_first))
        def _():
            # sliding_window_attention.py:46: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)
            # sliding_window_attention.py:44: m = hl.full([tq], -math.inf, dtype=hl.float32)
            m_ref[...] = jnp.full((16, 256, 128), -jnp.inf, jnp.float32)
            # sliding_window_attention.py:45: total = hl.zeros([tq], dtype=hl.float32)
            total_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)

        @pl.when(live)
        def _():
            # sliding_window_attention.py:48: distance = tq.index[:, None] - tk.index[None, :]
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
            distance = tq_index - tk_index
            # sliding_window_attention.py:49: seen = (distance >= 0) & (distance < window)
            seen = (distance >= 0) & (distance < 20)
            # sliding_window_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
            for h in range(16):
                # sliding_window_attention.py:50: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D...
                scores_ref[h] = (
                    jax.lax.dot_general(
                        q_ref[h],
                        k_ref[h],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
            tk_mask = (
                (tk_index >= jnp.maximum(offsets[b], jnp.maximum(offsets[b], tq * 256) - 20 + 1))
                & (tk_index < jnp.minimum(offsets[b + 1], tq * 256 + 256))
            )
            tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tk_mask_1 = (
                (tk_index_1 >= jnp.maximum(offsets[b], jnp.maximum(offsets[b], tq * 256) - 20 + 1))
                & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 256 + 256))
            )
            for h in range(16):
                # sliding_window_attention.py:51: scores = hl.where(seen, scores, -math.inf)
                scores = jnp.where(seen & tk_mask, scores_ref[h], -jnp.inf)
                m = m_ref[h]
                # sliding_window_attention.py:52: m_new = hl.maximum(m, scores.amax(-1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # sliding_window_attention.py:53: known = hl.where(m_new == -math.inf, 0.0, m_new)
                known = jnp.where(m_new == -jnp.inf, 0.0, m_new)
                # sliding_window_attention.py:54: alpha = hl.exp(m - known)
                alpha = jnp.exp(m - known)
                # sliding_window_attention.py:55: p = hl.exp(scores - known[:, None])
                p = jnp.where(tk_mask, jnp.exp(scores - jnp.tile(known, (1, 2))), 0.0)
                # sliding_window_attention.py:56: total = total * alpha + p.sum(-1)
                total_ref[h] = total_ref[h] * alpha + jnp.sum(p, axis=1, keepdims=True)
                # sliding_window_attention.py:57: acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=ac...
                acc_ref[h] = (
                    acc_ref[h] * alpha
                    + jnp.dot(
                        p.astype(jnp.bfloat16),
                        jnp.where(tk_mask_1, v_ref[h], 0.0),
                        preferred_element_type=jnp.float32,
                    )
                )
                # sliding_window_attention.py:58: m = m_new
                m_ref[h] = m_new

        @pl.when(live & (tk == tk_stop - 1))
        def _():
            # sliding_window_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # sliding_window_attention.py:59: out[h, tq, :] = (acc / total[:, None]).to(out.d...
                out_ref[h] = jnp.where(
                    tq_mask, (acc_ref[h] / total_ref[h]).astype(jnp.bfloat16), out_ref[h]
                )

    pltpu.emit_pipeline(
        step,
        grid=(131072,),
        in_specs=[
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out_in, out)


def sliding_window_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = softmax(q[:, r] k^T / sqrt(D)) v over positions s with r - window < s <= r."""
    out_in = jnp.zeros((16, 16384, 128), jnp.bfloat16)
    out = pl.pallas_call(
        sliding_window_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 256), jnp.float32),
        ],
        input_output_aliases={4: 0},
        interpret=interpret,
    )(offsets, q, k, v, out_in)
    return out
