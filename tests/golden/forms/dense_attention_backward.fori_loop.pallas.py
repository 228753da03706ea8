"""attention_backward for tpu:v6e, blocks tk=1024, tk_1=1024, tq=1024, tq_1=1024, tq_2=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def attention_backward_1_kernel(grad_ref, out_ref, delta_ref):
    # b: grid dimension; parallel: each b writes its own rows of delta
    # tq: grid dimension, blocks of 1024; parallel: each tq writes its own slices of delta
    # h: grid dimension; parallel: each h writes its own slices of delta
    h = pl.program_id(2)
    # attention_backward.py:71: products = grad[b, h, tq, :].to(hl.float32) * out[b, h, tq, :].to...
    products = grad_ref[...].astype(jnp.float32) * out_ref[...].astype(jnp.float32)
    # attention_backward.py:72: delta[b, h, tq] = products.sum(-1)
    h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
    delta_ref[...] = jnp.where(h_row, jnp.sum(products, axis=1, keepdims=True).T, delta_ref[...])


def attention_backward_2_kernel(q_ref, k_ref, lse_ref, grad_ref, v_ref, delta_ref, dq_ref):
    # b_1: grid dimension; parallel: each b writes its own rows of dq
    # h_1: grid dimension; parallel: each h writes its own slices of dq
    # tq_1: grid dimension, blocks of 1024; parallel: each tq writes its own slices of dq
    # tk: loop inside the step, blocks of 1024; ordered: carries acc, a sum
    h_1 = pl.program_id(1)
    tq_1 = pl.program_id(2)
    # attention_backward.py:75: acc = hl.zeros([tq, D], dtype=hl.float32)
    acc = jnp.zeros((1024, 128), jnp.float32)
    # attention_backward.py:76: for tk in hl.tile(0, tq.end):
    tk_end = tq_1 * 1024 + 1024
    tk_stop = jnp.where(tk_end > 0, jax.lax.div(tk_end + 1023, 1024), 0)
    acc_1 = acc
    def each_tk(tk, acc_1):
        # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        scores = (
            jax.lax.dot_general(
                q_ref[...],
                k_ref[pl.ds(tk * 1024, 1024)],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            * 0.08838834764831845
        )
        # attention_backward.py:78: p = hl.exp(scores - lse[b, h, tq][:, None])
        h_1_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h_1, 8)
        lse_h_1 = jnp.sum(jnp.where(h_1_row, lse_ref[...], 0.0), axis=0, keepdims=True)
        p = jnp.exp(scores - lse_h_1.T)
        # attention_backward.py:79: p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
        tk_index = tk * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
        tq_1_index = tq_1 * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1024, 1), 0)
        p = jnp.where(tk_index <= tq_1_index, p, 0.0)
        # attention_backward.py:80: dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
        dp = jax.lax.dot_general(
            grad_ref[...],
            v_ref[pl.ds(tk * 1024, 1024)],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # attention_backward.py:81: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
        delta_h_1 = jnp.sum(jnp.where(h_1_row, delta_ref[...], 0.0), axis=0, keepdims=True)
        ds = p * (dp - delta_h_1.T) * 0.08838834764831845
        # attention_backward.py:82: acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
        acc_2 = (
            acc_1
            + jnp.dot(
                ds.astype(jnp.bfloat16),
                k_ref[pl.ds(tk * 1024, 1024)],
                preferred_element_type=jnp.float32,
            )
        )
        return acc_2

    acc_1 = jax.lax.fori_loop(0, tk_stop, each_tk, acc_1)
    # attention_backward.py:83: dq[b, h, tq, :] = acc.to(dq.dtype)
    dq_ref[...] = acc_1.astype(jnp.bfloat16)


def attention_backward_3_kernel(grad_ref, q_ref, k_ref, lse_ref, v_ref, delta_ref, dk_ref, dv_ref):
    # b_2: grid dimension; parallel: each b writes its own rows of dk and dv
    # h_2: grid dimension; parallel: each h writes its own slices of dk and dv
    # tk_1: grid dimension, blocks of 1024; parallel: each tk writes its own slices of dk and dv
    # tq_2: loop inside the step, blocks of 1024; ordered: carries sum_v, sum_k, sums
    h_2 = pl.program_id(1)
    tk_1 = pl.program_id(2)
    # attention_backward.py:86: sum_k = hl.zeros([tk, D], dtype=hl.float32)
    sum_k = jnp.zeros((1024, 128), jnp.float32)
    # attention_backward.py:87: sum_v = hl.zeros([tk, D], dtype=hl.float32)
    sum_v = jnp.zeros((1024, 128), jnp.float32)
    # attention_backward.py:88: for tq in hl.tile(tk.begin, T):
    tq_2_begin = tk_1 * 1024
    tq_2_first = jax.lax.div(tq_2_begin, 1024)
    tq_2_stop = jnp.where(4096 > tq_2_begin, 4, tq_2_first)
    sum_v_1, sum_k_1 = sum_v, sum_k
    def each_tq_2(tq_2, carried):
        sum_v_1, sum_k_1 = carried
        # attention_backward.py:89: g = grad[b, h, tq, :]
        g = grad_ref[pl.ds(tq_2 * 1024, 1024)]
        # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        scores = (
            jax.lax.dot_general(
                q_ref[pl.ds(tq_2 * 1024, 1024)],
                k_ref[...],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            * 0.08838834764831845
        )
        # attention_backward.py:91: p = hl.exp(scores - lse[b, h, tq][:, None])
        h_2_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h_2, 8)
        lse_h_2 = jnp.sum(
            jnp.where(h_2_row, lse_ref[:, pl.ds(tq_2 * 1024, 1024)], 0.0),
            axis=0,
            keepdims=True,
        )
        p = jnp.exp(scores - lse_h_2.T)
        # attention_backward.py:92: p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
        tk_1_index = tk_1 * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
        tq_2_index = tq_2 * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1024, 1), 0)
        p = jnp.where(tk_1_index <= tq_2_index, p, 0.0)
        # attention_backward.py:93: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
        sum_v_2 = (
            sum_v_1
            + jax.lax.dot_general(
                p.astype(jnp.bfloat16),
                g,
                (((0,), (0,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
        )
        # attention_backward.py:94: dp = hl.dot(g, v[b, h, tk, :].T)
        dp = jax.lax.dot_general(
            g,
            v_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # attention_backward.py:95: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
        delta_h_2 = jnp.sum(
            jnp.where(h_2_row, delta_ref[:, pl.ds(tq_2 * 1024, 1024)], 0.0),
            axis=0,
            keepdims=True,
        )
        ds = p * (dp - delta_h_2.T) * 0.08838834764831845
        # attention_backward.py:96: sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=sum_k)
        sum_k_2 = (
            sum_k_1
            + jax.lax.dot_general(
                ds.astype(jnp.bfloat16),
                q_ref[pl.ds(tq_2 * 1024, 1024)],
                (((0,), (0,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
        )
        return sum_v_2, sum_k_2

    sum_v_1, sum_k_1 = jax.lax.fori_loop(tq_2_first, tq_2_stop, each_tq_2, (sum_v_1, sum_k_1))
    # attention_backward.py:97: dk[b, h, tk, :] = sum_k.to(dk.dtype)
    dk_ref[...] = sum_k_1.astype(jnp.bfloat16)
    # attention_backward.py:98: dv[b, h, tk, :] = sum_v.to(dv.dtype)
    dv_ref[...] = sum_v_1.astype(jnp.bfloat16)


def attention_backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    grad: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The gradients of causal attention."""
    delta = pl.pallas_call(
        attention_backward_1_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 16, 4096), jnp.float32),
        grid=(4, 4, 16),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, tq, h: (b, h, tq, 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, tq, h: (b, h, tq, 0)),
        ],
        out_specs=pl.BlockSpec((None, 8, 1024), lambda b, tq, h: (b, jax.lax.div(h, 8), tq)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
        ),
        interpret=interpret,
    )(grad, out)
    dq = pl.pallas_call(
        attention_backward_2_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
        grid=(4, 16, 4),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, tq_1: (b_1, h_1, tq_1, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b_1, h_1, tq_1: (b_1, h_1, 0, 0)),
            pl.BlockSpec((None, 8, 1024), lambda b_1, h_1, tq_1: (b_1, jax.lax.div(h_1, 8), tq_1)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, tq_1: (b_1, h_1, tq_1, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b_1, h_1, tq_1: (b_1, h_1, 0, 0)),
            pl.BlockSpec((None, 8, 1024), lambda b_1, h_1, tq_1: (b_1, jax.lax.div(h_1, 8), tq_1)),
        ],
        out_specs=pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, tq_1: (b_1, h_1, tq_1, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
        ),
        interpret=interpret,
    )(q, k, lse, grad, v, delta)
    dk, dv = pl.pallas_call(
        attention_backward_3_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
        ],
        grid=(4, 16, 4),
        in_specs=[
            pl.BlockSpec((None, None, 4096, 128), lambda b_2, h_2, tk_1: (b_2, h_2, 0, 0)),
            pl.BlockSpec((None, None, 4096, 128), lambda b_2, h_2, tk_1: (b_2, h_2, 0, 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, tk_1: (b_2, h_2, tk_1, 0)),
            pl.BlockSpec((None, 8, 4096), lambda b_2, h_2, tk_1: (b_2, jax.lax.div(h_2, 8), 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, tk_1: (b_2, h_2, tk_1, 0)),
            pl.BlockSpec((None, 8, 4096), lambda b_2, h_2, tk_1: (b_2, jax.lax.div(h_2, 8), 0)),
        ],
        out_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, tk_1: (b_2, h_2, tk_1, 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, tk_1: (b_2, h_2, tk_1, 0)),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
        ),
        interpret=interpret,
    )(grad, q, k, lse, v, delta)
    return dq, dk, dv
