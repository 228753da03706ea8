"""jagged_attention for tpu:v6e, blocks tk=4096, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_attention_kernel(offsets, q_ref, k_ref, v_ref, out_ref):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: grid dimension; parallel: out slices of different b are disjoint because offsets is sorted
    # tk: loop inside the step, blocks of 4096; ordered: carries total, acc, m
    # tq: loop inside the step, blocks of 128; parallel: each tq writes its own slices of out
    b = pl.program_id(1)

    @pl.when(b == 0)
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    # jagged_attention.py:75: for tq in hl.tile(begin, end, max_extent=longest):
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 128)
    tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), tq_first)
    def each_tq(tq, _):
        # jagged_attention.py:78: acc = hl.zeros([tq, v.shape[2]], dtype=hl.float32)
        acc = jnp.zeros((128, 128), jnp.float32)
        # jagged_attention.py:80: for tk in hl.tile(begin, last, max_extent=longest):
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], tq * 128 + 128)
        tk_first = jax.lax.div(tk_begin, 4096)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 4095, 4096), tk_first)
        total, acc_1, m = (
            jnp.zeros((128, 128), jnp.float32), acc, jnp.full((128, 128), -jnp.inf, jnp.float32)
        )
        def each_tk(tk, carried):
            total, acc_1, m = carried
            # jagged_attention.py:81: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * scale
            scores = (
                jax.lax.dot_general(
                    q_ref[pl.ds(tq * 128, 128)],
                    k_ref[pl.ds(tk * 4096, 4096)],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.12751743082459868
            )
            # jagged_attention.py:83: seen = tk.index[None, :] <= tq.index[:, None]
            tk_index = tk * 4096 + jax.lax.broadcasted_iota(jnp.int32, (1, 4096), 1)
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            seen = tk_index <= tq_index
            # jagged_attention.py:84: scores = hl.where(seen, scores, -math.inf)
            tk_mask = (
                (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 128 + 128))
            )
            scores = jnp.where(seen & tk_mask, scores, -jnp.inf)
            # jagged_attention.py:85: m_new = hl.maximum(m, scores.amax(-1))
            m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
            # jagged_attention.py:86: alpha = hl.exp(m - m_new)
            alpha = jnp.exp2(m - m_new)
            # jagged_attention.py:87: p = hl.exp(scores - m_new[:, None])
            p = jnp.where(tk_mask, jnp.exp2(scores - jnp.tile(m_new, (1, 32))), 0.0)
            # jagged_attention.py:88: total = total * alpha + p.sum(-1)
            total_1 = total * alpha + jnp.sum(p, axis=1, keepdims=True)
            # jagged_attention.py:89: acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:,...
            tk_index_1 = tk * 4096 + jax.lax.broadcasted_iota(jnp.int32, (4096, 1), 0)
            tk_mask_1 = (
                (tk_index_1 >= offsets[b])
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
        # jagged_attention.py:91: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[pl.ds(tq * 128, 128)] = jnp.where(
            tq_mask, (acc_1 / total).astype(jnp.bfloat16), out_ref[pl.ds(tq * 128, 128)]
        )
        return 0

    jax.lax.fori_loop(tq_first, tq_stop, each_tq, 0)


def jagged_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = the mean of v over r's sequence, weighted by softmax(q[:, r] k^T / sqrt(D))."""
    out = pl.pallas_call(
        jagged_attention_kernel,
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
