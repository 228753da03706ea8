"""flash_attention for tpu:v6e, blocks tk=1024, tq=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def flash_attention_kernel(k_ref, q_ref, v_ref, out_ref):
    # b: grid dimension; parallel: each b writes its own rows of out
    # h: grid dimension; parallel: each h writes its own slices of out
    # tq: grid dimension, blocks of 1024; parallel: each tq writes its own slices of out
    # tk: loop inside the step, blocks of 1024; ordered: carries total, acc, m
    tq = pl.program_id(2)
    # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
    acc = jnp.zeros((1024, 128), jnp.float32)
    # flash_attention.py:40: for tk in hl.tile(0, tq.end if causal else S, max_extent=S):
    tk_end = tq * 1024 + 1024
    tk_stop = jnp.where(tk_end > 0, jax.lax.div(tk_end + 1023, 1024), 0)
    total, acc_1, m = (
        jnp.zeros((1024, 128), jnp.float32), acc, jnp.full((1024, 128), -jnp.inf, jnp.float32)
    )
    def each_tk(tk, carried):
        total, acc_1, m = carried
        # flash_attention.py:41: keys = k[b, h, tk, :]
        keys = k_ref[pl.ds(tk * 1024, 1024)]
        # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * scale
        scores = (
            jax.lax.dot_general(
                q_ref[...],
                keys,
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            * 0.12751743082459868
        )
        # flash_attention.py:44: seen = tq.index[:, None] >= tk.index[None, :]
        tq_index = tq * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1024, 1), 0)
        tk_index = tk * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
        seen = tq_index >= tk_index
        # flash_attention.py:45: scores = torch.where(seen, scores, -math.inf)
        scores = jnp.where(seen, scores, -jnp.inf)
        # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
        m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
        # flash_attention.py:47: alpha = torch.exp(m - m_new)
        alpha = jnp.exp2(m - m_new)
        # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
        p = jnp.exp2(scores - jnp.tile(m_new, (1, 8)))
        # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
        total_1 = total * alpha + jnp.sum(p, axis=1, keepdims=True)
        # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, h, t...
        acc_2 = (
            acc_1 * alpha
            + jnp.dot(
                p.astype(jnp.bfloat16),
                v_ref[pl.ds(tk * 1024, 1024)],
                preferred_element_type=jnp.float32,
            )
        )
        return total_1, acc_2, m_new

    total, acc_1, m = jax.lax.fori_loop(0, tk_stop, each_tk, (total, acc_1, m))
    # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
    out_ref[...] = (acc_1 / total).astype(jnp.bfloat16)


def flash_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out = softmax(q k^T / sqrt(D)) v; with `causal`, query i sees keys 0 to i."""
    out = pl.pallas_call(
        flash_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16, 4096, 128), jnp.bfloat16),
        grid=(8, 16, 4),
        in_specs=[
            pl.BlockSpec((None, None, 4096, 128), lambda b, h, tq: (b, h, 0, 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, tq: (b, h, tq, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b, h, tq: (b, h, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, None, 1024, 128), lambda b, h, tq: (b, h, tq, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
        ),
        interpret=interpret,
    )(k, q, v)
    return out
