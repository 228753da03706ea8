"""sliding_window_attention for tpu:v6e, blocks tk=4096, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def sliding_window_attention_kernel(offsets, q_ref, k_ref, v_ref, out_ref):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: grid dimension; parallel: out slices of different b are disjoint because offsets is sorted
    # tk: loop inside the step, blocks of 4096; ordered: carries total, acc, m
    # tq: loop inside the step, blocks of 128; parallel: each tq writes its own slices of out
    b = pl.program_id(1)

    @pl.when(b == 0)
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    # sliding_window_attention.py:43: for tq in hl.tile(begin, end):
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 128)
    tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), tq_first)
    def each_tq(tq, _):
        # sliding_window_attention.py:46: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc = jnp.zeros((128, 128), jnp.float32)
        # sliding_window_attention.py:47: for tk in hl.tile(max(begin, tq.begin - window + 1), mi...
        tk_begin = jnp.maximum(
            jnp.maximum(offsets[b], jnp.maximum(offsets[b], tq * 128) - 20 + 1), 0
        )
        tk_end = jnp.minimum(offsets[b + 1], tq * 128 + 128)
        tk_first = jax.lax.div(tk_begin, 4096)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 4095, 4096), tk_first)
        total, acc_1, m = (
            jnp.zeros((128, 128), jnp.float32), acc, jnp.full((128, 128), -jnp.inf, jnp.float32)
        )
        def each_tk(tk, carried):
            total, acc_1, m = carried
            # sliding_window_attention.py:48: distance = tq.index[:, None] - tk.index[None, :]
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tk_index = tk * 4096 + jax.lax.broadcasted_iota(jnp.int32, (1, 4096), 1)
            distance = tq_index - tk_index
            # sliding_window_attention.py:49: seen = (distance >= 0) & (distance < window)
            seen = (distance >= 0) & (distance < 20)
            # sliding_window_attention.py:50: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
            scores = (
                jax.lax.dot_general(
                    q_ref[pl.ds(tq * 128, 128)],
                    k_ref[pl.ds(tk * 4096, 4096)],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.08838834764831845
            )
            # sliding_window_attention.py:51: scores = hl.where(seen, scores, -math.inf)
            tk_mask = (
                (tk_index >= jnp.maximum(offsets[b], jnp.maximum(offsets[b], tq * 128) - 20 + 1))
                & (tk_index < jnp.minimum(offsets[b + 1], tq * 128 + 128))
            )
            scores = jnp.where(seen & tk_mask, scores, -jnp.inf)
            # sliding_window_attention.py:52: m_new = hl.maximum(m, scores.amax(-1))
            m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
            # sliding_window_attention.py:53: known = hl.where(m_new == -math.inf, 0.0, m_new)
            known = jnp.where(m_new == -jnp.inf, 0.0, m_new)
            # sliding_window_attention.py:54: alpha = hl.exp(m - known)
            alpha = jnp.exp(m - known)
            # sliding_window_attention.py:55: p = hl.exp(scores - known[:, None])
            p = jnp.where(tk_mask, jnp.exp(scores - jnp.tile(known, (1, 32))), 0.0)
            # sliding_window_attention.py:56: total = total * alpha + p.sum(-1)
            total_1 = total * alpha + jnp.sum(p, axis=1, keepdims=True)
            # sliding_window_attention.py:57: acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * ...
            tk_index_1 = tk * 4096 + jax.lax.broadcasted_iota(jnp.int32, (4096, 1), 0)
            tk_mask_1 = (
                (tk_index_1 >= jnp.maximum(offsets[b], jnp.maximum(offsets[b], tq * 128) - 20 + 1))
                & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 128 + 128))
            )
            acc_2 = (
                acc_1 * alpha
                + jnp.dot(
                    p.astype(jnp.bfloat16),
                    jnp.where(tk_mask_1, v_ref[pl.ds(tk * 4096, 4096)], 0.0),
                    preferred_element_type=jnp.float32,
                )
            )
            return total_1, acc_2, m_new

        total, acc_1, m = jax.lax.fori_loop(tk_first, tk_stop, each_tk, (total, acc_1, m))
        # sliding_window_attention.py:59: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[pl.ds(tq * 128, 128)] = jnp.where(
            tq_mask, (acc_1 / total).astype(jnp.bfloat16), out_ref[pl.ds(tq * 128, 128)]
        )
        return 0

    jax.lax.fori_loop(tq_first, tq_stop, each_tq, 0)


def sliding_window_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = softmax(q[:, r] k^T / sqrt(D)) v over positions s with r - window < s <= r."""
    out = pl.pallas_call(
        sliding_window_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        grid=(16, 32),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=47185920,
        ),
        interpret=interpret,
    )(offsets, q, k, v)
    return out
