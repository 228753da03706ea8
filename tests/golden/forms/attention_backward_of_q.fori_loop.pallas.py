"""backward_q for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def backward_q_kernel(offsets, grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dq_ref):
    # h: grid dimension; parallel: each h writes its own rows of dq
    # b: grid dimension; parallel: dq slices of different b are disjoint because offsets is sorted
    # tk: loop inside the step, blocks of 512; ordered: carries acc, a sum
    # tq: loop inside the step, blocks of 256; parallel: each tq writes its own slices of dq
    h = pl.program_id(0)
    b = pl.program_id(1)

    @pl.when(b == 0)
    def _():
        # first step at this block of dq: rows of no range keep 0.0
        dq_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    # jagged_attention_backward.py:65: for tq in hl.tile(offsets[b], offsets[b + 1]):
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 256)
    tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), tq_first)
    def each_tq(tq, _):
        # jagged_attention_backward.py:66: g = grad[h, tq, :]
        g = grad_ref[pl.ds(tq * 256, 256)]
        # jagged_attention_backward.py:67: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.float3...
        delta = jnp.sum(
            g.astype(jnp.float32) * out_ref[pl.ds(tq * 256, 256)].astype(jnp.float32),
            axis=1,
            keepdims=True,
        )
        # jagged_attention_backward.py:68: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc = jnp.zeros((256, 128), jnp.float32)
        # jagged_attention_backward.py:69: for tk in hl.tile(offsets[b], offsets[b + 1]):
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], 16384)
        tk_first = jax.lax.div(tk_begin, 512)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 511, 512), tk_first)
        acc_1 = acc
        def each_tk(tk, acc_1):
            # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
            scores = (
                jax.lax.dot_general(
                    q_ref[pl.ds(tq * 256, 256)],
                    k_ref[pl.ds(tk * 512, 512)],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.08838834764831845
            )
            # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
            h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
            lse_h = jnp.sum(
                jnp.where(h_row, lse_ref[:, pl.ds(tq * 256, 256)], 0.0),
                axis=0,
                keepdims=True,
            )
            p = jnp.exp(scores - lse_h.T)
            # jagged_attention_backward.py:72: dp = hl.dot(g, v[h, tk, :].T)
            dp = jax.lax.dot_general(
                g,
                v_ref[pl.ds(tk * 512, 512)],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            # jagged_attention_backward.py:73: ds = p * (dp - delta[:, None]) * D**-0.5
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
            ds = jnp.where(tk_mask, p * (dp - delta) * 0.08838834764831845, 0.0)
            # jagged_attention_backward.py:74: acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=acc)
            tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_mask_1 = (tk_index_1 >= offsets[b]) & (tk_index_1 < offsets[b + 1])
            acc_2 = (
                acc_1
                + jnp.dot(
                    ds.astype(jnp.bfloat16),
                    jnp.where(tk_mask_1, k_ref[pl.ds(tk * 512, 512)], 0.0),
                    preferred_element_type=jnp.float32,
                )
            )
            return acc_2

        acc_1 = jax.lax.fori_loop(tk_first, tk_stop, each_tk, acc_1)
        # jagged_attention_backward.py:75: dq[h, tq, :] = acc.to(dq.dtype)
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        dq_ref[pl.ds(tq * 256, 256)] = jnp.where(
            tq_mask, acc_1.astype(jnp.bfloat16), dq_ref[pl.ds(tq * 256, 256)]
        )
        return 0

    jax.lax.fori_loop(tq_first, tq_stop, each_tq, 0)


def backward_q(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    grad: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """dq [H, T, D] in q's dtype; rows in no sequence are zero."""
    dq = pl.pallas_call(
        backward_q_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        grid=(16, 32),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((8, 16384), lambda h, b: (jax.lax.div(h, 8), 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=66060288,
        ),
        interpret=interpret,
    )(offsets, grad, out, q, k, lse, v)
    return dq
