"""attention_backward for tpu:v6e, blocks tk=512, tk_1=512, tq=512, tq_1=512, tq_2=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def attention_backward_1_kernel(grad_ref, out_ref, delta_ref):
    # b: grid dimension; parallel: each b writes its own rows of delta
    # tq: grid dimension, blocks of 512; parallel: each tq writes its own slices of delta
    # h: every step runs all of them; parallel: each h writes its own slices of delta
    # attention_backward.py:69: for b, h in hl.grid([B, H]):
    for h in range(16):
        # attention_backward.py:71: products = grad[b, h, tq, :].to(hl.float32) * out[b, h, tq, :...
        products = grad_ref[h].astype(jnp.float32) * out_ref[h].astype(jnp.float32)
        # attention_backward.py:72: delta[b, h, tq] = products.sum(-1)
        h_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h
        delta_ref[...] = jnp.where(
            h_row, jnp.sum(products, axis=1, keepdims=True).T, delta_ref[...]
        )


def attention_backward_2_kernel(q, k, lse, grad, v, delta, dq, acc_ref, tq_1_of, tk_of):
    # b_1: grid dimension; parallel: each b writes its own rows of dq
    # tq_1: column of the step table, blocks of 512; parallel: each tq writes its own slices of dq
    # tk: column of the step table, blocks of 512; ordered: carries acc, a sum
    # h_1: every step runs all of them; parallel: each h writes its own slices of dq
    # Step table: one row for every live (tq_1, tk), in the order of the loops.
    def add_tk(tq_1, tk, n):
        tq_1_of[n] = tq_1
        tk_of[n] = tk
        return n + 1

    def add_tq_1(tq_1, n):
        tk_end = tq_1 * 512 + 512
        tk_stop = jax.lax.div(tk_end + 511, 512)
        return jax.lax.fori_loop(0, tk_stop, lambda tk, n: add_tk(tq_1, tk, n), n)

    steps = jax.lax.fori_loop(0, 8, add_tq_1, jnp.int32(0))

    def step(q_ref, k_ref, lse_ref, grad_ref, v_ref, delta_ref, dq_ref):
        n = pl.program_id(1)
        tq_1, tk = tq_1_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_1_of[before] != tq_1))
        def _():
            # attention_backward.py:75: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((16, 512, 128), jnp.float32)

        # whole tiles, of which no lane is masked
        @pl.when(tk * 512 + 511 <= tq_1 * 512)
        def _():
            # attention_backward.py:73: for b, h in hl.grid([B, H]):
            for h_1 in range(16):
                # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D...
                scores = (
                    jax.lax.dot_general(
                        q_ref[h_1],
                        k_ref[h_1],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                # attention_backward.py:78: p = hl.exp(scores - lse[b, h, tq][:, None])
                h_1_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h_1
                lse_h_1 = jnp.sum(jnp.where(h_1_row, lse_ref[...], 0.0), axis=0, keepdims=True)
                p = jnp.exp(scores - lse_h_1.T)
                # attention_backward.py:80: dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
                dp = jax.lax.dot_general(
                    grad_ref[h_1],
                    v_ref[h_1],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # attention_backward.py:81: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                delta_h_1 = jnp.sum(jnp.where(h_1_row, delta_ref[...], 0.0), axis=0, keepdims=True)
                ds = p * (dp - delta_h_1.T) * 0.08838834764831845
                # attention_backward.py:82: acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
                acc_ref[h_1] += jnp.dot(
                    ds.astype(jnp.bfloat16),
                    k_ref[h_1],
                    preferred_element_type=jnp.float32,
                )

        # the tiles that a mask cuts
        @pl.when(tk * 512 + 511 > tq_1 * 512)
        def _():
            # attention_backward.py:73: for b, h in hl.grid([B, H]):
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tq_1_index = tq_1 * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            for h_1 in range(16):
                # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D...
                scores = (
                    jax.lax.dot_general(
                        q_ref[h_1],
                        k_ref[h_1],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                # attention_backward.py:78: p = hl.exp(scores - lse[b, h, tq][:, None])
                h_1_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h_1
                lse_h_1 = jnp.sum(jnp.where(h_1_row, lse_ref[...], 0.0), axis=0, keepdims=True)
                p = jnp.exp(scores - lse_h_1.T)
                # attention_backward.py:79: p = hl.where(tk.index[None, :] <= tq.index[:, None], ...
                p = jnp.where(tk_index <= tq_1_index, p, 0.0)
                # attention_backward.py:80: dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
                dp = jax.lax.dot_general(
                    grad_ref[h_1],
                    v_ref[h_1],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # attention_backward.py:81: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                delta_h_1 = jnp.sum(jnp.where(h_1_row, delta_ref[...], 0.0), axis=0, keepdims=True)
                ds = p * (dp - delta_h_1.T) * 0.08838834764831845
                # attention_backward.py:82: acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
                acc_ref[h_1] += jnp.dot(
                    ds.astype(jnp.bfloat16),
                    k_ref[h_1],
                    preferred_element_type=jnp.float32,
                )

        @pl.when((n == steps - 1) | (tq_1_of[after] != tq_1))
        def _():
            # attention_backward.py:73: for b, h in hl.grid([B, H]):
            for h_1 in range(16):
                # attention_backward.py:83: dq[b, h, tq, :] = acc.to(dq.dtype)
                dq_ref[h_1] = acc_ref[h_1].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, steps),
        in_specs=[
            pl.BlockSpec((None, 16, 512, 128), lambda b_1, n: (b_1, 0, tq_1_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b_1, n: (b_1, 0, tk_of[n], 0)),
            pl.BlockSpec((None, 16, 512), lambda b_1, n: (b_1, 0, tq_1_of[n])),
            pl.BlockSpec((None, 16, 512, 128), lambda b_1, n: (b_1, 0, tq_1_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b_1, n: (b_1, 0, tk_of[n], 0)),
            pl.BlockSpec((None, 16, 512), lambda b_1, n: (b_1, 0, tq_1_of[n])),
        ],
        out_specs=[pl.BlockSpec((None, 16, 512, 128), lambda b_1, n: (b_1, 0, tq_1_of[n], 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(q, k, lse, grad, v, delta, dq)


def attention_backward_3_kernel(
    grad, q, k, lse, v, delta, dk, dv, sum_v_ref, sum_k_ref, tk_1_of, tq_2_of,
):
    # b_2: grid dimension; parallel: each b writes its own rows of dk and dv
    # tk_1: column of the step table, blocks of 512; parallel: each tk writes its own slices of dk
    #     and dv
    # tq_2: column of the step table, blocks of 512; ordered: carries sum_v, sum_k, sums
    # h_2: every step runs all of them; parallel: each h writes its own slices of dk and dv
    # Step table: one row for every live (tk_1, tq_2), in the order of the loops.
    def add_tq_2(tk_1, tq_2, n):
        tk_1_of[n] = tk_1
        tq_2_of[n] = tq_2
        return n + 1

    def add_tk_1(tk_1, n):
        tq_2_begin = tk_1 * 512
        tq_2_first = jax.lax.div(tq_2_begin, 512)
        return jax.lax.fori_loop(tq_2_first, 8, lambda tq_2, n: add_tq_2(tk_1, tq_2, n), n)

    steps = jax.lax.fori_loop(0, 8, add_tk_1, jnp.int32(0))

    def step(grad_ref, q_ref, k_ref, lse_ref, v_ref, delta_ref, dk_ref, dv_ref):
        n = pl.program_id(1)
        tk_1, tq_2 = tk_1_of[n], tq_2_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tk_1_of[before] != tk_1))
        def _():
            # attention_backward.py:86: sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_k_ref[...] = jnp.zeros((16, 512, 128), jnp.float32)
            # attention_backward.py:87: sum_v = hl.zeros([tk, D], dtype=hl.float32)
            sum_v_ref[...] = jnp.zeros((16, 512, 128), jnp.float32)

        # whole tiles, of which no lane is masked
        @pl.when(tk_1 * 512 + 511 <= tq_2 * 512)
        def _():
            # attention_backward.py:84: for b, h in hl.grid([B, H]):
            for h_2 in range(16):
                # attention_backward.py:89: g = grad[b, h, tq, :]
                g = grad_ref[h_2]
                # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D...
                scores = (
                    jax.lax.dot_general(
                        q_ref[h_2],
                        k_ref[h_2],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                # attention_backward.py:91: p = hl.exp(scores - lse[b, h, tq][:, None])
                h_2_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h_2
                lse_h_2 = jnp.sum(jnp.where(h_2_row, lse_ref[...], 0.0), axis=0, keepdims=True)
                p = jnp.exp(scores - lse_h_2.T)
                # attention_backward.py:93: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
                sum_v_ref[h_2] += jax.lax.dot_general(
                    p.astype(jnp.bfloat16),
                    g,
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # attention_backward.py:94: dp = hl.dot(g, v[b, h, tk, :].T)
                dp = jax.lax.dot_general(
                    g,
                    v_ref[h_2],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # attention_backward.py:95: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                delta_h_2 = jnp.sum(jnp.where(h_2_row, delta_ref[...], 0.0), axis=0, keepdims=True)
                ds = p * (dp - delta_h_2.T) * 0.08838834764831845
                # attention_backward.py:96: sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=...
                sum_k_ref[h_2] += jax.lax.dot_general(
                    ds.astype(jnp.bfloat16),
                    q_ref[h_2],
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )

        # the tiles that a mask cuts
        @pl.when(tk_1 * 512 + 511 > tq_2 * 512)
        def _():
            # attention_backward.py:84: for b, h in hl.grid([B, H]):
            tk_1_index = tk_1 * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tq_2_index = tq_2 * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            for h_2 in range(16):
                # attention_backward.py:89: g = grad[b, h, tq, :]
                g = grad_ref[h_2]
                # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D...
                scores = (
                    jax.lax.dot_general(
                        q_ref[h_2],
                        k_ref[h_2],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                # attention_backward.py:91: p = hl.exp(scores - lse[b, h, tq][:, None])
                h_2_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h_2
                lse_h_2 = jnp.sum(jnp.where(h_2_row, lse_ref[...], 0.0), axis=0, keepdims=True)
                p = jnp.exp(scores - lse_h_2.T)
                # attention_backward.py:92: p = hl.where(tk.index[None, :] <= tq.index[:, None], ...
                p = jnp.where(tk_1_index <= tq_2_index, p, 0.0)
                # attention_backward.py:93: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
                sum_v_ref[h_2] += jax.lax.dot_general(
                    p.astype(jnp.bfloat16),
                    g,
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # attention_backward.py:94: dp = hl.dot(g, v[b, h, tk, :].T)
                dp = jax.lax.dot_general(
                    g,
                    v_ref[h_2],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # attention_backward.py:95: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                delta_h_2 = jnp.sum(jnp.where(h_2_row, delta_ref[...], 0.0), axis=0, keepdims=True)
                ds = p * (dp - delta_h_2.T) * 0.08838834764831845
                # attention_backward.py:96: sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=...
                sum_k_ref[h_2] += jax.lax.dot_general(
                    ds.astype(jnp.bfloat16),
                    q_ref[h_2],
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )

        @pl.when((n == steps - 1) | (tk_1_of[after] != tk_1))
        def _():
            # attention_backward.py:84: for b, h in hl.grid([B, H]):
            for h_2 in range(16):
                # attention_backward.py:97: dk[b, h, tk, :] = sum_k.to(dk.dtype)
                dk_ref[h_2] = sum_k_ref[h_2].astype(jnp.bfloat16)
                # attention_backward.py:98: dv[b, h, tk, :] = sum_v.to(dv.dtype)
                dv_ref[h_2] = sum_v_ref[h_2].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, steps),
        in_specs=[
            pl.BlockSpec((None, 16, 512, 128), lambda b_2, n: (b_2, 0, tq_2_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b_2, n: (b_2, 0, tq_2_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b_2, n: (b_2, 0, tk_1_of[n], 0)),
            pl.BlockSpec((None, 16, 512), lambda b_2, n: (b_2, 0, tq_2_of[n])),
            pl.BlockSpec((None, 16, 512, 128), lambda b_2, n: (b_2, 0, tk_1_of[n], 0)),
            pl.BlockSpec((None, 16, 512), lambda b_2, n: (b_2, 0, tq_2_of[n])),
        ],
        out_specs=[
            pl.BlockSpec((None, 16, 512, 128), lambda b_2, n: (b_2, 0, tk_1_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b_2, n: (b_2, 0, tk_1_of[n], 0)),
        ],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
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
        grid=(4, 8),
        in_specs=[
            pl.BlockSpec((None, 16, 512, 128), lambda b, tq: (b, 0, tq, 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b, tq: (b, 0, tq, 0)),
        ],
        out_specs=pl.BlockSpec((None, 16, 512), lambda b, tq: (b, 0, tq)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
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
            pltpu.VMEM((16, 512, 128), jnp.float32),
            pltpu.SMEM((64,), jnp.int32),
            pltpu.SMEM((64,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=63963136),
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
            pltpu.VMEM((16, 512, 128), jnp.float32),
            pltpu.VMEM((16, 512, 128), jnp.float32),
            pltpu.SMEM((64,), jnp.int32),
            pltpu.SMEM((64,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=74448896),
        interpret=interpret,
    )(grad, q, k, lse, v, delta)
    return dq, dk, dv
