"""gdpa_jagged_kv for tpu:v6e, blocks tk=256, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def gdpa_jagged_kv_kernel(
    q_offsets, kv_offsets, q, k, v, out, acc_ref, scores_ref, b_of, tq_of, tk_of,
):
    # b: column of the step table; parallel: out slices of different b are disjoint because
    #     q_offsets is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 256; ordered: carries acc, a sum
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
        tk_begin = jnp.maximum(kv_offsets[b], 0)
        tk_end = jnp.minimum(kv_offsets[b + 1], 65536)
        tk_first = jax.lax.div(tk_begin, 256)
        tq_runs = (
            jnp.maximum(q_offsets[b], tq * 128) < jnp.minimum(q_offsets[b + 1], tq * 128 + 128)
        )
        tk_first = jnp.where(
            (n == 0) | tq_runs, jnp.minimum(tk_first, 255), tk_of[jnp.maximum(n - 1, 0)]
        )
        tk_stop = jnp.maximum(
            jnp.where((tk_end > tk_begin) & tq_runs, jax.lax.div(tk_end + 255, 256), tk_first),
            tk_first + 1,
        )
        return jax.lax.fori_loop(tk_first, tk_stop, lambda tk, n: add_tk(b, tq, tk, n), n)

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(q_offsets[b], 0)
        tq_end = jnp.minimum(q_offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 128)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 128, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 128, lambda tq, n: add_tq(127, tq, n), steps)

    def step(q_ref, k_ref, v_ref, out_ref):
        n = pl.program_id(0)
        b, tq, tk = b_of[n], tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((8, 128, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
        def _():
            # gdpa_jagged_kv.py:47: acc = jnp.zeros([tq, width], dtype=jnp.float32)
            acc_ref[...] = jnp.zeros((8, 128, 128), jnp.float32)

        @pl.when(
            jnp.maximum(kv_offsets[b], tk * 256) < jnp.minimum(kv_offsets[b + 1], tk * 256 + 256)
        )
        def _():
            # gdpa_jagged_kv.py:45: for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
            for h in range(8):
                # gdpa_jagged_kv.py:49: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_el...
                scores_ref[h] = jax.lax.dot_general(
                    q_ref[h],
                    k_ref[h],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
            tk_mask = (tk_index >= kv_offsets[b]) & (tk_index < kv_offsets[b + 1])
            tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tk_mask_1 = (tk_index_1 >= kv_offsets[b]) & (tk_index_1 < kv_offsets[b + 1])
            for h in range(8):
                # gdpa_jagged_kv.py:50: weights = activation(scores * D**-0.5).astype(v.dtype)
                weights = jnp.where(
                    tk_mask,
                    jax.nn.gelu(scores_ref[h] * 0.08838834764831845).astype(jnp.bfloat16),
                    0.0,
                )
                # gdpa_jagged_kv.py:51: acc += jnp.dot(weights, v[h, tk, :], preferred_element_ty...
                acc_ref[h] += jnp.dot(
                    weights,
                    jnp.where(tk_mask_1, v_ref[h], 0.0),
                    preferred_element_type=jnp.float32,
                )

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
        def _():
            # gdpa_jagged_kv.py:45: for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tq_mask = (tq_index >= q_offsets[b]) & (tq_index < q_offsets[b + 1])
            for h in range(8):
                # gdpa_jagged_kv.py:52: out[h, tq, :] = acc.astype(out.dtype)
                out_ref[h] = jnp.where(tq_mask, acc_ref[h].astype(jnp.bfloat16), out_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((8, 128, 128), lambda n: (0, tq_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((8, 256, 128), lambda n: (0, tk_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((8, 256, 128), lambda n: (0, tk_of[n], 0), pipeline_mode=pl.Buffered(4)),
        ],
        out_specs=[pl.BlockSpec((8, 128, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out)


def gdpa_jagged_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    q_offsets: jax.Array,
    kv_offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = sum of activation(q[:, r] k[:, s] / sqrt(D)) v[:, s] over keys s of r."""
    out = pl.pallas_call(
        gdpa_jagged_kv_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((8, 128, 128), jnp.float32),
            pltpu.VMEM((8, 128, 256), jnp.float32),
            pltpu.SMEM((65280,), jnp.int32),
            pltpu.SMEM((65280,), jnp.int32),
            pltpu.SMEM((65280,), jnp.int32),
        ],
        interpret=interpret,
    )(q_offsets, kv_offsets, q, k, v)
    return out
