"""gdpa_dense_kv for tpu:v6e, blocks tq=128, ts=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def gdpa_dense_kv_kernel(offsets, k, q, v, out, scores_ref, b_of, tq_of):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own slices of out
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # ts: one tile, blocks of 512; ordered: carries acc, a sum
    # Step table: one row for every (b, tq), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_tq(b, tq, n):
        b_of[n] = b
        tq_of[n] = tq
        return n + 1

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 128)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 64, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 128, lambda tq, n: add_tq(63, tq, n), steps)

    def step(k_ref, q_ref, v_ref, out_ref):
        n = pl.program_id(0)
        b, tq = b_of[n], tq_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((8, 128, 128), jnp.bfloat16)

        # gdpa_dense_kv.py:47: acc = jnp.zeros([tq, D], dtype=jnp.float32)
        acc = jnp.zeros((128, 128), jnp.float32)
        # gdpa_dense_kv.py:45: for h, b in hl.grid([H, B]):
        for h in range(8):
            # gdpa_dense_kv.py:49: keys = k[b, h, ts, :]
            keys = k_ref[h]
            # gdpa_dense_kv.py:50: scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=j...
            scores_ref[h] = jax.lax.dot_general(
                q_ref[h],
                keys,
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        for h in range(8):
            # gdpa_dense_kv.py:51: weights = activation(scores * D**-0.5).astype(v.dtype)
            weights = jax.nn.gelu(scores_ref[h] * 0.08838834764831845).astype(jnp.bfloat16)
            # gdpa_dense_kv.py:52: acc += jnp.dot(weights, v[b, h, ts, :], preferred_element_type...
            acc_1 = acc + jnp.dot(weights, v_ref[h], preferred_element_type=jnp.float32)
            # gdpa_dense_kv.py:53: out[h, tq, :] = acc.astype(out.dtype)
            out_ref[h] = jnp.where(tq_mask, acc_1.astype(jnp.bfloat16), out_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (None, 8, 512, 128),
                lambda n: (b_of[n], 0, 0, 0),
                pipeline_mode=pl.Buffered(4),
            ),
            pl.BlockSpec((8, 128, 128), lambda n: (0, tq_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec(
                (None, 8, 512, 128),
                lambda n: (b_of[n], 0, 0, 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((8, 128, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(k, q, v, out)


def gdpa_dense_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = activation(q[:, r] k[b]^T / sqrt(D)) v[b] for r in group b, else zero."""
    out = pl.pallas_call(
        gdpa_dense_kv_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((8, 128, 512), jnp.float32),
            pltpu.SMEM((191,), jnp.int32),
            pltpu.SMEM((191,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, k, q, v)
    return out
