"""attention_with_lse for tpu:v6e, blocks tk=1024, tq=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def attention_with_lse_kernel(q, k, v, out, lse_rows, total_ref, acc_ref, m_ref, tq_of, tk_of):
    # b: grid dimension; parallel: each b writes its own rows of out and lse
    # h: grid dimension; parallel: each h writes its own slices of out and lse
    # tq: column of the step table, blocks of 1024; parallel: each tq writes its own slices of out
    #     and lse
    # tk: column of the step table, blocks of 1024; ordered: carries total, acc, m
    # tq_piece: loop inside the step, blocks of 256; parallel: its rows do not meet; products of
    #     the next piece come before the rest of one
    # Step table: one row for every live (tq, tk), in the order of the loops.
    def add_tk(tq, tk, n):
        tq_of[n] = tq
        tk_of[n] = tk
        return n + 1

    def add_tq(tq, n):
        tk_end = tq * 1024 + 1024
        tk_stop = jax.lax.div(tk_end + 1023, 1024)
        return jax.lax.fori_loop(0, tk_stop, lambda tk, n: add_tk(tq, tk, n), n)

    steps = jax.lax.fori_loop(0, 4, add_tq, jnp.int32(0))

    def step(q_ref, k_ref, v_ref, out_ref, lse_ref):
        n = pl.program_id(2)
        tq, tk = tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # attention_backward.py:40: acc = hl.zeros([tq, D], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((1024, 128), jnp.float32)
            # attention_backward.py:38: m = hl.full([tq], -math.inf, dtype=hl.float32)
            m_ref[...] = jnp.full((1024, 128), -jnp.inf, jnp.float32)
            # attention_backward.py:39: total = hl.zeros([tq], dtype=hl.float32)
            total_ref[...] = jnp.zeros((1024, 128), jnp.float32)

        # whole tiles, of which no lane is masked
        @pl.when(tk * 1024 + 1023 <= tq * 1024)
        def _():
            # attention_backward.py:37: for tq in hl.tile(T):
            def tq_piece_products(tq_piece):
                # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D...
                scores = (
                    jax.lax.dot_general(
                        q_ref[pl.ds(tq_piece * 256, 256)],
                        k_ref[...],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                return scores

            tq_piece_ahead = tq_piece_products(0)
            for tq_piece in range(4):
                scores = tq_piece_ahead
                if tq_piece < 3:  # the units that multiply are busy meanwhile
                    tq_piece_ahead = tq_piece_products(tq_piece + 1)
                m = m_ref[pl.ds(tq_piece * 256, 256)]
                # attention_backward.py:44: m_new = hl.maximum(m, scores.amax(-1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # attention_backward.py:45: alpha = hl.exp(m - m_new)
                alpha = jnp.exp(m - m_new)
                # attention_backward.py:46: p = hl.exp(scores - m_new[:, None])
                p = jnp.exp(scores - jnp.tile(m_new, (1, 8)))
                # attention_backward.py:47: total = total * alpha + p.sum(-1)
                total_ref[pl.ds(tq_piece * 256, 256)] = (
                    total_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.sum(p, axis=1, keepdims=True)
                )
                # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc *...
                acc_ref[pl.ds(tq_piece * 256, 256)] = (
                    acc_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.dot(
                        p.astype(jnp.bfloat16),
                        v_ref[...],
                        preferred_element_type=jnp.float32,
                    )
                )
                # attention_backward.py:49: m = m_new
                m_ref[pl.ds(tq_piece * 256, 256)] = m_new

        # the tiles that a mask cuts
        @pl.when(tk * 1024 + 1023 > tq * 1024)
        def _():
            # attention_backward.py:37: for tq in hl.tile(T):
            tk_index = tk * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
            def tq_piece_products(tq_piece):
                # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D...
                scores = (
                    jax.lax.dot_general(
                        q_ref[pl.ds(tq_piece * 256, 256)],
                        k_ref[...],
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.08838834764831845
                )
                return scores

            tq_piece_ahead = tq_piece_products(0)
            for tq_piece in range(4):
                scores = tq_piece_ahead
                if tq_piece < 3:  # the units that multiply are busy meanwhile
                    tq_piece_ahead = tq_piece_products(tq_piece + 1)
                # attention_backward.py:43: scores = hl.where(tk.index[None, :] <= tq.index[:, No...
                tq_piece_index = (
                    tq * 1024 + tq_piece * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
                )
                scores = jnp.where(tk_index <= tq_piece_index, scores, -jnp.inf)
                m = m_ref[pl.ds(tq_piece * 256, 256)]
                # attention_backward.py:44: m_new = hl.maximum(m, scores.amax(-1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # attention_backward.py:45: alpha = hl.exp(m - m_new)
                alpha = jnp.exp(m - m_new)
                # attention_backward.py:46: p = hl.exp(scores - m_new[:, None])
                p = jnp.exp(scores - jnp.tile(m_new, (1, 8)))
                # attention_backward.py:47: total = total * alpha + p.sum(-1)
                total_ref[pl.ds(tq_piece * 256, 256)] = (
                    total_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.sum(p, axis=1, keepdims=True)
                )
                # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc *...
                acc_ref[pl.ds(tq_piece * 256, 256)] = (
                    acc_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.dot(
                        p.astype(jnp.bfloat16),
                        v_ref[...],
                        preferred_element_type=jnp.float32,
                    )
                )
                # attention_backward.py:49: m = m_new
                m_ref[pl.ds(tq_piece * 256, 256)] = m_new

        @pl.when((n == steps - 1) | (tq_of[after] != tq))
        def _():
            total = total_ref[...]
            # attention_backward.py:50: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
            out_ref[...] = (acc_ref[...] / total).astype(jnp.bfloat16)
            # attention_backward.py:51: lse[b, h, tq] = m + hl.log(total)
            lse_ref[...] = (m_ref[...] + jnp.log(total))[:, :1].T

    pltpu.emit_pipeline(
        step,
        grid=(4, 16, steps),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tq_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tk_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tk_of[n], 0)),
        ],
        out_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tq_of[n], 0)),
            pl.BlockSpec((None, None, 1, 1024), lambda b, h, n: (b, h, 0, tq_of[n])),
        ],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
    )(q, k, v, out, lse_rows)


def attention_with_lse(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Causal attention: q, k, v [B, H, T, D]; out [B, H, T, D] in v's dtype, lse [B, H, T]."""
    out, lse_rows = pl.pallas_call(
        attention_with_lse_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((4, 16, 1, 4096), jnp.float32),
        ],
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.SMEM((16,), jnp.int32),
            pltpu.SMEM((16,), jnp.int32),
        ],
        interpret=interpret,
    )(q, k, v)
    lse = lse_rows.reshape((4, 16, 4096))
    return out, lse
