"""flash_attention for tpu:v6e, blocks tk=4096, tq=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def flash_attention_kernel(k, q, v, out):
    # b: grid dimension; parallel: each b writes its own rows of out
    # h: grid dimension; parallel: each h writes its own slices of out
    # tq: grid dimension, blocks of 512; parallel: each tq writes its own slices of out
    # tk: one tile, blocks of 4096; ordered: carries total, acc, m
    # tq_piece: loop inside the step, blocks of 128; parallel: its rows do not meet; products of
    #     the next piece come before the rest of one
    def step(k_ref, q_ref, v_ref, out_ref):
        # flash_attention.py:41: keys = k[b, h, tk, :]
        keys = k_ref[...]
        # flash_attention.py:36: for tq in hl.tile(T):
        def tq_piece_products(tq_piece):
            # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * scale
            scores = (
                jax.lax.dot_general(
                    q_ref[pl.ds(tq_piece * 128, 128)],
                    keys,
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.12751743082459868
            )
            return scores

        tq_piece_ahead = tq_piece_products(0)
        for tq_piece in range(4):
            scores = tq_piece_ahead
            if tq_piece < 3:  # the units that multiply are busy meanwhile
                tq_piece_ahead = tq_piece_products(tq_piece + 1)
            # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
            acc = jnp.zeros((128, 128), jnp.float32)
            # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
            m_new = jnp.maximum(
                jnp.full((128, 1), -jnp.inf, jnp.float32), jnp.max(scores, axis=1, keepdims=True)
            )
            # flash_attention.py:47: alpha = torch.exp(m - m_new)
            alpha = jnp.exp2(jnp.full((128, 1), -jnp.inf, jnp.float32) - m_new)
            # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
            p = jnp.exp2(scores - m_new)
            # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
            total = jnp.zeros((128, 1), jnp.float32) * alpha + jnp.sum(p, axis=1, keepdims=True)
            # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, ...
            acc = (
                acc * alpha
                + jnp.dot(p.astype(jnp.bfloat16), v_ref[...], preferred_element_type=jnp.float32)
            )
            # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
            out_ref[pl.ds(tq_piece * 128, 128)] = (acc / total).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(8, 16, 8),
        in_specs=[
            pl.BlockSpec((None, None, 4096, 128), lambda b, h, tq: (b, h, 0, 0)),
            pl.BlockSpec((None, None, 512, 128), lambda b, h, tq: (b, h, tq, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b, h, tq: (b, h, 0, 0)),
        ],
        out_specs=[pl.BlockSpec((None, None, 512, 128), lambda b, h, tq: (b, h, tq, 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.PARALLEL),
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
        interpret=interpret,
    )(k, q, v)
    return out
