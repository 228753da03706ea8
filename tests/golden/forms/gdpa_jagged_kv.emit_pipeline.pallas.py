"""gdpa_jagged_kv for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def gdpa_jagged_kv_kernel(q_offsets, kv_offsets, q, k, v, out, acc_ref, b_of, tq_of):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: column of the step table; parallel: out slices of different b are disjoint because
    #     q_offsets is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: pipeline inside the step, blocks of 512; ordered: carries acc, a sum
    # Step table: one row for every (b, tq), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_tq(b, tq, n):
        b_of[n] = b
        tq_of[n] = tq
        return n + 1

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(q_offsets[b], 0)
        tq_end = jnp.minimum(q_offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 128, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 64, lambda tq, n: add_tq(127, tq, n), steps)

    def step(q_ref, out_ref):
        h = pl.program_id(0)
        n = pl.program_id(1)
        b, tq = b_of[n], tq_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((256, 128), jnp.bfloat16)

        # gdpa_jagged_kv.py:47: acc = jnp.zeros([tq, width], dtype=jnp.float32)
        acc_ref[...] = jnp.zeros((256, 128), jnp.float32)
        # gdpa_jagged_kv.py:48: for tk in hl.tile(kv_offsets[b], kv_offsets[b + 1]):
        tk_begin = jnp.maximum(kv_offsets[b], 0)
        tk_end = jnp.minimum(kv_offsets[b + 1], 65536)
        tk_first = jax.lax.div(tk_begin, 512)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 511, 512), tk_first)

        def each_tk(k_ref, v_ref):
            tk = tk_first + pl.program_id(0)
            # gdpa_jagged_kv.py:49: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            scores = jax.lax.dot_general(
                q_ref[...],
                k_ref[...],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            # gdpa_jagged_kv.py:50: weights = activation(scores * D**-0.5).astype(v.dtype)
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tk_mask = (tk_index >= kv_offsets[b]) & (tk_index < kv_offsets[b + 1])
            weights = jnp.where(
                tk_mask, jax.nn.gelu(scores * 0.08838834764831845).astype(jnp.bfloat16), 0.0
            )
            # gdpa_jagged_kv.py:51: acc += jnp.dot(weights, v[h, tk, :], preferred_element_type=j...
            tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_mask_1 = (tk_index_1 >= kv_offsets[b]) & (tk_index_1 < kv_offsets[b + 1])
            acc_ref[...] += jnp.dot(
                weights,
                jnp.where(tk_mask_1, v_ref[...], 0.0),
                preferred_element_type=jnp.float32,
            )

        pltpu.emit_pipeline(
            each_tk,
            grid=(tk_stop - tk_first,),
            in_specs=[
                pl.BlockSpec((None, 512, 128), lambda tk: (h, tk_first + tk, 0)),
                pl.BlockSpec((None, 512, 128), lambda tk: (h, tk_first + tk, 0)),
            ],
        )(k, v)
        # gdpa_jagged_kv.py:52: out[h, tq, :] = acc.astype(out.dtype)
        tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tq_mask = (tq_index >= q_offsets[b]) & (tq_index < q_offsets[b + 1])
        out_ref[...] = jnp.where(tq_mask, acc_ref[...].astype(jnp.bfloat16), out_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(8, steps),
        in_specs=[pl.BlockSpec((None, 256, 128), lambda h, n: (h, tq_of[n], 0))],
        out_specs=[pl.BlockSpec((None, 256, 128), lambda h, n: (h, tq_of[n], 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(q, out)


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
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.SMEM((191,), jnp.int32),
            pltpu.SMEM((191,), jnp.int32),
        ],
        interpret=interpret,
    )(q_offsets, kv_offsets, q, k, v)
    return out
