"""attention_with_lse for tpu:v6e, blocks tk=1024, tq=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def attention_with_lse_kernel(q_ref, k_ref, v_ref, out_ref, lse_ref):
    # b: grid dimension; parallel: each b writes its own rows of out and lse
    # tq: grid dimension, blocks of 1024; parallel: each tq writes its own slices of out and lse
    # h: grid dimension; parallel: each h writes its own slices of out and lse
    # tk: loop inside the step, blocks of 1024; ordered: carries total, acc, m
    tq = pl.program_id(1)
    h = pl.program_id(2)
    # attention_backward.py:40: acc = hl.zeros([tq, D], dtype=hl.float32)
    acc = jnp.zeros((1024, 128), jnp.float32)
    # attention_backward.py:41: for tk in hl.tile(0, tq.end):
    tk_end = tq * 1024 + 1024
    tk_stop = jnp.where(tk_end > 0, jax.lax.div(tk_end + 1023, 1024), 0)
    total, acc_1, m = (
        jnp.zeros((1024, 128), jnp.float32), acc, jnp.full((1024, 128), -jnp.inf, jnp.float32)
    )
    def each_tk(tk, carried):
        total, acc_1, m = carried
        # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        scores = (
            jax.lax.dot_general(
                q_ref[...],
                k_ref[pl.ds(tk * 1024, 1024)],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            * 0.08838834764831845
        )
        # attention_backward.py:43: scores = hl.where(tk.index[None, :] <= tq.index[:, None], sco...
        tk_index = tk * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
        tq_index = tq * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1024, 1), 0)
        scores = jnp.where(tk_index <= tq_index, scores, -jnp.inf)
        # attention_backward.py:44: m_new = hl.maximum(m, scores.amax(-1))
        m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
        # attention_backward.py:45: alpha = hl.exp(m - m_new)
        alpha = jnp.exp(m - m_new)
        # attention_backward.py:46: p = hl.exp(scores - m_new[:, None])
        p = jnp.exp(scores - jnp.tile(m_new, (1, 8)))
        # attention_backward.py:47: total = total * alpha + p.sum(-1)
        total_1 = total * alpha + jnp.sum(p, axis=1, keepdims=True)
        # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc * alpha[:...
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
    # attention_backward.py:50: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
    out_ref[...] = (acc_1 / total).astype(jnp.bfloat16)
    # attention_backward.py:51: lse[b, h, tq] = m + hl.log(total)
    h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
    lse_ref[...] = jnp.where(h_row, (m + jnp.log(total))[:, :1].T, lse_ref[...])


def attention_with_lse(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Causal attention: q, k, v [B, H, T, D]; out [B, H, T, D] in v's dtype, lse [B, H, T]."""
    out, lse = pl.pallas_call(
        attention_with_lse_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((4, 16, 4096), jnp.float32),
        ],
        grid=(4, 4, 16),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, tq, h: (b, h, tq, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b, tq, h: (b, h, 0, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b, tq, h: (b, h, 0, 0)),
        ],
        out_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, tq, h: (b, h, tq, 0)),
            pl.BlockSpec((None, 8, 1024), lambda b, tq, h: (b, jax.lax.div(h, 8), tq)),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
        ),
        interpret=interpret,
    )(q, k, v)
    return out, lse
