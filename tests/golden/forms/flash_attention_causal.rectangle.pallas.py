"""flash_attention for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def flash_attention_kernel(k, q, v, out, total_ref, acc_ref, m_ref):
    # b: grid dimension; parallel: each b writes its own rows of out
    # h: grid dimension; parallel: each h writes its own slices of out
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 512; ordered: carries total, acc, m
    # Rectangle of steps (tq, tk), 16 x 8; dead steps move no data.
    def at(n):
        tq = jax.lax.div(n, 8)
        tk_step = jax.lax.rem(n, 8)
        tk_end = tq * 256 + 256
        tk_stop = jax.lax.div(tk_end + 511, 512)
        tk_live = tk_step < tk_stop
        tk = jnp.minimum(jnp.minimum(tk_step, jnp.maximum(tk_stop - 1, 0)), 7)
        return tk_live, (tq, tk), (0, tk_stop)

    def step(k_ref, q_ref, v_ref, out_ref):
        n = pl.program_id(2)
        live, (tq, tk), (tk_first, tk_stop) = at(n)

        @pl.when(live & (tk == tk_first))
        def _():
            # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
            acc_ref[...] = jnp.zeros((256, 128), jnp.float32)
            # flash_attention.py:37: m = torch.full([tq], -math.inf, dtype=torch.float32)
            m_ref[...] = jnp.full((256, 128), -jnp.inf, jnp.float32)
            # flash_attention.py:38: total = torch.zeros([tq], dtype=torch.float32)
            total_ref[...] = jnp.zeros((256, 128), jnp.float32)

        @pl.when(live)
        def _():
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
            p = jnp.exp2(scores - jnp.tile(m_new, (1, 4)))
            # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
            total_ref[...] = total_ref[...] * alpha + jnp.sum(p, axis=1, keepdims=True)
            # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, ...
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

        @pl.when(live & (tk == tk_stop - 1))
        def _():
            # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
            out_ref[...] = (acc_ref[...] / total_ref[...]).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(8, 16, 128),
        in_specs=[
            pl.BlockSpec((None, None, 512, 128), lambda b, h, n: (b, h, at(n)[1][1], 0)),
            pl.BlockSpec((None, None, 256, 128), lambda b, h, n: (b, h, at(n)[1][0], 0)),
            pl.BlockSpec((None, None, 512, 128), lambda b, h, n: (b, h, at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((None, None, 256, 128), lambda b, h, n: (b, h, at(n)[1][0], 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
    )(k, q, v, out)


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
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
        ],
        interpret=interpret,
    )(k, q, v)
    return out
