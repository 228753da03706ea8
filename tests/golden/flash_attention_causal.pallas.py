"""flash_attention for tpu:v6e, blocks tk=512, tq=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def flash_attention_kernel(k, q, v, out, total_ref, acc_ref, m_ref, tq_of, tk_of):
    # b: grid dimension; parallel: each b writes its own rows of out
    # tq: column of the step table, blocks of 512; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 512; ordered: carries total, acc, m
    # h: every step runs all of them; parallel: each h writes its own slices of out
    # Step table: one row for every live (tq, tk), in the order of the loops.
    def add_tk(tq, tk, n):
        tq_of[n] = tq
        tk_of[n] = tk
        return n + 1

    def add_tq(tq, n):
        tk_end = tq * 512 + 512
        tk_stop = jax.lax.div(tk_end + 511, 512)
        return jax.lax.fori_loop(0, tk_stop, lambda tk, n: add_tk(tq, tk, n), n)

    steps = jax.lax.fori_loop(0, 8, add_tq, jnp.int32(0))

    def step(k_ref, q_ref, v_ref, out_ref):
        n = pl.program_id(1)
        tq, tk = tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
            acc_ref[...] = jnp.zeros((16, 512, 128), jnp.float32)
            # flash_attention.py:37: m = torch.full([tq], -math.inf, dtype=torch.float32)
            m_ref[...] = jnp.full((16, 512, 128), -jnp.inf, jnp.float32)
            # flash_attention.py:38: total = torch.zeros([tq], dtype=torch.float32)
            total_ref[...] = jnp.zeros((16, 512, 128), jnp.float32)

        # whole tiles, of which no lane is masked
        @pl.when(tk * 512 + 511 <= tq * 512)
        def _():
            # flash_attention.py:35: for b, h in hl.grid([B, H]):
            for h in range(16):
                # flash_attention.py:41: keys = k[b, h, tk, :]
                keys = k_ref[h]
                # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * ...
                scores = (
                    jax.lax.dot_general(
                        q_ref[h],
                        keys,
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.12751743082459868
                )
                m = m_ref[h]
                # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # flash_attention.py:47: alpha = torch.exp(m - m_new)
                alpha = jnp.exp2(m - m_new)
                # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
                p = jnp.exp2(scores - jnp.tile(m_new, (1, 4)))
                # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
                total_ref[h] = total_ref[h] * alpha + jnp.sum(p, axis=1, keepdims=True)
                # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v...
                acc_ref[h] = (
                    acc_ref[h] * alpha
                    + jnp.dot(p.astype(jnp.bfloat16), v_ref[h], preferred_element_type=jnp.float32)
                )
                # flash_attention.py:51: m = m_new
                m_ref[h] = m_new

        # the tiles that a mask cuts
        @pl.when(tk * 512 + 511 > tq * 512)
        def _():
            # flash_attention.py:44: seen = tq.index[:, None] >= tk.index[None, :]
            tq_index = tq * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            seen = tq_index >= tk_index
            # flash_attention.py:35: for b, h in hl.grid([B, H]):
            for h in range(16):
                # flash_attention.py:41: keys = k[b, h, tk, :]
                keys = k_ref[h]
                # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * ...
                scores = (
                    jax.lax.dot_general(
                        q_ref[h],
                        keys,
                        (((1,), (1,)), ((), ())),
                        preferred_element_type=jnp.float32,
                    )
                    * 0.12751743082459868
                )
                # flash_attention.py:45: scores = torch.where(seen, scores, -math.inf)
                scores = jnp.where(seen, scores, -jnp.inf)
                m = m_ref[h]
                # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
                m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
                # flash_attention.py:47: alpha = torch.exp(m - m_new)
                alpha = jnp.exp2(m - m_new)
                # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
                p = jnp.exp2(scores - jnp.tile(m_new, (1, 4)))
                # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
                total_ref[h] = total_ref[h] * alpha + jnp.sum(p, axis=1, keepdims=True)
                # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v...
                acc_ref[h] = (
                    acc_ref[h] * alpha
                    + jnp.dot(p.astype(jnp.bfloat16), v_ref[h], preferred_element_type=jnp.float32)
                )
                # flash_attention.py:51: m = m_new
                m_ref[h] = m_new

        @pl.when((n == steps - 1) | (tq_of[after] != tq))
        def _():
            # flash_attention.py:35: for b, h in hl.grid([B, H]):
            for h in range(16):
                # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
                out_ref[h] = (acc_ref[h] / total_ref[h]).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(8, steps),
        in_specs=[
            pl.BlockSpec((None, 16, 512, 128), lambda b, n: (b, 0, tk_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b, n: (b, 0, tq_of[n], 0)),
            pl.BlockSpec((None, 16, 512, 128), lambda b, n: (b, 0, tk_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((None, 16, 512, 128), lambda b, n: (b, 0, tq_of[n], 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
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
            pltpu.VMEM((16, 512, 128), jnp.float32),
            pltpu.VMEM((16, 512, 128), jnp.float32),
            pltpu.VMEM((16, 512, 128), jnp.float32),
            pltpu.SMEM((64,), jnp.int32),
            pltpu.SMEM((64,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=79691776),
        interpret=interpret,
    )(k, q, v)
    return out
