"""backward_kv for tpu:v6e, blocks tk=256, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def backward_kv_kernel(
    offsets, grad, out, q, k, lse, v, dk, dv, sum_v_ref, sum_k_ref, scores_ref, dp_ref, b_of, tk_of,
    tq_of,
):
    # b: column of the step table; parallel: dk and dv slices of different b are disjoint because
    #     offsets is sorted
    # tk: column of the step table, blocks of 256; parallel: each tk writes its own slices of dk
    #     and dv
    # tq: column of the step table, blocks of 256; ordered: carries sum_v, sum_k, sums
    # h: every step runs all of them; parallel: each h writes its own rows of dk and dv
    # Step table: one row for every (b, tk, tq), in the order of the loops.
    # A tk of no range gets one too, so that its outputs are defined;
    # every tk below `seen` has a row already.
    def add_tq(b, tk, tq, n):
        b_of[n] = b
        tk_of[n] = tk
        tq_of[n] = tq
        return n + 1

    def add_tk(b, tk, n):
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tk_runs = jnp.maximum(offsets[b], tk * 256) < jnp.minimum(offsets[b + 1], tk * 256 + 256)
        tq_first = jnp.where(
            (n == 0) | tk_runs, jnp.minimum(tq_first, 63), tq_of[jnp.maximum(n - 1, 0)]
        )
        tq_stop = jnp.maximum(
            jnp.where((tq_end > tq_begin) & tk_runs, jax.lax.div(tq_end + 255, 256), tq_first),
            tq_first + 1,
        )
        return jax.lax.fori_loop(tq_first, tq_stop, lambda tq, n: add_tq(b, tk, tq, n), n)

    def add_b(b, state):
        n, seen = state
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], 16384)
        tk_first = jax.lax.div(tk_begin, 256)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 255, 256), seen)
        tk_start = jnp.where((tk_end > tk_begin) & (tk_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tk_start, tk_stop, lambda tk, n: add_tk(b, tk, n), n)
        return n, jnp.maximum(seen, tk_stop)

    steps, seen = jax.lax.fori_loop(0, 32, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 64, lambda tk, n: add_tk(31, tk, n), steps)

    def step(grad_ref, out_ref, q_ref, k_ref, lse_ref, v_ref, dk_ref, dv_ref):
        n = pl.program_id(0)
        b, tk, tq = b_of[n], tk_of[n], tq_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tk_of[before] != tk))
        def _():
            # first step at this block of dk: rows of no range keep 0.0
            dk_ref[...] = jnp.zeros((16, 256, 128), jnp.bfloat16)

        @pl.when((n == 0) | (tk_of[before] != tk))
        def _():
            # first step at this block of dv: rows of no range keep 0.0
            dv_ref[...] = jnp.zeros((16, 256, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tk_of[before] != tk))
        def _():
            # jagged_attention_backward.py:87: sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_k_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)
            # jagged_attention_backward.py:88: sum_v = hl.zeros([tk, D], dtype=hl.float32)
            sum_v_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)

        # jagged_attention_backward.py:85: for h, b in hl.grid([q.shape[0], offsets.shape[0] - 1]):
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        for h in range(16):
            # jagged_attention_backward.py:90: g = grad[h, tq, :]
            g = jnp.where(tq_mask, grad_ref[h], 0.0)
            # jagged_attention_backward.py:92: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
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
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        for h in range(16):
            # jagged_attention_backward.py:90: g = grad[h, tq, :]
            g = jnp.where(tq_mask, grad_ref[h], 0.0)
            # jagged_attention_backward.py:91: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.fl...
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
            # jagged_attention_backward.py:97: sum_k = hl.dot(ds.to(q.dtype).T, q[h, tq, :], acc=...
            sum_k_ref[h] += jax.lax.dot_general(
                ds.astype(jnp.bfloat16),
                jnp.where(tq_mask, q_ref[h], 0.0),
                (((0,), (0,)), ((), ())),
                preferred_element_type=jnp.float32,
            )

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tk_of[after] != tk))
        def _():
            # jagged_attention_backward.py:85: for h, b in hl.grid([q.shape[0], offsets.shape[0] ...
            tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention_backward.py:98: dk[h, tk, :] = sum_k.to(dk.dtype)
                dk_ref[h] = jnp.where(tk_mask, sum_k_ref[h].astype(jnp.bfloat16), dk_ref[h])
                # jagged_attention_backward.py:99: dv[h, tk, :] = sum_v.to(dv.dtype)
                dv_ref[h] = jnp.where(tk_mask, sum_v_ref[h].astype(jnp.bfloat16), dv_ref[h])

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
        out_specs=[
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0)),
        ],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(grad, out, q, k, lse, v, dk, dv)


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
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 256), jnp.float32),
            pltpu.VMEM((16, 256, 256), jnp.float32),
            pltpu.SMEM((6080,), jnp.int32),
            pltpu.SMEM((6080,), jnp.int32),
            pltpu.SMEM((6080,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=45088768),
        interpret=interpret,
    )(offsets, grad, out, q, k, lse, v)
    return dk, dv
