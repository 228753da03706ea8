"""backward_q for tpu:v6e, blocks tk=256, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def backward_q_kernel(
    offsets, grad, out, q, k, lse, v, dq, acc_ref, delta_ref, scores_ref, dp_ref, b_of, tq_of,
    tk_of,
):
    # b: column of the step table; parallel: dq slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of dq
    # tk: column of the step table, blocks of 256; ordered: carries acc, a sum
    # h: every step runs all of them; parallel: each h writes its own rows of dq
    # Step table: one row for every (b, tq, tk), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_tk(b, tq, tk, n):
        b_of[n] = b
        tq_of[n] = tq
        tk_of[n] = tk
        return n + 1

    def add_tq(b, tq, n):
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], 16384)
        tk_first = jax.lax.div(tk_begin, 256)
        tq_runs = jnp.maximum(offsets[b], tq * 256) < jnp.minimum(offsets[b + 1], tq * 256 + 256)
        tk_first = jnp.where(
            (n == 0) | tq_runs, jnp.minimum(tk_first, 63), tk_of[jnp.maximum(n - 1, 0)]
        )
        tk_stop = jnp.maximum(
            jnp.where((tk_end > tk_begin) & tq_runs, jax.lax.div(tk_end + 255, 256), tk_first),
            tk_first + 1,
        )
        return jax.lax.fori_loop(tk_first, tk_stop, lambda tk, n: add_tk(b, tq, tk, n), n)

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 32, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 64, lambda tq, n: add_tq(31, tq, n), steps)

    def step(grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dq_ref):
        n = pl.program_id(0)
        b, tq, tk = b_of[n], tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of dq: rows of no range keep 0.0
            dq_ref[...] = jnp.zeros((16, 256, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
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

        # jagged_attention_backward.py:64: for h, b in hl.grid([q.shape[0], offsets.shape[0] - 1]):
        for h in range(16):
            # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
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
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
        tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
        tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask_1 = (tk_index_1 >= offsets[b]) & (tk_index_1 < offsets[b + 1])
        for h in range(16):
            # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
            h_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == h
            lse_h = jnp.sum(jnp.where(h_row, lse_ref[...], 0.0), axis=0, keepdims=True)
            p = jnp.exp(scores_ref[h] - lse_h.T)
            # jagged_attention_backward.py:73: ds = p * (dp - delta[:, None]) * D**-0.5
            ds = jnp.where(
                tk_mask,
                p * (dp_ref[h] - jnp.tile(delta_ref[h], (1, 2))) * 0.08838834764831845,
                0.0,
            )
            # jagged_attention_backward.py:74: acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=acc)
            acc_ref[h] += jnp.dot(
                ds.astype(jnp.bfloat16),
                jnp.where(tk_mask_1, k_ref[h], 0.0),
                preferred_element_type=jnp.float32,
            )

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
        def _():
            # jagged_attention_backward.py:64: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:75: dq[h, tq, :] = acc.to(dq.dtype)
                dq_ref[h] = jnp.where(tq_mask, acc_ref[h].astype(jnp.bfloat16), dq_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((16, 256, 128), lambda n: (0, tq_of[n], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tq_of[n], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tq_of[n], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0)),
            pl.BlockSpec((16, 256), lambda n: (0, tq_of[n])),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((16, 256, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(grad, out, q, k, lse, v, dq)


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
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
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
            pltpu.VMEM((16, 256, 256), jnp.float32),
            pltpu.VMEM((16, 256, 256), jnp.float32),
            pltpu.SMEM((6080,), jnp.int32),
            pltpu.SMEM((6080,), jnp.int32),
            pltpu.SMEM((6080,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, grad, out, q, k, lse, v)
    return dq
