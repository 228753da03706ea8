"""flash_attention for tpu:v6e, blocks tk=1024, tq=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def flash_attention_kernel(k, q, v, out, total_ref, acc_ref, m_ref, tq_of, tk_of):
    # b: grid dimension; parallel: each b writes its own rows of out
    # h: grid dimension; parallel: each h writes its own slices of out
    # tq: column of the step table, blocks of 1024; parallel: each tq writes its own slices of out
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

    def step(k_ref, q_ref, v_ref, out_ref):
        n = pl.program_id(2)
        tq, tk = tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
            acc_ref[...] = jnp.zeros((1024, 128), jnp.float32)
            # flash_attention.py:37: m = torch.full([tq], -math.inf, dtype=torch.float32)
            m_ref[...] = jnp.full((1024, 128), -jnp.inf, jnp.float32)
            # flash_attention.py:38: total = torch.zeros([tq], dtype=torch.float32)
            total_ref[...] = jnp.zeros((1024, 128), jnp.float32)

        # whole tiles, of which no lane is masked
        @pl.when(tk * 1024 + 1023 <= tq * 1024)
        def _():
            # flash_attention.py:41: keys = k[b, h, tk, :]
            keys = k_ref[...]
            # flash_attention.py:36: for tq in hl.tile(T):
            def tq_piece_products(tq_piece):
                # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * ...
                scores = (
                    jax.lax.dot_general(
                        q_ref[pl.ds(tq_piece * 256, 256)],
                        keys,
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.12751743082459868
                )
                return scores

            tq_piece_ahead = tq_piece_products(0)
            for tq_piece in range(4):
                scores = tq_piece_ahead
                if tq_piece < 3:  # the units that multiply are busy meanwhile
                    tq_piece_ahead = tq_piece_products(tq_piece + 1)
                m = m_ref[pl.ds(tq_piece * 256, 256)]
                # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # flash_attention.py:47: alpha = torch.exp(m - m_new)
                alpha = jnp.exp2(m - m_new)
                # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
                p = jnp.exp2(scores - jnp.tile(m_new, (1, 8)))
                # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
                total_ref[pl.ds(tq_piece * 256, 256)] = (
                    total_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.sum(p, axis=1, keepdims=True)
                )
                # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v...
                acc_ref[pl.ds(tq_piece * 256, 256)] = (
                    acc_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.dot(
                        p.astype(jnp.bfloat16),
                        v_ref[...],
                        preferred_element_type=jnp.float32,
                    )
                )
                # flash_attention.py:51: m = m_new
                m_ref[pl.ds(tq_piece * 256, 256)] = m_new

        # the tiles that a mask cuts
        @pl.when(tk * 1024 + 1023 > tq * 1024)
        def _():
            # flash_attention.py:41: keys = k[b, h, tk, :]
            keys = k_ref[...]
            # flash_attention.py:36: for tq in hl.tile(T):
            tk_index = tk * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1, 1024), 1)
            def tq_piece_products(tq_piece):
                # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * ...
                scores = (
                    jax.lax.dot_general(
                        q_ref[pl.ds(tq_piece * 256, 256)],
                        keys,
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.12751743082459868
                )
                return scores

            tq_piece_ahead = tq_piece_products(0)
            for tq_piece in range(4):
                scores = tq_piece_ahead
                if tq_piece < 3:  # the units that multiply are busy meanwhile
                    tq_piece_ahead = tq_piece_products(tq_piece + 1)
                # flash_attention.py:44: seen = tq.index[:, None] >= tk.index[None, :]
                tq_piece_index = (
                    tq * 1024 + tq_piece * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
                )
                seen = tq_piece_index >= tk_index
                # flash_attention.py:45: scores = torch.where(seen, scores, -math.inf)
                scores = jnp.where(seen, scores, -jnp.inf)
                m = m_ref[pl.ds(tq_piece * 256, 256)]
                # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # flash_attention.py:47: alpha = torch.exp(m - m_new)
                alpha = jnp.exp2(m - m_new)
                # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
                p = jnp.exp2(scores - jnp.tile(m_new, (1, 8)))
                # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
                total_ref[pl.ds(tq_piece * 256, 256)] = (
                    total_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.sum(p, axis=1, keepdims=True)
                )
                # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v...
                acc_ref[pl.ds(tq_piece * 256, 256)] = (
                    acc_ref[pl.ds(tq_piece * 256, 256)] * alpha
                    + jnp.dot(
                        p.astype(jnp.bfloat16),
                        v_ref[...],
                        preferred_element_type=jnp.float32,
                    )
                )
                # flash_attention.py:51: m = m_new
                m_ref[pl.ds(tq_piece * 256, 256)] = m_new

        @pl.when((n == steps - 1) | (tq_of[after] != tq))
        def _():
            # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
            out_ref[...] = (acc_ref[...] / total_ref[...]).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(8, 16, steps),
        in_specs=[
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tk_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tq_of[n], 0)),
            pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tk_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((None, None, 1024, 128), lambda b, h, n: (b, h, tq_of[n], 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
    )(k, q, v, out)


def flash_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out = softmax(q k^T / sqrt(D)) v; with `causal`, query i sees keys 0 to i."""
    out = pl.pallas_call(
        flash_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16, 4096, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.VMEM((1024, 128), jnp.float32),
            pltpu.SMEM((16,), jnp.int32),
            pltpu.SMEM((16,), jnp.int32),
        ],
        interpret=interpret,
    )(k, q, v)
    return out
