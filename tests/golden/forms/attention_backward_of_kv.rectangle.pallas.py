"""backward_kv for tpu:v6e, blocks tk=128, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def backward_kv_kernel(
    offsets, grad, out, q, k, lse, v, dk_in, dv_in, dk, dv, sum_v_ref, sum_k_ref, scores_ref,
    dp_ref,
):
    # b: column of the step table; parallel: dk and dv slices of different b are disjoint because
    #     offsets is sorted
    # tk: column of the step table, blocks of 128; parallel: each tk writes its own slices of dk
    #     and dv
    # tq: column of the step table, blocks of 128; ordered: carries sum_v, sum_k, sums
    # h: every step runs all of them; parallel: each h writes its own rows of dk and dv
    # Rectangle of steps (b, tk, tq), 32 x 128 x 128; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 16384)
        tk_step = jax.lax.rem(jax.lax.div(n, 128), 128)
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], 16384)
        tk_first = jax.lax.div(tk_begin, 128)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 127, 128), tk_first)
        tk_live = tk_step < tk_stop - tk_first
        tk = jnp.minimum(jnp.minimum(tk_first + tk_step, jnp.maximum(tk_stop - 1, tk_first)), 127)
        tq_step = jax.lax.rem(n, 128)
        tq_first = jax.lax.div(tk_begin, 128)
        tq_stop = jax.lax.div(tk_end + 127, 128)
        tq_step = jnp.where(tk_live, tq_step, 127)
        tq_live = tq_step < tq_stop - tq_first
        tq = jnp.minimum(jnp.minimum(tq_first + tq_step, jnp.maximum(tq_stop - 1, tq_first)), 127)
        live = tk_live & tq_live
        return live, (b, tk, tq), (tq_first, tq_stop)

    def step(grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dk_in_ref, dv_in_ref, dk_ref, dv_ref):
        n = pl.program_id(0)
        live, (b, tk, tq), (tq_first, tq_stop) = at(n)
        _, before, _ = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tk))
        def _():
            # first step at this block of dk: start from what the array holds
            dk_ref[...] = dk_in_ref[...]

        @pl.when((n == 0) | (before[1] != tk))
        def _():
            # first step at this block of dv: start from what the array holds
            dv_ref[...] = dv_in_ref[...]

        @pl.when(live & (tq == tq_first))
        def _():
            # jagged_attention_backward.py:87: sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_k_ref[...] = jnp.zeros((16, 128, 128), jnp.float32)
            # jagged_attention_backward.py:88: sum_v = hl.zeros([tk, D], dtype=hl.float32)
            sum_v_ref[...] = jnp.zeros((16, 128, 128), jnp.float32)

        @pl.when(live)
        def _():
            # jagged_attention_backward.py:85: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:90: g = grad[h, tq, :]
                g = jnp.where(tq_mask, grad_ref[h], 0.0)
                # jagged_attention_backward.py:92: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * ...
                scores_ref[h] = (
                    jax.lax.dot_general(
                        q_ref[h],
                        k_ref[h],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                # jagged_attention_backward.py:95: dp = hl.dot(g, v[h, tk, :].T)
                dp_ref[h] = jax.lax.dot_general(
                    g,
                    v_ref[h],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:90: g = grad[h, tq, :]
                g = jnp.where(tq_mask, grad_ref[h], 0.0)
                # jagged_attention_backward.py:91: delta = (g.to(hl.float32) * out[h, tq, :].to(h...
                delta = jnp.sum(
                    g.astype(jnp.float32) * out_ref[h].astype(jnp.float32),
                    axis=1,
                    keepdims=True,
                )
                # jagged_attention_backward.py:93: p = hl.exp(scores - lse[h, tq][:, None])
                h_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h
                lse_h = jnp.sum(jnp.where(h_row, lse_ref[...], 0.0), axis=0, keepdims=True)
                p = jnp.where(tq_mask, jnp.exp(scores_ref[h] - lse_h.T), 0.0)
                # jagged_attention_backward.py:94: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
                sum_v_ref[h] += jax.lax.dot_general(
                    p.astype(jnp.bfloat16),
                    g,
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                # jagged_attention_backward.py:96: ds = p * (dp - delta[:, None]) * D**-0.5
                ds = jnp.where(tq_mask, p * (dp_ref[h] - delta) * 0.08838834764831845, 0.0)
                # jagged_attention_backward.py:97: sum_k = hl.dot(ds.to(q.dtype).T, q[h, tq, :], ...
                sum_k_ref[h] += jax.lax.dot_general(
                    ds.astype(jnp.bfloat16),
                    jnp.where(tq_mask, q_ref[h], 0.0),
                    (((0,), (0,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )

        @pl.when(live & (tq == tq_stop - 1))
        def _():
            # jagged_attention_backward.py:85: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            tk_index = tk * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:98: dk[h, tk, :] = sum_k.to(dk.dtype)
                dk_ref[h] = jnp.where(tk_mask, sum_k_ref[h].astype(jnp.bfloat16), dk_ref[h])
                # jagged_attention_backward.py:99: dv[h, tk, :] = sum_v.to(dv.dtype)
                dv_ref[h] = jnp.where(tk_mask, sum_v_ref[h].astype(jnp.bfloat16), dv_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(524288,),
        in_specs=[
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 128), lambda n: (0, at(n)[1][2])),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][1], 0)),
        ],
        out_specs=[
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][1], 0)),
        ],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(grad, out, q, k, lse, v, dk_in, dv_in, dk, dv)


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
    dk_in = jnp.zeros((16, 16384, 128), jnp.bfloat16)
    dv_in = jnp.zeros((16, 16384, 128), jnp.bfloat16)
    dk, dv = pl.pallas_call(
        backward_kv_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        ],
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[
            pltpu.VMEM((16, 128, 128), jnp.float32),
            pltpu.VMEM((16, 128, 128), jnp.float32),
            pltpu.VMEM((16, 128, 128), jnp.float32),
            pltpu.VMEM((16, 128, 128), jnp.float32),
        ],
        input_output_aliases={7: 0, 8: 1},
        interpret=interpret,
    )(offsets, grad, out, q, k, lse, v, dk_in, dv_in)
    return dk, dv
