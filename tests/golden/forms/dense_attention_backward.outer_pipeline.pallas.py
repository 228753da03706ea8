"""attention_backward for tpu:v6e, blocks tk=1024, tk_1=1024, tq=1024, tq_1=1024, tq_2=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def attention_backward_1_kernel(grad, out, delta):
    # b: grid dimension; parallel: each b writes its own rows of delta
    # tq: grid dimension, blocks of 1024; parallel: each tq writes its own slices of delta
    # h: grid dimension; parallel: each h writes its own slices of delta
    def step(grad_ref, out_ref, delta_ref):
        h = pl.program_id(2)
        # attention_backward.py:71: products = grad[b, h, tq, :].to(hl.float32) * out[b, h, tq, :...
        products = grad_ref[...].astype(jnp.float32) * out_ref[...].astype(jnp.float32)
        # attention_backward.py:72: delta[b, h, tq] = products.sum(-1)
        h_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h, 8)
        delta_ref[...] = jnp.where(
            h_row, jnp.sum(products, axis=1, keepdims=True).T, delta_ref[...]
        )

    pltpu.emit_pipeline(
        step,
        grid=(4, 4, 16),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, tq, h: (b, h, tq, 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, tq, h: (b, h, tq, 0)),
        ],
        out_specs=[pl.BlockSpec((None, 8, 1024), lambda b, tq, h: (b, jax.lax.div(h, 8), tq))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
    )(grad, out, delta)


def attention_backward_2_kernel(q, k, lse, grad, v, delta, dq, acc_ref, tq_1_of, tk_of):
    # b_1: grid dimension; parallel: each b writes its own rows of dq
    # h_1: grid dimension; parallel: each h writes its own slices of dq
    # tq_1: column of the step table, blocks of 1024; parallel: each tq writes its own slices of dq
    # tk: column of the step table, blocks of 1024; ordered: carries acc, a sum
    # Step table: one row for every live (tq_1, tk), in the order of the loops.
    def add_tk(tq_1, tk, n):
        tq_1_of[n] = tq_1
        tk_of[n] = tk
        return n + 1

    def add_tq_1(tq_1, n):
        tk_end = tq_1 * 1024 + 1024
        tk_stop = jax.lax.div(tk_end + 1023, 1024)
        return jax.lax.fori_loop(0, tk_stop, lambda tk, n: add_tk(tq_1, tk, n), n)

    steps = jax.lax.fori_loop(0, 4, add_tq_1, jnp.int32(0))

    def step(q_ref, k_ref, lse_ref, grad_ref, v_ref, delta_ref, dq_ref):
        h_1 = pl.program_id(1)
        n = pl.program_id(2)
        tq_1, tk = tq_1_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_1_of[before] != tq_1))
        def _():
            # attention_backward.py:75: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((1024, 128), jnp.float32)

        # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        scores = (
            jax.lax.dot_general(
                q_ref[...],
                k_ref[...],
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
            v_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # attention_backward.py:81: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
        delta_h_1 = jnp.sum(jnp.where(h_1_row, delta_ref[...], 0.0), axis=0, keepdims=True)
        ds = p * (dp - delta_h_1.T) * 0.08838834764831845
        # attention_backward.py:82: acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
        acc_ref[...] += jnp.dot(
            ds.astype(jnp.bfloat16),
            k_ref[...],
            preferred_element_type=jnp.float32,
        )

        @pl.when((n == steps - 1) | (tq_1_of[after] != tq_1))
        def _():
            # attention_backward.py:83: dq[b, h, tq, :] = acc.to(dq.dtype)
            dq_ref[...] = acc_ref[...].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, 16, steps),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, n: (b_1, h_1, tq_1_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, n: (b_1, h_1, tk_of[n], 0)),
            pl.BlockSpec(
                (None, 8, 1024), lambda b_1, h_1, n: (b_1, jax.lax.div(h_1, 8), tq_1_of[n])
            ),
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, n: (b_1, h_1, tq_1_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, n: (b_1, h_1, tk_of[n], 0)),
            pl.BlockSpec(
                (None, 8, 1024), lambda b_1, h_1, n: (b_1, jax.lax.div(h_1, 8), tq_1_of[n])
            ),
        ],
        out_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b_1, h_1, n: (b_1, h_1, tq_1_of[n], 0))
        ],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
    )(q, k, lse, grad, v, delta, dq)


def attention_backward_3_kernel(
    grad, q, k, lse, v, delta, dk, dv, sum_v_ref, sum_k_ref, tk_1_of, tq_2_of,
):
    # b_2: grid dimension; parallel: each b writes its own rows of dk and dv
    # h_2: grid dimension; parallel: each h writes its own slices of dk and dv
    # tk_1: column of the step table, blocks of 1024; parallel: each tk writes its own slices of dk
    #     and dv
    # tq_2: column of the step table, blocks of 1024; ordered: carries sum_v, sum_k, sums
    # Step table: one row for every live (tk_1, tq_2), in the order of the loops.
    def add_tq_2(tk_1, tq_2, n):
        tk_1_of[n] = tk_1
        tq_2_of[n] = tq_2
        return n + 1

    def add_tk_1(tk_1, n):
        tq_2_begin = tk_1 * 1024
        tq_2_first = jax.lax.div(tq_2_begin, 1024)
        return jax.lax.fori_loop(tq_2_first, 4, lambda tq_2, n: add_tq_2(tk_1, tq_2, n), n)

    steps = jax.lax.fori_loop(0, 4, add_tk_1, jnp.int32(0))

    def step(grad_ref, q_ref, k_ref, lse_ref, v_ref, delta_ref, dk_ref, dv_ref):
        h_2 = pl.program_id(1)
        n = pl.program_id(2)
        tk_1, tq_2 = tk_1_of[n], tq_2_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tk_1_of[before] != tk_1))
        def _():
            # attention_backward.py:86: sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_k_ref[...] = jnp.zeros((1024, 128), jnp.float32)
            # attention_backward.py:87: sum_v = hl.zeros([tk, D], dtype=hl.float32)
            sum_v_ref[...] = jnp.zeros((1024, 128), jnp.float32)

        # attention_backward.py:89: g = grad[b, h, tq, :]
        g = grad_ref[...]
        # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        scores = (
            jax.lax.dot_general(
                q_ref[...],
                k_ref[...],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            * 0.08838834764831845
        )
        # attention_backward.py:91: p = hl.exp(scores - lse[b, h, tq][:, None])
        h_2_row = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == jax.lax.rem(h_2, 8)
        lse_h_2 = jnp.sum(jnp.where(h_2_row, lse_ref[...], 0.0), axis=0, keepdims=True)
        p = jnp.exp(scores - lse_h_2.T)
        # attention_backward.py:92: p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
        tk_1_index = tk_1 * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
        tq_2_index = tq_2 * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1024, 1), 0)
        p = jnp.where(tk_1_index <= tq_2_index, p, 0.0)
        # attention_backward.py:93: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
        sum_v_ref[...] += jax.lax.dot_general(
            p.astype(jnp.bfloat16),
            g,
            (((0,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # attention_backward.py:94: dp = hl.dot(g, v[b, h, tk, :].T)
        dp = jax.lax.dot_general(
            g,
            v_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # attention_backward.py:95: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
        delta_h_2 = jnp.sum(jnp.where(h_2_row, delta_ref[...], 0.0), axis=0, keepdims=True)
        ds = p * (dp - delta_h_2.T) * 0.08838834764831845
        # attention_backward.py:96: sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=sum_k)
        sum_k_ref[...] += jax.lax.dot_general(
            ds.astype(jnp.bfloat16),
            q_ref[...],
            (((0,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        )

        @pl.when((n == steps - 1) | (tk_1_of[after] != tk_1))
        def _():
            # attention_backward.py:97: dk[b, h, tk, :] = sum_k.to(dk.dtype)
            dk_ref[...] = sum_k_ref[...].astype(jnp.bfloat16)
            # attention_backward.py:98: dv[b, h, tk, :] = sum_v.to(dv.dtype)
            dv_ref[...] = sum_v_ref[...].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, 16, steps),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, n: (b_2, h_2, tq_2_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, n: (b_2, h_2, tq_2_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, n: (b_2, h_2, tk_1_of[n], 0)),
            pl.BlockSpec(
                (None, 8, 1024), lambda b_2, h_2, n: (b_2, jax.lax.div(h_2, 8), tq_2_of[n])
            ),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, n: (b_2, h_2, tk_1_of[n], 0)),
            pl.BlockSpec(
                (None, 8, 1024), lambda b_2, h_2, n: (b_2, jax.lax.div(h_2, 8), tq_2_of[n])
            ),
        ],
        out_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, n: (b_2, h_2, tk_1_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b_2, h_2, n: (b_2, h_2, tk_1_of[n], 0)),
        ],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
    )(grad, q, k, lse, v, delta, dk, dv)


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
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(grad, out)
    dq = pl.pallas_call(
        attention_backward_2_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.SMEM((16,), jnp.int32),
            pltpu.SMEM((16,), jnp.int32),
        ],
        interpret=interpret,
    )(q, k, lse, grad, v, delta)
    dk, dv = pl.pallas_call(
        attention_backward_3_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
        ],
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.SMEM((16,), jnp.int32),
            pltpu.SMEM((16,), jnp.int32),
        ],
        interpret=interpret,
    )(grad, q, k, lse, v, delta)
    return dq, dk, dv
