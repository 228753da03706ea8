"""jagged_attention for tpu:v6e, blocks tk=256, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_attention_kernel(
    offsets, q, k, v, out, total_ref, acc_ref, m_ref, scores_ref, b_of, tq_of, tk_of,
):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 256; ordered: carries total, acc, m
    # h: every step runs all of them; parallel: each h writes its own rows of out
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

    def step(q_ref, k_ref, v_ref, out_ref):
        n = pl.program_id(0)
        b, tq, tk = b_of[n], tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((16, 256, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
        def _():
            # jagged_attention.py:78: acc = hl.zeros([tq, v.shape[2]], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)
            # jagged_attention.py:76: m = hl.full([tq], -math.inf, dtype=hl.float32)
            m_ref[...] = jnp.full((16, 256, 128), -jnp.inf, jnp.float32)
            # jagged_attention.py:77: total = hl.zeros([tq], dtype=hl.float32)
            total_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)

        # jagged_attention.py:73: for h, b in hl.grid([H, B]):
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
        tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
        for h in range(16):
            # jagged_attention.py:81: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * scale
            scores_ref[h] = jnp.where(
                tk_mask,
                jax.lax.dot_general(
                    q_ref[h],
                    k_ref[h],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
                * 0.12751743082459868,
                -jnp.inf,
            )
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask = (tk_index >= offsets[b]) & (tk_index < offsets[b + 1])
        for h in range(16):
            m = m_ref[h]
            scores = scores_ref[h]
            # jagged_attention.py:85: m_new = hl.maximum(m, scores.amax(-1))
            m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
            # jagged_attention.py:86: alpha = hl.exp(m - m_new)
            alpha = jnp.exp2(m - m_new)
            # jagged_attention.py:87: p = hl.exp(scores - m_new[:, None])
            p = jnp.exp2(scores - jnp.tile(m_new, (1, 2)))
            # jagged_attention.py:88: total = total * alpha + p.sum(-1)
            total_ref[h] = total_ref[h] * alpha + jnp.sum(p, axis=1, keepdims=True)
            # jagged_attention.py:89: acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:,...
            acc_ref[h] = (
                acc_ref[h] * alpha
                + jnp.dot(
                    p.astype(jnp.bfloat16),
                    jnp.where(tk_mask, v_ref[h], 0.0),
                    preferred_element_type=jnp.float32,
                )
            )
            # jagged_attention.py:90: m = m_new
            m_ref[h] = m_new

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
        def _():
            # jagged_attention.py:73: for h, b in hl.grid([H, B]):
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # jagged_attention.py:91: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
                out_ref[h] = jnp.where(
                    tq_mask, (acc_ref[h] / total_ref[h]).astype(jnp.bfloat16), out_ref[h]
                )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((16, 256, 128), lambda n: (0, tq_of[n], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((16, 256, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out)


def jagged_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = the mean of v over r's sequence, weighted by softmax(q[:, r] k^T / sqrt(D))."""
    out = pl.pallas_call(
        jagged_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 128), jnp.float32),
            pltpu.VMEM((16, 256, 256), jnp.float32),
            pltpu.SMEM((6080,), jnp.int32),
            pltpu.SMEM((6080,), jnp.int32),
            pltpu.SMEM((6080,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, q, k, v)
    return out
