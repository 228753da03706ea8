"""Jagged flash attention by hand, to count the generated kernel's bundles against.

One emit_pipeline walks a table of (sequence, query tile, key tile) in scalar memory for every head;
the running maximum, total and sum stay in vector memory.  Tiles are aligned to the array; query
tiles of no sequence are not written.  This module is compiled as text, by itself: it imports
nothing of ours.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

NEVER = -1e30  # less than any score, and no infinity: NEVER - NEVER is 0


def jagged_attention(q, k, v, offsets, *, bq, bk, causal, interpret=False):
    """softmax(q k^T / sqrt(D)) v within each sequence; blocks of bq queries and bk keys."""
    (H, T, D), B = q.shape, offsets.shape[0] - 1
    most = (T // bq + B - 1) * (T // bk)
    scale = D**-0.5

    def kernel(offsets, q, k, v, out, m_ref, total_ref, acc_ref, sequences, queries, keys):
        def fill(b, n):
            begin, end = offsets[b], offsets[b + 1]

            def fill_queries(tile, n):
                stop = jnp.minimum(end, tile * bq + bq) if causal else end

                def add(key, n):
                    sequences[n], queries[n], keys[n] = b, tile, key
                    return n + 1

                return lax.fori_loop(lax.div(begin, bk), lax.div(stop + bk - 1, bk), add, n)

            stop = jnp.where(end > begin, lax.div(end + bq - 1, bq), 0)
            return lax.fori_loop(lax.div(begin, bq), stop, fill_queries, n)

        steps = lax.fori_loop(0, B, fill, jnp.int32(0))

        def step(q_ref, k_ref, v_ref, out_ref):
            n = pl.program_id(1)
            b, tile, key = sequences[n], queries[n], keys[n]
            begin, end = offsets[b], offsets[b + 1]
            before, after = jnp.maximum(n - 1, 0), jnp.minimum(n + 1, steps - 1)
            fresh = (n == 0) | (queries[before] != tile)

            @pl.when(fresh)
            def _():
                out_ref[...] = jnp.zeros_like(out_ref)

            @pl.when(fresh | (sequences[before] != b))
            def _():
                m_ref[...] = jnp.full_like(m_ref, NEVER)
                total_ref[...] = jnp.zeros_like(total_ref)
                acc_ref[...] = jnp.zeros_like(acc_ref)

            scores = scale * lax.dot_general(
                q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )
            row = tile * bq + lax.broadcasted_iota(jnp.int32, (bq, 1), 0)
            column = key * bk + lax.broadcasted_iota(jnp.int32, (1, bk), 1)
            seen = (column >= begin) & (column < end)
            if causal:
                seen &= column <= row
            scores = jnp.where(seen, scores, NEVER)
            m = m_ref[...]
            m_new = jnp.maximum(m, scores.max(1, keepdims=True))
            p = jnp.exp(scores - m_new)
            alpha = jnp.exp(m - m_new)
            # rows of v in other sequences may be NaN, and 0 * NaN is NaN
            position = key * bk + lax.broadcasted_iota(jnp.int32, (bk, 1), 0)
            ours = (position >= begin) & (position < end)
            values = jnp.where(ours, v_ref[...], jnp.zeros_like(v_ref))
            m_ref[...] = m_new
            total_ref[...] = alpha * total_ref[...] + p.sum(1, keepdims=True)
            acc_ref[...] = alpha * acc_ref[...] + jnp.dot(
                p.astype(v.dtype), values, preferred_element_type=jnp.float32
            )

            @pl.when((n == steps - 1) | (sequences[after] != b) | (queries[after] != tile))
            def _():
                mine = (row >= begin) & (row < end)
                mean = acc_ref[...] / total_ref[...]
                out_ref[...] = jnp.where(mine, mean.astype(out_ref.dtype), out_ref[...])

        pltpu.emit_pipeline(
            step,
            grid=(H, steps),
            in_specs=[
                pl.BlockSpec((None, bq, D), lambda h, n: (h, queries[n], 0)),
                pl.BlockSpec((None, bk, D), lambda h, n: (h, keys[n], 0)),
                pl.BlockSpec((None, bk, D), lambda h, n: (h, keys[n], 0)),
            ],
            out_specs=[pl.BlockSpec((None, bq, D), lambda h, n: (h, queries[n], 0))],
            dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
        )(q, k, v, out)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((bq, 1), jnp.float32),
            pltpu.VMEM((bq, 1), jnp.float32),
            pltpu.VMEM((bq, D), jnp.float32),
            *[pltpu.SMEM((most,), jnp.int32)] * 3,
        ],
        interpret=interpret,
    )(offsets, q, k, v)
