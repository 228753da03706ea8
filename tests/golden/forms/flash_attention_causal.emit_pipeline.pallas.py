"""flash_attention for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def flash_attention_kernel(q_ref, k, v, out_ref, total_ref, acc_ref, m_ref):
    # b: grid dimension; parallel: each b writes its own rows of out
    # h: grid dimension; parallel: each h writes its own slices of out
    # tq: grid dimension, blocks of 256; parallel: each tq writes its own slices of out
    # tk: pipeline inside the step, blocks of 512; ordered: carries total, acc, m
    b = pl.program_id(0)
    h = pl.program_id(1)
    tq = pl.program_id(2)
    # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
    acc_ref[...] = jnp.zeros((256, 128), jnp.float32)
    # flash_attention.py:37: m = torch.full([tq], -math.inf, dtype=torch.float32)
    m_ref[...] = jnp.full((256, 128), -jnp.inf, jnp.float32)
    # flash_attention.py:38: total = torch.zeros([tq], dtype=torch.float32)
    total_ref[...] = jnp.zeros((256, 128), jnp.float32)
    # flash_attention.py:40: for tk in hl.tile(0, tq.end if causal else S, max_extent=S):
    tk_end = tq * 256 + 256
    tk_stop = jnp.where(tk_end > 0, jax.lax.div(tk_end + 511, 512), 0)

    def each_tk(k_ref, v_ref):
        tk = pl.program_id(0)
        # flash_attention.py:41: keys = k[b, h, tk, :]
        keys = k_ref[...]
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
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
        seen = tq_index >= tk_index
        # flash_attention.py:45: scores = torch.where(seen, scores, -math.inf)
        tk_mask = tk_index < tq * 256 + 256
        scores = jnp.where(seen & tk_mask, scores, -jnp.inf)
        m = m_ref[...]
        # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
        m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
        # flash_attention.py:47: alpha = torch.exp(m - m_new)
        alpha = jnp.exp2(m - m_new)
        # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
        p = jnp.where(tk_mask, jnp.exp2(scores - jnp.tile(m_new, (1, 4))), 0.0)
        # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
        total_ref[...] = total_ref[...] * alpha + jnp.sum(p, axis=1, keepdims=True)
        # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, h, t...
        tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tk_mask_1 = tk_index_1 < tq * 256 + 256
        acc_ref[...] = (
            acc_ref[...] * alpha
            + jnp.dot(
                p.astype(jnp.bfloat16),
                jnp.where(tk_mask_1, v_ref[...], 0.0),
                preferred_element_type=jnp.float32,
            )
        )
        # flash_attention.py:51: m = m_new
        m_ref[...] = m_new

    pltpu.emit_pipeline(
        each_tk,
        grid=(tk_stop,),
        in_specs=[
            pl.BlockSpec((None, None, 512, 128), lambda tk: (b, h, tk, 0)),
            pl.BlockSpec((None, None, 512, 128), lambda tk: (b, h, tk, 0)),
        ],
    )(k, v)
    # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
    out_ref[...] = (acc_ref[...] / total_ref[...]).astype(jnp.bfloat16)


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
        grid=(8, 16, 16),
        in_specs=[
            pl.BlockSpec((None, None, 256, 128), lambda b, h, tq: (b, h, tq, 0)),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((None, None, 256, 128), lambda b, h, tq: (b, h, tq, 0)),
        scratch_shapes=[
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
        ),
        interpret=interpret,
    )(q, k, v)
    return out
