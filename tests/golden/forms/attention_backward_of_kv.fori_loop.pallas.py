"""backward_kv for tpu:v6e, blocks tk=256, tq=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def backward_kv_kernel(offsets, grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dk_ref, dv_ref):
    # h: grid dimension; parallel: each h writes its own rows of dk and dv
    # b: grid dimension; parallel: dk and dv slices of different b are disjoint because offsets is
    #     sorted
    # tk: loop inside the step, blocks of 256; parallel: each tk writes its own slices of dk and dv
    # tq: loop inside the step, blocks of 512; ordered: carries sum_v, sum_k, sums
    h = pl.program_id(0)
    b = pl.program_id(1)

    @pl.when(b == 0)
    def _():
        # first step at this block of dk: rows of no range keep 0.0
        dk_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    @pl.when(b == 0)
    def _():
        # first step at this block of dv: rows of no range keep 0.0
        dv_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    # jagged_attention_backward.py:86: for tk in hl.tile(offsets[b], offsets[b + 1]):
    tk_begin = jnp.maximum(offsets[b], 0)
    tk_end = jnp.minimum(offsets[b + 1], 16384)
    tk_first = jax.lax.div(tk_begin, 256)
    tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 255, 256), tk_first)
    def each_tk(tk, _):
        # jagged_attention_backward.py:87: sum_k = hl.zeros([tk, D], dtype=hl.float32)
        sum_k = jnp.zeros((256, 128), jnp.float32)
        # jagged_attention_backward.py:88: sum_v = hl.zeros([tk, D], dtype=hl.float32)
        sum_v = jnp.zeros((256, 128), jnp.float32)
        # jagged_attention_backward.py:89: for tq in hl.tile(offsets[b], offsets[b + 1]):
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 512)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 511, 512), tq_first)
        sum_v_1, sum_k_1 = sum_v, sum_k
        def each_tq(tq, carried):
            sum_v_1, sum_k_1 = carried
            # jagged_attention_backward.py:90: g = grad[h, tq, :]
            tq_index = tq * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            g = jnp.where(tq_mask, grad_ref[pl.ds(tq * 512, 512)], 0.0)
            # jagged_attention_backward.py:91: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.fl...
            delta = jnp.sum(
                g.astype(jnp.float32) * out_ref[pl.ds(tq * 512, 512)].astype(jnp.float32),
                axis=1,
                keepdims=True,
            )
            # jagged_attention_backward.py:92: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
            scores = (
                jax.lax.dot_general(
                    q_ref[pl.ds(tq * 512, 512)],
                    k_ref[pl.ds(tk * 256, 256)],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.08838834764831845
            )
            # jagged_attention_backward.py:93: p = hl.exp(scores - lse[h, tq][:, None])
            h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
            lse_h = jnp.sum(
                jnp.where(h_row, lse_ref[:, pl.ds(tq * 512, 512)], 0.0),
                axis=0,
                keepdims=True,
            )
            p = jnp.where(tq_mask, jnp.exp(scores - lse_h.T), 0.0)
            # jagged_attention_backward.py:94: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
            sum_v_2 = (
                sum_v_1
                + jax.lax.dot_general(
                    p.astype(jnp.bfloat16),
                    g,
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            )
            # jagged_attention_backward.py:95: dp = hl.dot(g, v[h, tk, :].T)
            dp = jax.lax.dot_general(
                g,
                v_ref[pl.ds(tk * 256, 256)],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            # jagged_attention_backward.py:96: ds = p * (dp - delta[:, None]) * D**-0.5
            ds = jnp.where(tq_mask, p * (dp - delta) * 0.08838834764831845, 0.0)
            # jagged_attention_backward.py:97: sum_k = hl.dot(ds.to(q.dtype).T, q[h, tq, :], acc=...
            sum_k_2 = (
                sum_k_1
                + jax.lax.dot_general(
                    ds.astype(jnp.bfloat16),
                    jnp.where(tq_mask, q_ref[pl.ds(tq * 512, 512)], 0.0),
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            )
            return sum_v_2, sum_k_2

        sum_v_1, sum_k_1 = jax.lax.fori_loop(tq_first, tq_stop, each_tq, (sum_v_1, sum_k_1))
        # jagged_attention_backward.py:98: dk[h, tk, :] = sum_k.to(dk.dtype)
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
        dk_ref[pl.ds(tk * 256, 256)] = jnp.where(
            tk_mask, sum_k_1.astype(jnp.bfloat16), dk_ref[pl.ds(tk * 256, 256)]
        )
        # jagged_attention_backward.py:99: dv[h, tk, :] = sum_v.to(dv.dtype)
        dv_ref[pl.ds(tk * 256, 256)] = jnp.where(
            tk_mask, sum_v_1.astype(jnp.bfloat16), dv_ref[pl.ds(tk * 256, 256)]
        )
        return 0

    jax.lax.fori_loop(tk_first, tk_stop, each_tk, 0)


def backward_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    grad: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """dk and dv [H, T, D] in the dtypes of k and v; rows in no sequence are zero."""
    dk, dv = pl.pallas_call(
        backward_kv_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        ],
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
        out_specs=[
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=77594624,
        ),
        interpret=interpret,
    )(offsets, grad, out, q, k, lse, v)
    return dk, dv
