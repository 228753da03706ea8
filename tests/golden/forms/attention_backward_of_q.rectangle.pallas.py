"""backward_q for tpu:v6e, blocks tk=128, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def backward_q_kernel(
    offsets, grad, out, q, k, lse, v, dq_in, dq, acc_ref, delta_ref, scores_ref, dp_ref,
):
    # b: column of the step table; parallel: dq slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of dq
    # tk: column of the step table, blocks of 128; ordered: carries acc, a sum
    # h: every step runs all of them; parallel: each h writes its own rows of dq
    # Rectangle of steps (b, tq, tk), 32 x 64 x 128; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 8192)
        tq_step = jax.lax.rem(jax.lax.div(n, 128), 64)
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), tq_first)
        tq_live = tq_step < tq_stop - tq_first
        tq = jnp.minimum(jnp.minimum(tq_first + tq_step, jnp.maximum(tq_stop - 1, tq_first)), 63)
        tk_step = jax.lax.rem(n, 128)
        tk_first = jax.lax.div(tq_begin, 128)
        tk_stop = jax.lax.div(tq_end + 127, 128)
        tk_step = jnp.where(tq_live, tk_step, 127)
        tk_live = tk_step < tk_stop - tk_first
        tk = jnp.minimum(jnp.minimum(tk_first + tk_step, jnp.maximum(tk_stop - 1, tk_first)), 127)
        live = tq_live & tk_live
        return live, (b, tq, tk), (tk_first, tk_stop)

    def step(grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dq_in_ref, dq_ref):
        n = pl.program_id(0)
        live, (b, tq, tk), (tk_first, tk_stop) = at(n)
        _, before, _ = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tq))
        def _():
            # first step at this block of dq: start from what the array holds
            dq_ref[...] = dq_in_ref[...]

        @pl.when(live & (tk == tk_first))
        def _():
            # jagged_attention_backward.py:68: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)
            # jagged_attention_backward.py:64: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            for h in range(16):
                # jagged_attention_backward.py:66: g = grad[h, tq, :]
                g = grad_ref[h]
                # jagged_attention_backward.py:67: delta = (g.to(hl.float32) * out[h, tq, :].to(h...
                delta_ref[h] = jnp.broadcast_to(
                    jnp.sum(
                        g.astype(jnp.float32) * out_ref[h].astype(jnp.float32),
                        axis=1,
                        keepdims=True,
                    ),
                    (256, 128),
                )

        @pl.when(live)
        def _():
            # jagged_attention_backward.py:64: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            for h in range(16):
                # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * ...
                scores_ref[h] = (
                    jax.lax.dot_general(
                        q_ref[h],
                        k_ref[h],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                # jagged_attention_backward.py:66: g = grad[h, tq, :]
                g = grad_ref[h]
                # jagged_attention_backward.py:72: dp = hl.dot(g, v[h, tk, :].T)
                dp_ref[h] = jax.lax.dot_general(
                    g,
                    v_ref[h],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            tk_index = tk * 128 + jax.lax.broadcasted_iota(jnp.int32, (1, 128), 1)
            tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
            tk_index_1 = tk * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tk_mask_1 = (tk_index_1 >= offsets[b]) & (tk_index_1 < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
                h_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h
                lse_h = jnp.sum(jnp.where(h_row, lse_ref[...], 0.0), axis=0, keepdims=True)
                p = jnp.exp(scores_ref[h] - lse_h.T)
                # jagged_attention_backward.py:73: ds = p * (dp - delta[:, None]) * D**-0.5
                ds = jnp.where(tk_mask, p * (dp_ref[h] - delta_ref[h]) * 0.08838834764831845, 0.0)
                # jagged_attention_backward.py:74: acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=...
                acc_ref[h] += jnp.dot(
                    ds.astype(jnp.bfloat16),
                    jnp.where(tk_mask_1, k_ref[h], 0.0),
                    preferred_element_type=jnp.float32,
                )

        @pl.when(live & (tk == tk_stop - 1))
        def _():
            # jagged_attention_backward.py:64: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:75: dq[h, tq, :] = acc.to(dq.dtype)
                dq_ref[h] = jnp.where(tq_mask, acc_ref[h].astype(jnp.bfloat16), dq_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(262144,),
        in_specs=[
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 256), lambda n: (0, at(n)[1][1])),
            pl.BlockSpec((16, 128, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(grad, out, q, k, lse, v, dq_in, dq)


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
    dq_in = jnp.zeros((16, 16384, 128), jnp.bfloat16)
    dq = pl.pallas_call(
        backward_q_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
        ],
        input_output_aliases={7: 0},
        interpret=interpret,
    )(offsets, grad, out, q, k, lse, v, dq_in)
    return dq
